// Package relay forwards ports and proxies hosts for one sandbox. It runs in a process of its own outside the sandbox. The launcher
// gives it listening sockets that were made in the sandbox's empty network namespace. The relay accepts connections there, asks
// netpolicy, dials outside and copies. It never enters the sandbox, and a program can reach nothing of it but those sockets.
//
//	inside                          the relay, outside
//	program ── 127.0.0.1:9000 ─── forward ─────────────────────────────────── 127.0.0.1:9001, or a Unix socket
//	        ── 127.0.0.1:PORT ─── proxy: HTTP, CONNECT, SOCKS5 ── netpolicy ── the host that was asked for
//	        ── 127.0.0.53:53 ──── dns: 127.77.x.y for allowed names, sends no query
//	        ── 127.77.x.y:443 ─── direct: which name is 127.77.x.y? ─ netpolicy ── that host
//
// All bytes from inside are hostile. Servers outside are not trusted either, but the policy allows them.
//
// Here is what needs the policy: which connections are allowed, and the events of each. What needs no policy is in packages of its own:
// http1 reads and writes heads and bodies, tlsname reads the server name of a ClientHello, pipe copies between two connections, pace
// delays a program that makes much work. server.go has what all connections share; it needs no file of those that serve them.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pace"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// Serve runs the relay until ctx ends or all listeners have failed. It leaves no connection, descriptor or goroutine behind. It closes
// the files: files[i] is the socket of cfg.Listeners[i]. It calls note for each event, from one goroutine at a time; connections wait
// until note returns.
func Serve(ctx context.Context, cfg Config, files []*os.File, note func(Event)) error {
	listening, err := open(cfg.Listeners, files)
	if err != nil {
		return err
	}
	defer listening.close()
	s, err := newServer(cfg, note)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.events.ctx = ctx
	stop := context.AfterFunc(ctx, listening.close)
	defer stop()
	var wg sync.WaitGroup
	errs := make([]error, len(listening))
	for i, d := range listening {
		wg.Go(func() {
			if err := s.serve(ctx, d); err != nil {
				errs[i] = fmt.Errorf("serve %s of port %d: %w", d.Kind, d.Port, err)
			}
		})
	}
	wg.Wait()
	s.busyReplies.Wait()
	s.rest.Stop()
	return errors.Join(errs...)
}

func newServer(cfg Config, note func(Event)) (*server, error) {
	s := &server{cfg: cfg, lim: cfg.Limits.withDefaults(), judge: cfg.Judge}
	if s.judge == nil {
		rules, err := netpolicy.Compile(&cfg.Policy)
		if err != nil {
			return nil, fmt.Errorf("compile policy: %w", err)
		}
		s.judge = rules
	}
	if s.cfg.Dial == nil {
		s.cfg.Dial = (&net.Dialer{}).DialContext
	}
	if s.cfg.Resolve == nil {
		s.cfg.Resolve = resolve
	}
	if s.cfg.Own == nil {
		s.cfg.Own = interfaceAddresses
	}
	if note == nil {
		note = func(Event) {}
	}
	s.events.note, s.events.ctx = note, context.Background()
	s.events.brake.Off, s.queries.Off = s.lim.unbraked, s.lim.unbraked
	s.pace = pace.Pacer{Share: s.lim.CPU, Used: pace.ProcessorTime}
	s.slots = make(chan struct{}, s.lim.Conns)
	s.dials = make(chan struct{}, s.lim.Dials)
	s.busy = make(chan struct{}, maxBusy)
	s.rest = time.AfterFunc(restAfter, s.tidy)
	s.names = newNames(s.lim.Names)
	s.pool.New = func() any { b := make([]byte, copyBuffer); return &b }
	return s, nil
}

// listenSocket is an inherited socket. Exactly one of tcp and udp is set.
type listenSocket struct {
	Listener
	tcp *net.TCPListener
	udp *net.UDPConn
}

type listenSockets []listenSocket

// open makes listeners from the files, and closes the files because the listeners hold duplicates.
func open(listeners []Listener, files []*os.File) (listenSockets, error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if len(listeners) != len(files) {
		return nil, fmt.Errorf("open listeners: %d of them, but %d descriptors", len(listeners), len(files))
	}
	var listening listenSockets
	for i, l := range listeners {
		d, err := openOne(l, files[i])
		if err != nil {
			listening.close()
			return nil, fmt.Errorf("open listener %d, %s of port %d: %w", i, l.Kind, l.Port, err)
		}
		listening = append(listening, d)
	}
	return listening, nil
}

func openOne(l Listener, f *os.File) (listenSocket, error) {
	d := listenSocket{Listener: l}
	switch l.Kind {
	case DNS:
		c, err := net.FilePacketConn(f)
		if err != nil {
			return d, err
		}
		var ok bool
		if d.udp, ok = c.(*net.UDPConn); !ok {
			pipe.Shut(c)
			return d, errors.New("it is no UDP socket")
		}
	case Forward, Proxy, DNSTCP, Direct:
		c, err := net.FileListener(f)
		if err != nil {
			return d, err
		}
		var ok bool
		if d.tcp, ok = c.(*net.TCPListener); !ok {
			pipe.Shut(c)
			return d, errors.New("it is no TCP socket")
		}
	default:
		return d, errors.New("there is no such kind")
	}
	return d, nil
}

func (ds listenSockets) close() {
	for _, d := range ds {
		if d.tcp != nil {
			pipe.Shut(d.tcp)
		} else {
			pipe.Shut(d.udp)
		}
	}
}

func (s *server) serve(ctx context.Context, d listenSocket) error {
	switch d.Kind {
	case Forward:
		f := newForward(d.Listener)
		return s.accept(ctx, d.tcp, wait, func(ctx context.Context, c *net.TCPConn) { s.forward(ctx, f, c) })
	case Proxy:
		return s.accept(ctx, d.tcp, s.tooBusy, s.proxy)
	case Direct:
		return s.accept(ctx, d.tcp, wait, s.byAddress(d.Listener))
	case DNSTCP:
		return s.accept(ctx, d.tcp, wait, s.dnsTCP)
	}
	return s.dnsUDP(ctx, d.udp)
}
