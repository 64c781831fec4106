package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/http1"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// http serves the requests of one connection, each judged by its own target.
func (c *client) http(ctx context.Context) {
	defer c.dropUpstream()
	for {
		c.within(c.lim.Idle)
		if _, err := c.r.Peek(1); err != nil {
			return
		}
		c.pace.Wait(ctx)
		c.within(c.lim.Header)
		ev := Event{Time: time.Now(), Kind: "http"}
		h, err := http1.ReadHead(c.r, c.lim.Head)
		if err != nil {
			c.badHead(ev, err)
			return
		}
		c.within(0)
		if h.Method == "CONNECT" {
			c.connectMethod(ctx, h)
			return
		}
		if !c.exchange(ctx, ev, h) {
			return
		}
	}
}

// badHead answers a malformed request and closes, because the start of the next request is unknown.
func (c *client) badHead(ev Event, err error) {
	var b *http1.BadRequest
	switch {
	case errors.As(err, &b):
	case errors.Is(err, os.ErrDeadlineExceeded):
		b = &http1.BadRequest{Status: http1.StatusTimeout, Why: "the head of the request did not arrive in time"}
	default:
		return
	}
	c.refuse(ev, &http1.Head{}, b)
}

// connectMethod serves CONNECT. After a refusal the connection is closed: a client that did not wait for the answer has sent bytes
// of another protocol, which must not be taken for requests.
func (c *client) connectMethod(ctx context.Context, h *http1.Head) {
	ev := Event{Time: time.Now(), Kind: "connect"}
	t, err := http1.ParseAuthority(h.Target, 0)
	if err == nil && h.Length != 0 {
		err = http1.Bad("CONNECT has no body")
	}
	if err != nil {
		c.refuse(ev, h, err)
		return
	}
	out, d, err := c.connect(ctx, t.Host, t.Port)
	ev.decided(d)
	if err != nil {
		c.refuse(ev, h, err)
		return
	}
	if _, err := io.WriteString(c.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		pipe.Shut(out)
		c.events.end(ev, Failed, "the program closed the connection")
		return
	}
	c.tunnel(ctx, ev, out)
}

// refuse answers with an error and closes the connection.
func (c *client) refuse(ev Event, h *http1.Head, err error) {
	c.events.answered(ev, err, func() {
		c.answer(h, err, true)
		c.closeAfterAnswer()
	})
}

// answer sends an error.
func (c *client) answer(h *http1.Head, err error, last bool) {
	_, _ = io.WriteString(c.conn, http1.PlainAnswer(statusOf(err), err.Error()+"\n", last, h.Method == "HEAD"))
}

func statusOf(err error) int {
	var b *http1.BadRequest
	var no *refusal
	var f *failure
	switch {
	case errors.As(err, &b):
		return b.Status
	case errors.As(err, &no):
		return http1.StatusForbidden
	case errors.As(err, &f) && f.why == causeBusy:
		return http1.StatusUnavailable
	}
	return http1.StatusBadGateway
}

// upstream is a connection to the server of the last request. It belongs to one client's connection and serves nobody
// else's, so what a server ties to a connection (as NTLM does) stays with the program that made it.
type upstream struct {
	pipe.Stream
	r        *bufio.Reader // of stream
	decision netpolicy.Decision
	proxy    *netpolicy.Proxy // not nil: the connection ends there, and each request says for which host it is
	used     bool             // it has served a request
}

// reach gives a connection to a request's server: the last one, if that is to the same host and still there. The rules are asked about
// each request. An HTTP proxy gets the request itself, because most let no tunnel to port 80 be made; a request to change the protocol
// does need a tunnel.
func (c *client) reach(ctx context.Context, t http1.Target, upgrade bool) (netpolicy.Decision, error) {
	d := c.judge.Name(t.Host, t.Port)
	proxy := c.judge.Proxy(c.cfg.Upstream, d, true)
	plain := proxy != nil && proxy.Scheme == netpolicy.ProxyHTTP && !upgrade
	if c.up != nil && d.Allow && c.up.decision.Host == d.Host && c.up.decision.Port == d.Port && (c.up.proxy != nil) == plain && c.up.fresh() {
		return c.up.decision, nil
	}
	c.dropUpstream()
	out, d, err := c.connectBy(ctx, d, proxy, plain)
	if err != nil {
		return d, err
	}
	c.up = &upstream{Stream: out, r: bufio.NewReaderSize(out, readAhead), decision: d}
	if plain {
		c.up.proxy = proxy
	}
	return d, nil
}

func (c *client) dropUpstream() {
	if c.up != nil {
		pipe.Shut(c.up)
		c.up = nil
	}
}

// fresh reports whether a kept connection is open and has no bytes to read. Such bytes would belong to no request.
func (u *upstream) fresh() bool {
	if u.r.Buffered() > 0 {
		return false
	}
	quiet := false
	if raw, err := pipe.RawConn(u.Stream); err == nil {
		_ = raw.Control(func(fd uintptr) { quiet = !pipe.Readable(fd) })
	}
	return quiet
}
