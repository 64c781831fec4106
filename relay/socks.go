package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strings"
	"time"
)

// SOCKS5's numbers (RFC 1928, sections 3, 4 and 6).
const (
	socksNoAuth    = 0
	socksNoMethod  = 0xff
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksGranted   = 0
	socksFailure   = 1
	socksRefused   = 2 // "connection not allowed by ruleset"
	socksNoRoute   = 4 // "host unreachable"
	socksNoServer  = 5 // "connection refused"
	socksNoCommand = 7
	socksNoType    = 8
)

// socks serves one SOCKS5 connection: CONNECT, without a password. Names are resolved outside, and only there.
func (c *client) socks(ctx context.Context) {
	ev := Event{Time: time.Now(), Kind: "socks"}
	if ok, err := c.greet(); !ok {
		if err == nil {
			c.events.end(ev, Refused, "SOCKS5 without a password is the only method here")
		}
		return
	}
	host, port, reply := c.socksRequest()
	if reply != socksGranted {
		c.socksReply(reply)
		c.closeAfterAnswer()
		c.events.end(ev, Refused, "it is no SOCKS5 CONNECT to a name or address")
		return
	}
	out, d, err := c.connect(ctx, host, port)
	ev.decided(d)
	if err != nil {
		c.events.answered(ev, err, func() {
			c.socksReply(socksCode(err))
			c.closeAfterAnswer()
		})
		return
	}
	c.socksReply(socksGranted)
	c.tunnel(ctx, ev, out)
}

// greet answers the list of methods, of which we only have one. It is false where the client does not offer that, and where
// there is no list, which is the error.
func (c *client) greet() (bool, error) {
	var head [2]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return false, err
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c.r, methods); err != nil {
		return false, err
	}
	if strings.IndexByte(string(methods), socksNoAuth) < 0 {
		_, _ = c.conn.Write([]byte{socks5, socksNoMethod})
		c.closeAfterAnswer()
		return false, nil
	}
	_, err := c.conn.Write([]byte{socks5, socksNoAuth})
	return err == nil, err
}

// socksRequest reads the request. The reply is socksGranted, or the code to refuse the request with.
func (c *client) socksRequest() (host string, port int, reply byte) {
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil || head[0] != socks5 || head[2] != 0 {
		return "", 0, socksFailure
	}
	if head[1] != socksConnect {
		return "", 0, socksNoCommand // BIND and UDP ASSOCIATE would need sockets that nobody judges
	}
	host, reply = c.socksHost(head[3])
	var p [2]byte
	if reply != socksGranted {
		return "", 0, reply
	}
	if _, err := io.ReadFull(c.r, p[:]); err != nil {
		return "", 0, socksFailure
	}
	return host, int(binary.BigEndian.Uint16(p[:])), socksGranted
}

func (c *client) socksHost(kind byte) (string, byte) {
	n := map[byte]int{socksIPv4: 4, socksIPv6: 16}[kind]
	if kind == socksName {
		length, err := c.r.ReadByte()
		if err != nil {
			return "", socksFailure
		}
		n = int(length)
	}
	if n == 0 {
		return "", socksNoType
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return "", socksFailure
	}
	if kind == socksName {
		return string(b), socksGranted
	}
	a, _ := netip.AddrFromSlice(b) // it has one of the two lengths
	return a.Unmap().String(), socksGranted
}

// socksReply answers with no address of ours: which ones this machine has is none of the program's business.
func (c *client) socksReply(code byte) {
	_, _ = c.conn.Write([]byte{socks5, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0}) // where it fails the next read will
}

func socksCode(err error) byte {
	var no *refusal
	var f *failure
	switch {
	case errors.As(err, &no):
		return socksRefused
	case errors.As(err, &f) && f.why == causeRefused:
		return socksNoServer
	case errors.As(err, &f) && f.why == causeBusy:
		return socksFailure
	}
	return socksNoRoute
}
