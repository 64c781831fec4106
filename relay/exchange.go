package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxrun/sandboxrun/relay/http1"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// maxResponseHead is how many bytes of a response's head are read.
const maxResponseHead = 256 << 10

// errStale is the end of a kept connection before the first byte of a response: the server has closed it meanwhile.
var errStale = errors.New("the server closed the connection without an answer")

// exchange is one request and its response. One goroutine runs sendBody: it sends the body, then waits for the client to close. Another
// copies the response, which may begin before the body has ended.
//
//	client ──head──────────▶ forwardHead ──▶ server
//	       ──body──────────▶ sendBody ─────────▶
//	       ◀─100, 103, …──── answered ◀─────
//	       ◀─head, body───── respond ◀──────
type exchange struct {
	*client
	head    *http1.Head
	up      *upstream
	path    string
	expects bool // the client waits for "100 Continue" before it sends the body

	out       sync.Mutex    // held while an interim response or the final one's head is written
	begun     bool          // the final response has; under out
	proceed   chan struct{} // closed by the server's "100 Continue"
	over      chan struct{} // closed when the final response has come
	sendEnded chan struct{} // closed when sendBody has ended
	uploaded  chan struct{} // closed when the body has been sent whole
	sendErr   error         // of sendBody; to be read after sendEnded
	gone      atomic.Bool   // the client has gone away
	sent      int64         // bytes of the body; to be read after sendEnded
	got       int64         // bytes of the response's
}

// exchange serves one request and says whether there can be another one on this connection.
func (c *client) exchange(ctx context.Context, ev Event, h *http1.Head) bool {
	t, err := http1.Absolute(h.Target)
	expect := h.Values("Expect")
	if err == nil && len(expect) > 0 && (len(expect) > 1 || !strings.EqualFold(expect[0], "100-continue")) {
		err = &http1.BadRequest{Status: http1.StatusExpectation, Why: "the only expectation is 100-continue"}
	}
	if err != nil {
		c.refuse(ev, h, err)
		return false
	}
	for tries := 0; ; tries++ {
		d, err := c.reach(ctx, t, h.Upgrade() != "")
		ev.decided(d)
		if err != nil {
			return c.unreached(ev, h, err)
		}
		x := &exchange{client: c, head: h, up: c.up, path: t.Path, expects: len(expect) > 0 && h.Length != 0 && h.Minor > 0}
		again := c.up.used && tries == 0 && h.Length == 0 && isSafe(h.Method)
		c.up.used = true
		keep, err := x.run(ctx)
		if errors.Is(err, errStale) && again {
			c.dropUpstream()
			continue
		}
		ev.Up, ev.Down = x.sent, x.got
		return x.finish(ev, keep, err)
	}
}

// unreached answers a request that went nowhere.
func (c *client) unreached(ev Event, h *http1.Head, err error) bool {
	if h.Length != 0 || !h.KeepAlive() {
		c.refuse(ev, h, err)
		return false
	}
	c.events.answered(ev, err, func() { c.answer(h, err, false) })
	return true
}

// isSafe reports whether a request can be sent twice (RFC 9110, section 9.2.1).
func isSafe(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// run carries the exchange. An error means that there was no whole response.
func (x *exchange) run(ctx context.Context) (keep bool, err error) {
	stop := context.AfterFunc(ctx, func() { pipe.Reset(x.up) })
	defer stop()
	if _, err := io.WriteString(x.up, x.forwardHead()); err != nil {
		return false, errStale
	}
	x.proceed, x.over = make(chan struct{}), make(chan struct{})
	x.uploaded, x.sendEnded = make(chan struct{}), make(chan struct{})
	if x.head.Length == 0 {
		close(x.uploaded)
	}
	go x.sendBody()
	resp, err := x.answered()
	close(x.over)
	if err != nil {
		x.stopSending()
		return false, err
	}
	if resp.Status == http1.StatusSwitching {
		x.stopSending()
		return false, x.switchProtocols(ctx, resp)
	}
	keep, err = x.respond(resp)
	x.stopSending()
	return keep && x.sendErr == nil, err
}

// finish closes connections that cannot be used again, and ends the event.
func (x *exchange) finish(ev Event, keep bool, err error) bool {
	var b *http1.BadRequest
	switch {
	case errors.As(x.sendErr, &b) && !x.begun:
		x.client.refuse(ev, x.head, b)
		return false
	case x.gone.Load():
		err = errors.New("the program closed the connection")
	case err != nil && !x.begun:
		x.client.refuse(ev, x.head, &badGateway{err})
		return false
	case err != nil:
		pipe.Reset(x.conn) // a response that is cut off must not look whole
	}
	if !keep && err == nil {
		x.closeAfterAnswer()
	}
	x.events.endWith(ev, err)
	return keep && err == nil
}

// badGateway is a failure of an allowed server.
type badGateway struct{ error }

// uploadedWithin reports whether the body of the request has been sent, or is sent within a time.
func (x *exchange) uploadedWithin(within time.Duration) bool {
	select {
	case <-x.uploaded:
		return true
	default:
	}
	if within == 0 {
		return false
	}
	select {
	case <-x.uploaded:
		return true
	case <-time.After(within):
		return false
	}
}

// stopSending ends sendBody, which waits for the client, or for the server to take the rest of a body that it did not want.
func (x *exchange) stopSending() {
	if !x.uploadedWithin(0) {
		pipe.Reset(x.up)
	}
	_ = x.conn.SetReadDeadline(time.Unix(1, 0))
	<-x.sendEnded
	x.within(0)
}

// forwardHead writes the request's head anew: first of all the host that was judged, then the client's own fields, then the
// only framing there is.
func (x *exchange) forwardHead() string {
	h, d := x.head, x.up.decision
	var b strings.Builder
	host := http1.HostField(d.Host, d.Port)
	if p := x.up.proxy; p != nil {
		fmt.Fprintf(&b, "%s http://%s%s HTTP/1.1\r\nHost: %s\r\n%s", h.Method, host, x.path, host, authorization(p))
	} else {
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", h.Method, x.path, host)
	}
	connection := h.Values("Connection")
	for _, f := range h.Header {
		if !http1.HopByHop(f.Name, connection) && !strings.EqualFold(f.Name, "Expect") {
			b.WriteString(f.Name + ": " + f.Value + "\r\n")
		}
	}
	switch {
	case h.Length == http1.Chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case h.Length > 0, len(h.Values("Content-Length")) > 0:
		b.WriteString("Content-Length: " + strconv.FormatInt(h.Length, 10) + "\r\n")
	}
	if x.expects {
		b.WriteString("Expect: 100-continue\r\n")
	}
	if h.Has("Te", "trailers") {
		b.WriteString("TE: trailers\r\n")
	}
	if up := h.Upgrade(); up != "" {
		b.WriteString("Connection: Upgrade\r\nUpgrade: " + up + "\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

// answered reads responses until the final one, and passes interim ones on.
func (x *exchange) answered() (*http1.Response, error) {
	if _, err := x.up.r.Peek(1); err != nil {
		return nil, errStale
	}
	for {
		resp, err := http1.ReadResponse(x.up.r, maxResponseHead, x.head.Method)
		if err != nil {
			return nil, fmt.Errorf("read the server's answer: %w", err)
		}
		switch {
		case resp.Status == http1.StatusSwitching:
			if x.head.Upgrade() == "" {
				return nil, errors.New("the server changes the protocol, which was not asked for")
			}
			return resp, nil
		case resp.Status == http1.StatusProxyAuth && x.up.proxy != nil: // it is not the program that is asked
			return nil, &failure{causeProxyAuth, x.up.decision.Host, x.up.decision.Port}
		case resp.Status >= 200:
			return resp, nil
		case resp.Status == http1.StatusContinue:
			x.continued()
		case x.head.Minor > 0: // 103 Early Hints
			x.out.Lock()
			_, err = io.WriteString(x.conn, resp.Render(""))
			x.out.Unlock()
			if err != nil {
				return nil, err
			}
		}
	}
}

// switchProtocols passes the 101 on, then copies bytes both ways until both sides end.
func (x *exchange) switchProtocols(ctx context.Context, resp *http1.Response) error {
	x.begun = true
	extra := "Connection: Upgrade\r\nUpgrade: " + strings.Join(resp.Values("Upgrade"), ", ") + "\r\n"
	if _, err := io.WriteString(x.conn, resp.Render(extra)); err != nil {
		return err
	}
	var err error
	x.sent, x.got, err = pipe.Join(ctx, x.conn, x.up.Stream, pipe.Rest(x.r), pipe.Rest(x.up.r))
	return err
}
