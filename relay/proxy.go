package relay

import (
	"bufio"
	"context"
	"io"
	"net"
	"time"

	"github.com/sandboxrun/sandboxrun/relay/http1"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

const (
	maxBusy      = 64              // clients that get a 503 at once
	closeTimeout = time.Second     // for a client to read the last answer
	maxUnread    = 256 << 10       // bytes that it may still be sending while it does
	readAhead    = 4 << 10         // per connection; a head is gathered elsewhere
	socks5       = 5               // the first byte of RFC 1928; 4 is SOCKS 4, and HTTP begins with a letter
	longAgo      = 1 * time.Second // after the epoch: a deadline that is over
)

// client is a connection to the proxy's port.
type client struct {
	*server
	conn *net.TCPConn
	r    *bufio.Reader // of conn
	up   *upstream     // of the last request, where it can be used again
}

// proxy serves HTTP or SOCKS5; the first byte decides.
func (s *server) proxy(ctx context.Context, conn *net.TCPConn) {
	c := &client{server: s, conn: conn, r: bufio.NewReaderSize(conn, readAhead)}
	defer pipe.Shut(conn)
	c.within(s.lim.Idle)
	first, err := c.r.Peek(1)
	switch {
	case err != nil:
	case first[0] == socks5:
		c.within(s.lim.Header)
		c.socks(ctx)
	case first[0] < ' ' && first[0] != '\r':
		c.refuse(Event{Time: time.Now(), Kind: "http"}, &http1.Head{}, http1.Bad("this is neither HTTP nor SOCKS5"))
	default:
		c.http(ctx)
	}
}

// within sets the deadline of the next reads; 0 is no deadline.
func (c *client) within(d time.Duration) {
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	_ = c.conn.SetReadDeadline(t) // it fails only where the reads will too
}

// tunnel copies between the client and a host, after CONNECT or a SOCKS request.
func (c *client) tunnel(ctx context.Context, ev Event, out pipe.Stream) {
	c.within(0)
	sent, got, err := pipe.Join(ctx, c.conn, out, c.guardName(ev.Host, ev.Port, c.r), nil)
	ev.Up, ev.Down = sent, got
	c.events.endWith(ev, err)
}

// closeAfterAnswer closes a connection so that the client can read the last answer: one that is closed with bytes unread is reset, and a
// reset can overtake the answer (RFC 9112, section 9.6).
func (c *client) closeAfterAnswer() {
	_ = c.conn.CloseWrite()
	c.within(closeTimeout)
	_, _ = io.CopyN(io.Discard, c.conn, maxUnread)
	pipe.Shut(c.conn)
}

// tooBusy answers a client of the proxy with 503. If too many clients wait for that answer, it resets the connection.
func (s *server) tooBusy(ctx context.Context, conn *net.TCPConn) bool {
	select {
	case s.busy <- struct{}{}:
	default:
		pipe.Reset(conn)
		return false
	}
	s.busyReplies.Go(func() {
		defer func() { <-s.busy }()
		stop := context.AfterFunc(ctx, func() { pipe.Reset(conn) })
		defer stop()
		c := &client{server: s, conn: conn}
		ev := Event{Time: time.Now(), Kind: "http"}
		_ = conn.SetWriteDeadline(time.Now().Add(closeTimeout))
		_, _ = io.WriteString(conn, http1.PlainAnswer(503, "too many connections are open, try again\n", true, false))
		c.closeAfterAnswer()
		s.events.end(ev, Failed, "too many connections are open")
	})
	return false
}
