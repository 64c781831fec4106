package relay

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settle is for how long an answer waits for the body to be known as sent: an instant, where the server has read it all.
const settle = 10 * time.Millisecond

// respond sends the final response. keep says whether the client's connection can be used again; the server's is dropped where it
// cannot.
func (x *exchange) respond(resp *http.Response) (keep bool, err error) {
	empty := x.head.method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	unknown := !empty && resp.ContentLength < 0
	chunked := unknown && x.head.minor > 0
	sent := x.whole(settle)
	keep = x.head.keepAlive() && sent && (chunked || !unknown)

	start := []byte(responseHead(resp, resp.Trailer, x.framing(resp, empty, chunked, keep)))
	left := resp.ContentLength
	if !empty && !unknown { // what is here of the body goes with the head
		ahead, _ := x.up.r.Peek(int(min(int64(x.up.r.Buffered()), left)))
		start = append(start, ahead...)
		_, _ = x.up.r.Discard(len(ahead)) // it was just there
		left -= int64(len(ahead))
	}
	x.out.Lock()
	x.begun = true
	_, err = x.conn.Write(start)
	x.out.Unlock()
	switch {
	case err != nil || empty:
	case !unknown:
		x.got, err = copyBody(x.conn, x.up.r, x.up.stream, left)
		x.got += resp.ContentLength - left
	case chunked:
		err = x.respondChunks(resp)
	default:
		err = x.pass(resp.Body, func(b []byte) []byte { return b })
	}
	if err != nil || resp.Close || !sent {
		x.dropUpstream()
	}
	return keep, err
}

// framing writes the fields that say where the response ends.
func (x *exchange) framing(resp *http.Response, empty, chunked, keep bool) string {
	var b strings.Builder
	length := resp.Header.Get("Content-Length")
	if !empty && resp.ContentLength >= 0 {
		length = strconv.FormatInt(resp.ContentLength, 10)
	}
	switch {
	case chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case length != "" && resp.StatusCode != http.StatusNoContent:
		b.WriteString("Content-Length: " + length + "\r\n")
	}
	switch {
	case !keep:
		b.WriteString("Connection: close\r\n")
	case x.head.minor == 0:
		b.WriteString("Connection: keep-alive\r\n")
	}
	return b.String()
}

// responseHead writes a response's first line and fields, but for those of the server's connection, and ours.
func responseHead(resp *http.Response, trailer http.Header, ours string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %s\r\n", resp.Status)
	connection := resp.Header.Values("Connection")
	leave := map[string]bool{}
	for name := range resp.Header {
		leave[name] = hopByHop(name, connection)
	}
	_ = resp.Header.WriteSubset(&b, leave) // a Builder takes everything
	if len(trailer) > 0 {
		b.WriteString("Trailer: " + strings.Join(slices.Sorted(maps.Keys(trailer)), ", ") + "\r\n")
	}
	b.WriteString(ours + "\r\n")
	return b.String()
}

// respondChunks sends a body whose length nobody knows yet.
func (x *exchange) respondChunks(resp *http.Response) error {
	err := x.pass(resp.Body, func(b []byte) []byte {
		size := strconv.FormatInt(int64(len(b)), 16) + "\r\n"
		return slices.Concat([]byte(size), b, []byte("\r\n"))
	})
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("0\r\n")
	_ = resp.Trailer.Write(&b) // a Builder takes everything
	b.WriteString("\r\n")
	_, err = io.WriteString(x.conn, b.String())
	return err
}

// pass sends each piece of a body when it comes (server-sent events wait for nothing).
func (x *exchange) pass(body io.Reader, frame func([]byte) []byte) error {
	buf, _ := x.pool.Get().(*[]byte)
	defer x.pool.Put(buf)
	for {
		n, err := body.Read(*buf)
		if n > 0 {
			x.got += int64(n)
			if _, werr := x.conn.Write(frame((*buf)[:n])); werr != nil {
				return werr
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}
