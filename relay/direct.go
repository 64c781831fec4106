package relay

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/sandboxrun/sandboxrun/relay/pipe"
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

// direct serves a connection of a program that uses no proxy. The program resolved a name by dns, got an address that stands for that name
// alone, and connected to it. So the local address and port identify the host, as CONNECT would. A refusal is a reset.
func (s *server) direct(ctx context.Context, port int, local netip.Addr, in *net.TCPConn) {
	ev := Event{Time: time.Now(), Kind: "direct", Port: port}
	host, ok := s.names.host(local)
	if !ok {
		pipe.Reset(in)
		ev.Host = local.Unmap().String()
		s.events.end(ev, Refused, "no name has this address")
		return
	}
	out, d, err := s.connect(ctx, host, port)
	ev.decided(d)
	if err != nil {
		s.events.answered(ev, err, func() { pipe.Reset(in) })
		return
	}
	ev.Up, ev.Down, err = pipe.Join(ctx, in, out, s.guardName(d.Host, d.Port, bufio.NewReaderSize(in, readAhead)), nil)
	s.events.endWith(ev, err)
}
