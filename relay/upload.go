package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	patience     = time.Second // for a server that does not know Expect; what net/http and curl wait
	maxChunkLine = 4 << 10
	maxTrailer   = 16 << 10
)

// feed sends the request's body, and then waits for the client to go away, so that what it has asked for can be given up.
func (x *exchange) feed() {
	defer close(x.fed)
	if x.expects && !x.invited() {
		return
	}
	if x.head.length != 0 {
		if x.feedErr = x.upload(); x.feedErr != nil {
			return
		}
		close(x.uploaded)
	}
	x.watch()
}

// invited waits until the body may be sent, and tells the client. It is false where the final response came first: then there is
// no knowing whether a body will follow.
func (x *exchange) invited() bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-x.over:
		return false
	case <-x.proceed:
	case <-late.C:
	}
	x.out.Lock()
	defer x.out.Unlock()
	if x.begun {
		return false
	}
	_, err := io.WriteString(x.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	return err == nil
}

// continued takes the server's "100 Continue".
func (x *exchange) continued() {
	select {
	case <-x.proceed:
	default:
		close(x.proceed)
	}
}

// upload sends the body. When the client fails, the server is cut off, or it could take what it has for the whole.
func (x *exchange) upload() error {
	var err error
	if x.head.length > 0 {
		var n int64
		n, err = copyBody(x.up.stream, x.r, x.conn, x.head.length)
		x.sent.Add(n)
	} else {
		err = x.uploadChunks()
	}
	if err != nil && !dead(x.up.stream) && !errors.Is(err, os.ErrDeadlineExceeded) {
		reset(x.up)
	}
	return err
}

// uploadChunks sends a chunked body with the client's chunks, but written anew: without extensions, which servers have read
// in different ways, and with ends of lines that are ones (CVE-2025-22871).
func (x *exchange) uploadChunks() error {
	for {
		line, err := readLine(x.r, maxChunkLine)
		if err != nil {
			return err
		}
		n, err := chunkSize(line)
		if err != nil {
			return err
		}
		if n == 0 {
			return x.uploadTrailer()
		}
		if err := x.uploadChunk(n); err != nil {
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

// uploadChunk sends one chunk, at once if it is here already.
func (x *exchange) uploadChunk(n int64) error {
	size := strconv.FormatInt(n, 16) + "\r\n"
	if int64(x.r.Buffered()) >= n+2 {
		b, _ := x.r.Peek(int(n) + 2)
		if string(b[n:]) != "\r\n" {
			return errChunkEnd()
		}
		k, err := x.up.Write(append([]byte(size), b...))
		x.sent.Add(max(0, min(n, int64(k-len(size)))))
		_, _ = x.r.Discard(len(b)) // it was just there
		return err
	}
	if _, err := io.WriteString(x.up, size); err != nil {
		return err
	}
	k, err := copyBody(x.up.stream, x.r, x.conn, n)
	x.sent.Add(k)
	if err != nil {
		return err
	}
	var end [2]byte
	if _, err := io.ReadFull(x.r, end[:]); err != nil {
		return err
	}
	if string(end[:]) != "\r\n" {
		return errChunkEnd()
	}
	_, err = x.up.Write(end[:])
	return err
}

func errChunkEnd() error { return bad("a chunk does not end where its size says") }

// uploadTrailer sends the fields after the last chunk, but for those that a server might take for a part of the head.
func (x *exchange) uploadTrailer() error {
	var lines []string
	for left := maxTrailer; ; {
		line, err := readLine(x.r, left)
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
	var b strings.Builder
	b.WriteString("0\r\n")
	for _, f := range fields {
		if trailing(f.name) {
			fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
		}
	}
	b.WriteString("\r\n")
	_, err = io.WriteString(x.up, b.String())
	return err
}

// trailing says whether a field may stand after a body (RFC 9110, section 6.5.1).
func trailing(name string) bool { return httpguts.ValidTrailerHeader(name) && !hopByHop(name, nil) }

// watch waits for the client to end its connection, or to send more; then the next request's reading takes over. One that
// has only ended its own direction still wants the answer.
func (x *exchange) watch() {
	_, err := x.r.Peek(1)
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
	case !errors.Is(err, io.EOF), untilDead(x.conn):
		x.gone.Store(true)
		reset(x.up)
	}
}
