package relay

import (
	"strings"
	"time"

	"github.com/sandboxrun/sandboxrun/relay/http1"
)

// uploadGrace is how long a response waits for the end of the request's body. It is short: a server that has read the body has it already.
const uploadGrace = 10 * time.Millisecond

// respond sends the final response. keep says whether the client's connection can be used again; the server's is dropped where it
// cannot.
func (x *exchange) respond(resp *http1.Response) (keep bool, err error) {
	known := resp.Length >= 0
	chunks := !known && x.head.Minor > 0
	sent := x.uploadedWithin(uploadGrace)
	keep = x.head.KeepAlive() && sent && (chunks || known)

	start := []byte(resp.Render(x.framing(resp, chunks, keep)))
	b := http1.Body{Length: resp.Length, R: x.up.r, Src: x.up.Stream, Dst: x.conn, Chunks: chunks, Count: &x.got}
	ahead := 0
	if known { // what is here of the body goes with the head
		part, _ := x.up.r.Peek(int(min(int64(x.up.r.Buffered()), resp.Length)))
		start, ahead = append(start, part...), len(part)
		b.Length -= int64(ahead)
		_, _ = x.up.r.Discard(ahead) // Peek has returned them
	}
	x.out.Lock()
	x.begun = true
	_, err = x.conn.Write(start)
	x.out.Unlock()
	if err == nil {
		x.got = int64(ahead)
		err = b.Copy(&x.pool)
	}
	if err != nil || resp.Last || !sent {
		x.dropUpstream()
	}
	return keep, err
}

// framing writes the fields that say where the response ends.
func (x *exchange) framing(resp *http1.Response, chunks, keep bool) string {
	var b strings.Builder
	switch {
	case chunks:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case resp.Length >= 0 && resp.Declared != "" && resp.Status != http1.StatusNoContent:
		b.WriteString("Content-Length: " + resp.Declared + "\r\n")
	}
	switch {
	case !keep:
		b.WriteString("Connection: close\r\n")
	case x.head.Minor == 0:
		b.WriteString("Connection: keep-alive\r\n")
	}
	return b.String()
}
