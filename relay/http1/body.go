package http1

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

// Body is the body of a request or a response, and the two connections that it is copied between.
type Body struct {
	Length int64         // in bytes, Chunked or UntilEnd
	R      *bufio.Reader // of Src
	Src    net.Conn
	Dst    net.Conn
	Chunks bool   // where the length is not known: whether Dst gets chunks too, or bytes alone
	Count  *int64 // of bytes without framing
}

// Copy copies the whole body. It writes each piece when it arrives, because server-sent events must not wait.
func (b *Body) Copy(pool *sync.Pool) error {
	switch {
	case b.Length >= 0:
		return b.bytes(b.Length)
	case b.Length == Chunked:
		return b.copyChunks()
	case b.Chunks:
		return b.makeChunks(pool)
	}
	if err := b.bytes(int64(b.R.Buffered())); err != nil {
		return err
	}
	n, err := io.Copy(b.Dst, b.Src)
	*b.Count += n
	return err
}

// bytes copies n bytes: first the bytes in the buffer, then from one socket to the other by splice(2).
func (b *Body) bytes(n int64) error {
	ahead, _ := b.R.Peek(int(min(int64(b.R.Buffered()), n)))
	if len(ahead) > 0 {
		k, err := b.Dst.Write(ahead)
		*b.Count += int64(k)
		if err != nil {
			return err
		}
		_, _ = b.R.Discard(len(ahead)) // Peek has returned them
	}
	left := n - int64(len(ahead))
	if left == 0 {
		return nil
	}
	k, err := io.Copy(b.Dst, io.LimitReader(b.Src, left))
	*b.Count += k
	if err == nil && k < left {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// makeChunks writes each piece that arrives as a chunk, until the connection ends.
func (b *Body) makeChunks(pool *sync.Pool) error {
	buf, _ := pool.Get().(*[]byte)
	defer pool.Put(buf)
	for {
		n, err := b.R.Read(*buf)
		if n > 0 {
			chunk := net.Buffers{[]byte(chunkLine(int64(n))), (*buf)[:n], []byte("\r\n")}
			if _, err := chunk.WriteTo(b.Dst); err != nil {
				return err
			}
			*b.Count += int64(n)
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

// copyChunks keeps the size of each chunk but writes its framing anew: without extensions, because servers read these in different ways,
// and with CR LF at the end of each line (CVE-2025-22871).
func (b *Body) copyChunks() error {
	for {
		line, err := readLine(b.R, maxChunkLine, endCRLF)
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
		return 0, Bad("the size of a chunk is not a number")
	}
	return int64(n), nil
}

func chunkLine(n int64) string { return strconv.FormatInt(n, 16) + "\r\n" }

// frame writes the framing of a chunk, if dst gets chunks.
func (b *Body) frame(s string) error {
	if !b.Chunks {
		return nil
	}
	_, err := io.WriteString(b.Dst, s)
	return err
}

// copyChunk sends one chunk, with one write if all of it is in the buffer.
func (b *Body) copyChunk(n int64) error {
	if b.Chunks && int64(b.R.Buffered()) >= n+2 {
		chunk, _ := b.R.Peek(int(n) + 2)
		if string(chunk[n:]) != "\r\n" {
			return errChunkEnd()
		}
		size := chunkLine(n)
		k, err := b.Dst.Write(append([]byte(size), chunk...))
		*b.Count += max(0, min(n, int64(k-len(size))))
		_, _ = b.R.Discard(len(chunk)) // Peek has returned them
		return err
	}
	if err := b.frame(chunkLine(n)); err != nil {
		return err
	}
	if err := b.bytes(n); err != nil {
		return err
	}
	var end [2]byte
	if _, err := io.ReadFull(b.R, end[:]); err != nil {
		return err
	}
	if string(end[:]) != "\r\n" {
		return errChunkEnd()
	}
	return b.frame("\r\n")
}

func errChunkEnd() error { return Bad("a chunk does not end where its size says") }

// copyTrailer sends the fields after the last chunk, except those that a receiver could take for a part of the head.
func (b *Body) copyTrailer() error {
	var lines []string
	for left := maxTrailer; ; {
		line, err := readLine(b.R, left, endCRLF)
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
		if trailing(f.Name) {
			fmt.Fprintf(&text, "%s: %s\r\n", f.Name, f.Value)
		}
	}
	return b.frame(text.String() + "\r\n")
}

// trailing reports whether a field may stand after a body (RFC 9110, section 6.5.1).
func trailing(name string) bool { return httpguts.ValidTrailerHeader(name) && !HopByHop(name, nil) }
