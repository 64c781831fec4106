package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

const (
	maxChunkLine = 4 << 10
	maxTrailer   = 16 << 10
)

// body is what follows a head, on its way from one connection to the other: a request's or a response's.
type body struct {
	length int64         // in bytes, chunked or untilEnd
	r      *bufio.Reader // of src
	src    net.Conn
	dst    net.Conn
	chunks bool   // where the length is not known: whether dst gets chunks too, or bytes alone
	count  *int64 // of bytes without framing
}

// copy carries the whole body. Each piece goes on when it comes: server-sent events wait for nothing.
func (b *body) copy(pool *sync.Pool) error {
	switch {
	case b.length >= 0:
		return b.bytes(b.length)
	case b.length == chunked:
		return b.copyChunks()
	case b.chunks:
		return b.makeChunks(pool)
	}
	n, err := rest(b.r)(b.dst)
	*b.count += n
	if err == nil {
		n, err = io.Copy(b.dst, b.src)
		*b.count += n
	}
	return err
}

// bytes copies n bytes: first what has been read ahead, then from one socket to the other by splice.
func (b *body) bytes(n int64) error {
	ahead, _ := b.r.Peek(int(min(int64(b.r.Buffered()), n)))
	if len(ahead) > 0 {
		k, err := b.dst.Write(ahead)
		*b.count += int64(k)
		if err != nil {
			return err
		}
		_, _ = b.r.Discard(len(ahead)) // it was just there
	}
	left := n - int64(len(ahead))
	if left == 0 {
		return nil
	}
	k, err := io.Copy(b.dst, io.LimitReader(b.src, left))
	*b.count += k
	if err == nil && k < left {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// makeChunks makes a chunk of each piece that comes until the connection ends.
func (b *body) makeChunks(pool *sync.Pool) error {
	buf, _ := pool.Get().(*[]byte)
	defer pool.Put(buf)
	for {
		n, err := b.r.Read(*buf)
		if n > 0 {
			chunk := net.Buffers{[]byte(chunkLine(int64(n))), (*buf)[:n], []byte("\r\n")}
			if _, err := chunk.WriteTo(b.dst); err != nil {
				return err
			}
			*b.count += int64(n)
		}
		switch err {
		case nil:
		case io.EOF:
			return b.frame("0\r\n\r\n")
		default:
			return err
		}
	}
}

// copyChunks sends chunks as they were cut, but written anew: without extensions, which servers have read in different ways,
// and with ends of lines that are ones (CVE-2025-22871).
func (b *body) copyChunks() error {
	for {
		line, err := readLine(b.r, maxChunkLine, endCRLF)
		if err != nil {
			return err
		}
		n, err := chunkSize(line)
		if err != nil {
			return err
		}
		if n == 0 {
			return b.copyTrailer()
		}
		if err := b.copyChunk(n); err != nil {
			return err
		}
	}
}

func chunkSize(line string) (int64, error) {
	digits, _, _ := strings.Cut(line, ";")
	n, err := strconv.ParseUint(strings.TrimRight(digits, " \t"), 16, 62)
	if err != nil {
		return 0, bad("the size of a chunk is not a number")
	}
	return int64(n), nil
}

func chunkLine(n int64) string { return strconv.FormatInt(n, 16) + "\r\n" }

// frame writes what is not of the body itself.
func (b *body) frame(s string) error {
	if !b.chunks {
		return nil
	}
	_, err := io.WriteString(b.dst, s)
	return err
}

// copyChunk sends one chunk, with one call if it is here already.
func (b *body) copyChunk(n int64) error {
	if b.chunks && int64(b.r.Buffered()) >= n+2 {
		chunk, _ := b.r.Peek(int(n) + 2)
		if string(chunk[n:]) != "\r\n" {
			return errChunkEnd()
		}
		size := chunkLine(n)
		k, err := b.dst.Write(append([]byte(size), chunk...))
		*b.count += max(0, min(n, int64(k-len(size))))
		_, _ = b.r.Discard(len(chunk)) // it was just there
		return err
	}
	if err := b.frame(chunkLine(n)); err != nil {
		return err
	}
	if err := b.bytes(n); err != nil {
		return err
	}
	var end [2]byte
	if _, err := io.ReadFull(b.r, end[:]); err != nil {
		return err
	}
	if string(end[:]) != "\r\n" {
		return errChunkEnd()
	}
	return b.frame("\r\n")
}

func errChunkEnd() error { return bad("a chunk does not end where its size says") }

// copyTrailer sends the fields after the last chunk, but for those that could be taken for a part of the head.
func (b *body) copyTrailer() error {
	var lines []string
	for left := maxTrailer; ; {
		line, err := readLine(b.r, left, endCRLF)
		if err != nil {
			return err
		}
		if line == "" {
			break
		}
		left -= len(line)
		lines = append(lines, line)
	}
	fields, err := parseFields(lines)
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("0\r\n")
	for _, f := range fields {
		if trailing(f.name) {
			fmt.Fprintf(&text, "%s: %s\r\n", f.name, f.value)
		}
	}
	return b.frame(text.String() + "\r\n")
}

// trailing says whether a field may stand after a body (RFC 9110, section 6.5.1).
func trailing(name string) bool { return httpguts.ValidTrailerHeader(name) && !hopByHop(name, nil) }
