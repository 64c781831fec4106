package relay

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"time"
)

// byAddress serves the connections to a port on all addresses.
func (s *server) byAddress(l Listener) func(context.Context, *net.TCPConn) {
	others := map[netip.Addr]func(context.Context, *net.TCPConn){}
	for at, other := range l.At {
		switch other.Kind {
		case Forward:
			f := newForward(other)
			others[at] = func(ctx context.Context, c *net.TCPConn) { s.forward(ctx, f, c) }
		case DNSTCP:
			others[at] = s.dnsTCP
		}
	}
	return func(ctx context.Context, c *net.TCPConn) {
		local, _ := netip.ParseAddrPort(c.LocalAddr().String()) // where it cannot be read it is nobody's
		if other := others[local.Addr().Unmap()]; other != nil {
			other(ctx, c)
			return
		}
		s.direct(ctx, l.Port, local.Addr(), c)
	}
}

// direct serves a connection of a program that knows of no proxy: it asked dns for a name, got an address that only means that
// name, and connected to it. Its address and the port say all that a CONNECT would. There is no way to say no but a reset.
func (s *server) direct(ctx context.Context, port int, local netip.Addr, in *net.TCPConn) {
	ev := Event{Time: time.Now(), Kind: "direct", Port: port}
	host, ok := s.names.host(local)
	if !ok {
		reset(in)
		ev.Host = local.Unmap().String()
		s.notes.end(ev, Refused, "no name has this address")
		return
	}
	out, d, err := s.connect(ctx, host, port)
	ev.decided(d)
	if err != nil {
		s.notes.answered(ev, err, func() { reset(in) })
		return
	}
	ev.Up, ev.Down, err = join(ctx, in, out, s.guardName(d.Host, d.Port, bufio.NewReaderSize(in, readAhead)), nil)
	s.notes.endWith(ev, err)
}
