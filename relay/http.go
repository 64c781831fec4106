package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
)

// http serves the requests of one connection, each judged by its own target.
func (c *client) http(ctx context.Context) {
	defer c.dropUpstream()
	for {
		c.within(c.lim.Idle)
		if _, err := c.r.Peek(1); err != nil {
			return
		}
		c.pace.wait(ctx)
		c.within(c.lim.Header)
		ev := Event{Time: time.Now(), Kind: "http"}
		h, err := readHead(c.r, c.lim.Head)
		if err != nil {
			c.badHead(ev, err)
			return
		}
		c.within(0)
		if h.method == "CONNECT" {
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
	var b *badRequest
	switch {
	case errors.As(err, &b):
	case errors.Is(err, os.ErrDeadlineExceeded):
		b = &badRequest{statusTimeout, "the head of the request did not arrive in time"}
	default:
		return
	}
	c.refuse(ev, &head{}, b)
}

// connectMethod serves CONNECT. After a refusal the connection is closed: a client that did not wait for the answer has sent bytes
// of another protocol, which must not be taken for requests.
func (c *client) connectMethod(ctx context.Context, h *head) {
	ev := Event{Time: time.Now(), Kind: "connect"}
	t, err := parseAuthority(h.target, 0)
	if err == nil && h.length != 0 {
		err = bad("CONNECT has no body")
	}
	if err != nil {
		c.refuse(ev, h, err)
		return
	}
	out, d, err := c.connect(ctx, t.host, t.port)
	ev.decided(d)
	if err != nil {
		c.refuse(ev, h, err)
		return
	}
	if _, err := io.WriteString(c.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		shut(out)
		c.events.end(ev, Failed, "the program closed the connection")
		return
	}
	c.tunnel(ctx, ev, out)
}

// refuse answers with an error and closes the connection.
func (c *client) refuse(ev Event, h *head, err error) {
	c.events.answered(ev, err, func() {
		c.answer(h, err, true)
		c.closeAfterAnswer()
	})
}

// answer sends an error.
func (c *client) answer(h *head, err error, last bool) {
	_, _ = io.WriteString(c.conn, plainAnswer(statusOf(err), err.Error()+"\n", last, h.method == "HEAD"))
}

// plainAnswer writes a whole response.
func plainAnswer(status int, text string, last, headOnly bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\n",
		status, statusText(status), len(text))
	if last {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	if !headOnly {
		b.WriteString(text)
	}
	return b.String()
}

// Statuses of answers that are the relay's own.
const (
	statusBadRequest   = 400
	statusForbidden    = 403
	statusTimeout      = 408
	statusExpectation  = 417
	statusHeadTooLarge = 431
	statusBadGateway   = 502
	statusUnavailable  = 503
	statusVersion      = 505
)

func statusText(status int) string {
	return map[int]string{
		statusBadRequest: "Bad Request", statusForbidden: "Forbidden", statusTimeout: "Request Timeout",
		statusExpectation: "Expectation Failed", statusHeadTooLarge: "Request Header Fields Too Large",
		statusBadGateway: "Bad Gateway", statusUnavailable: "Service Unavailable", statusVersion: "HTTP Version Not Supported",
	}[status]
}

func statusOf(err error) int {
	var b *badRequest
	var no *refusal
	var f *failure
	switch {
	case errors.As(err, &b):
		return b.status
	case errors.As(err, &no):
		return statusForbidden
	case errors.As(err, &f) && f.why == causeBusy:
		return statusUnavailable
	}
	return statusBadGateway
}

// upstream is a connection to the server of the last request. It belongs to one client's connection and serves nobody
// else's, so what a server ties to a connection (as NTLM does) stays with the program that made it.
type upstream struct {
	stream
	r        *bufio.Reader // of stream
	decision netpolicy.Decision
	proxy    *netpolicy.Proxy // not nil: the connection ends there, and each request says for which host it is
	used     bool             // it has served a request
}

// reach gives a connection to a request's server: the last one, if that is to the same host and still there. The rules are asked about
// each request. An HTTP proxy gets the request itself, because most let no tunnel to port 80 be made; a request to change the protocol
// does need a tunnel.
func (c *client) reach(ctx context.Context, t target, upgrade bool) (netpolicy.Decision, error) {
	d := c.judge.Name(t.host, t.port)
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
	c.up = &upstream{stream: out, r: bufio.NewReaderSize(out, readAhead), decision: d}
	if plain {
		c.up.proxy = proxy
	}
	return d, nil
}

func (c *client) dropUpstream() {
	if c.up != nil {
		shut(c.up)
		c.up = nil
	}
}

// fresh reports whether a kept connection is open and has no bytes to read. Such bytes would belong to no request.
func (u *upstream) fresh() bool {
	if u.r.Buffered() > 0 {
		return false
	}
	quiet := false
	if raw, err := rawConn(u.stream); err == nil {
		_ = raw.Control(func(fd uintptr) { quiet = !readable(fd) })
	}
	return quiet
}
