package relay

import (
	"bufio"
	"context"
	"io"
	"net"
	"time"
)

const (
	maxBusy   = 64              // clients that are being told to come back later
	farewell  = time.Second     // for how long a client may take to hear a last answer
	maxUnread = 256 << 10       // bytes that it may still be sending while it does
	readAhead = 4 << 10         // per connection; a head is gathered elsewhere
	socks5    = 5               // the first byte of RFC 1928; 4 is SOCKS 4, and HTTP begins with a letter
	longAgo   = 1 * time.Second // after the epoch: a deadline that is over
)

// client is a connection to the proxy's port.
type client struct {
	*server
	conn *net.TCPConn
	r    *bufio.Reader // of conn
	up   *upstream     // of the last request, where it can be used again
}

// proxy speaks HTTP or SOCKS5, whichever the first byte says.
func (s *server) proxy(ctx context.Context, conn *net.TCPConn) {
	c := &client{server: s, conn: conn, r: bufio.NewReaderSize(conn, readAhead)}
	defer shut(conn)
	c.within(s.lim.Idle)
	first, err := c.r.Peek(1)
	switch {
	case err != nil:
	case first[0] == socks5:
		c.within(s.lim.Header)
		c.socks(ctx)
	case first[0] < ' ' && first[0] != '\r':
		c.refuse(Event{Time: time.Now(), Kind: "http"}, &head{}, bad("this is neither HTTP nor SOCKS5"))
	default:
		c.http(ctx)
	}
}

// within bounds how long the next reads may take; 0 is for ever.
func (c *client) within(d time.Duration) {
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	_ = c.conn.SetReadDeadline(t) // it fails only where the reads will too
}

// tunnel joins the client with a host: what CONNECT and SOCKS come to.
func (c *client) tunnel(ctx context.Context, ev Event, out stream) {
	c.within(0)
	sent, got, err := join(ctx, c.conn, out, c.guardName(ev.Host, ev.Port, c.r), nil)
	ev.Up, ev.Down = sent, got
	c.notes.endWith(ev, err)
}

// goodbye closes a connection so that the last answer arrives: one that is closed with bytes unread is reset, and a reset
// can overtake the answer (RFC 9112, section 9.6).
func (c *client) goodbye() {
	_ = c.conn.CloseWrite()
	c.within(farewell)
	_, _ = io.CopyN(io.Discard, c.conn, maxUnread)
	shut(c.conn)
}

// tooBusy tells a client of the proxy that there are too many of them; if too many have to be told, they are cut off.
func (s *server) tooBusy(ctx context.Context, conn *net.TCPConn) bool {
	select {
	case s.busy <- struct{}{}:
	default:
		reset(conn)
		return false
	}
	s.told.Go(func() {
		defer func() { <-s.busy }()
		stop := context.AfterFunc(ctx, func() { reset(conn) })
		defer stop()
		c := &client{server: s, conn: conn}
		ev := Event{Time: time.Now(), Kind: "http"}
		_ = conn.SetWriteDeadline(time.Now().Add(farewell))
		_, _ = io.WriteString(conn, plainAnswer(503, "too many connections are open, try again\n", true, false))
		c.goodbye()
		s.notes.end(ev, Failed, "too many connections are open")
	})
	return false
}
