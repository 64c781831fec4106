package relay

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// maxAddresses bounds the addresses of one host that are judged and dialed, because the owner of a name can give it thousands.
const maxAddresses = 16

// connect makes an allowed connection to a host. The name is resolved once, every address is judged, and the connection goes to
// the very address that was: a name that resolves to something else a moment later (DNS rebinding) gains nothing. The
// decision is good for an event, whatever the error. The error is a *refusal or a *failure.
func (s *server) connect(ctx context.Context, host string, port int) (pipe.Stream, netpolicy.Decision, error) {
	d := s.judge.Name(host, port)
	return s.connectBy(ctx, d, s.judge.Proxy(s.cfg.Upstream, d, false), false)
}

// connectBy connects to a host whose name was judged, through proxy unless that is nil. plain is passed to through.
func (s *server) connectBy(ctx context.Context, d netpolicy.Decision, proxy *netpolicy.Proxy, plain bool) (pipe.Stream, netpolicy.Decision, error) {
	if !d.Allow {
		return nil, d, refuse(d)
	}
	ctx, cancel := context.WithTimeout(ctx, s.lim.Dial)
	defer cancel()
	select {
	case s.dials <- struct{}{}:
		defer func() { <-s.dials }()
	case <-ctx.Done():
		return nil, d, &failure{causeBusy, d.Host, d.Port}
	}
	var addrs []netip.Addr
	var err error
	if proxy == nil || isAddress(d.Host) {
		if addrs, d, err = s.addresses(ctx, d); err != nil {
			return nil, d, err
		}
	}
	if proxy != nil {
		d.Via = proxy.Address
		c, err := s.through(ctx, proxy, d, plain)
		return c, d, err
	}
	c, err := s.dialFirst(ctx, addrs, d.Port, &d.Address)
	if err != nil {
		return nil, d, &failure{causeOf(err), d.Host, d.Port}
	}
	return c, d, nil
}

// addresses resolves an allowed host and returns the addresses that the rules allow. If the rules refuse all of them, it returns the
// decision on the first.
func (s *server) addresses(ctx context.Context, d netpolicy.Decision) ([]netip.Addr, netpolicy.Decision, error) {
	var found []netip.Addr
	var err error
	if a, e := netip.ParseAddr(d.Host); e == nil {
		found = []netip.Addr{a}
	} else if found, err = s.cfg.Resolve(ctx, d.Host); err != nil {
		return nil, d, &failure{causeOf(err), d.Host, d.Port}
	}
	if len(found) == 0 {
		return nil, d, &failure{causeNoHost, d.Host, d.Port}
	}
	own, err := s.own.get(s.cfg.Own)
	if err != nil {
		return nil, d, &failure{causeUnreachable, d.Host, d.Port} // without the list of own addresses none can be allowed
	}
	var good []netip.Addr
	var no *netpolicy.Decision
	for _, a := range found[:min(len(found), maxAddresses)] {
		switch judged := s.judge.Address(d, a, own); {
		case judged.Allow:
			good = append(good, judged.Address)
		case no == nil:
			no = &judged
		}
	}
	if len(good) == 0 {
		return nil, *no, refuse(*no)
	}
	return good, d, nil
}

// dialFirst dials addresses in order and sets last to the one that it dialed last. Each gets an equal share of the time that is left.
func (s *server) dialFirst(ctx context.Context, addrs []netip.Addr, port int, last *netip.Addr) (c pipe.Stream, err error) {
	for i, a := range addrs {
		*last = a
		if c, err = s.dialOne(ctx, a, port, len(addrs)-i); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func (s *server) dialOne(ctx context.Context, a netip.Addr, port, left int) (pipe.Stream, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return s.dial(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(port)))
}

// dial connects to an address that was judged, or that the policy forwards to.
func (s *server) dial(ctx context.Context, network, addr string) (pipe.Stream, error) {
	c, err := s.cfg.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	st, ok := c.(pipe.Stream)
	if !ok {
		pipe.Shut(c)
		return nil, fmt.Errorf("dial %s: a %T cannot be half-closed", addr, c)
	}
	return st, nil
}

// resolve asks the host's resolver, and /etc/hosts, for a name that is absolute. Without the dot the resolver would ask for a
// name that does not exist once more, below each of the host's search domains, and the program would be connected to a host
// that no rule names.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if !strings.Contains(host, ".") { // Go does not find "localhost." in /etc/hosts
		files := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }}
		if found, err := files.LookupNetIP(ctx, "ip", host); err == nil {
			return found, nil
		}
	}
	r := net.Resolver{PreferGo: true} // the binary is static
	return r.LookupNetIP(ctx, "ip", host+".")
}
