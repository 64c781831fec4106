package relay

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"time"
)

// direct serves a connection of a program that knows of no proxy: it asked dns for a name, got an address that only means that
// name, and connected to it. Its address and the port say all that a CONNECT would. There is no way to say no but a reset.
func (s *server) direct(ctx context.Context, port int, in *net.TCPConn) {
	ev := Event{Time: time.Now(), Kind: "direct", Port: port}
	local, _ := netip.ParseAddrPort(in.LocalAddr().String()) // where it cannot be read it is nobody's
	host, ok := s.names.host(local.Addr())
	if !ok {
		reset(in)
		ev.Host = local.Addr().Unmap().String()
		s.notes.end(ev, Refused, "no name has this address")
		return
	}
	out, d, err := s.connect(ctx, host, port)
	ev.decided(d)
	if err != nil {
		reset(in)
		s.notes.endWith(ev, err)
		return
	}
	ev.Up, ev.Down, err = join(ctx, in, out, s.guardName(d.Host, d.Port, bufio.NewReaderSize(in, readAhead)), nil)
	s.notes.endWith(ev, err)
}
