package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// copied copies a body from a connection that sends text and ends. It returns what the other side gets.
func copied(t *testing.T, text string, length int64, chunks bool, buffer int) (got string, count int64, err error) {
	t.Helper()
	src, from := net.Pipe()
	dst, to := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.WriteString(from, text)
		_ = from.Close()
	})
	wg.Go(func() {
		data, _ := io.ReadAll(to)
		got = string(data)
	})
	pool := &sync.Pool{New: func() any { b := make([]byte, 16); return &b }}
	b := &Body{Length: length, R: bufio.NewReaderSize(src, buffer), Src: src, Dst: dst, Chunks: chunks, Count: &count}
	if buffer >= len(text) && text != "" {
		_, _ = b.R.Peek(len(text))
	}
	err = b.Copy(pool)
	_, _ = src.Close(), dst.Close()
	wg.Wait()
	return got, count, err
}

func TestBody(t *testing.T) {
	const big = "0123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct {
		text   string
		length int64
		chunks bool
		want   string
		count  int64
	}{
		"none":                 {"rest", 0, false, "", 0},
		"counted":              {"hello, rest", 5, false, "hello", 5},
		"chunks":               {"5\r\nhello\r\n1;ext=1\r\n!\r\n0\r\n\r\nrest", Chunked, true, "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", 6},
		"chunks, upper case":   {"00A \r\n0123456789\r\n0\r\n\r\n", Chunked, true, "a\r\n0123456789\r\n0\r\n\r\n", 10},
		"chunks to bytes":      {"5\r\nhello\r\n0\r\nA: b\r\n\r\n", Chunked, false, "hello", 5},
		"trailer":              {"0\r\nX: 1\r\nContent-Length: 9\r\nHost: b\r\nConnection: x\r\n\r\n", Chunked, true, "0\r\nX: 1\r\n\r\n", 0},
		"until the end":        {big, UntilEnd, false, big, 32},
		"no body at all":       {"", UntilEnd, false, "", 0},
		"until the end, empty": {"", UntilEnd, true, "0\r\n\r\n", 0},
	} {
		for _, buffer := range []int{16, 4096} { // what was read before stands in the buffer, or comes later
			got, count, err := copied(t, c.text, c.length, c.chunks, buffer)
			if err != nil || got != c.want || count != c.count {
				t.Errorf("%s, buffer %d: %q, %d bytes, %v", name, buffer, got, count, err)
			}
		}
	}
	got, count, err := copied(t, big, UntilEnd, true, 16)
	if _, rest, ok := strings.Cut(got, "\r\n"); err != nil || !ok || !strings.HasSuffix(rest, "0\r\n\r\n") || count != 32 {
		t.Errorf("bytes to chunks: %q, %d bytes, %v", got, count, err)
	}
}

func TestBodyRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		length int64
		bad    bool // it is the sender's fault, not the connection's
	}{
		"too short":                {"hell", 5, false},
		"no chunk":                 {"", Chunked, false},
		"half a chunk":             {"5\r\nhel", Chunked, false},
		"no last chunk":            {"1\r\na\r\n", Chunked, false},
		"no size":                  {"\r\n", Chunked, true},
		"size is no number":        {"x\r\n", Chunked, true},
		"size with a sign":         {"+1\r\na\r\n0\r\n\r\n", Chunked, true},
		"size with 0x":             {"0x1\r\na\r\n0\r\n\r\n", Chunked, true},
		"size with a space before": {" 1\r\na\r\n0\r\n\r\n", Chunked, true},
		"size of 2^64":             {"10000000000000000\r\na\r\n0\r\n\r\n", Chunked, true},
		"bare LF after the size":   {"1\na\r\n0\r\n\r\n", Chunked, true},
		"chunk too long":           {"1\r\nab\r\n0\r\n\r\n", Chunked, true},
		"trailer folded":           {"0\r\nA: b\r\n c\r\n\r\n", Chunked, true},
		"trailer is no field":      {"0\r\nA b\r\n\r\n", Chunked, true},
		"trailer too long":         {"0\r\n" + strings.Repeat("A: b\r\n", maxTrailer), Chunked, true},
		"size line too long":       {strings.Repeat("0", maxChunkLine) + "\r\n", Chunked, true},
	} {
		for _, buffer := range []int{16, 4096} {
			_, _, err := copied(t, c.text, c.length, true, buffer)
			if _, bad := errors.AsType[*BadRequest](err); err == nil || bad != c.bad {
				t.Errorf("%s, buffer %d: %v", name, buffer, err)
			}
		}
	}
}
