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
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/netpolicy"
)

// Kinds of listeners.
const (
	Forward = "forward" // a TCP port that stands for one target outside
	Proxy   = "proxy"   // HTTP/1.1 proxy with CONNECT, and SOCKS5, on one port
	DNS     = "dns"     // a UDP socket
	DNSTCP  = "dns-tcp" // the same over TCP
	Direct  = "direct"  // connections to the addresses that dns made up
)

// Listener says what the i-th inherited descriptor is for.
type Listener struct {
	Kind   string `json:"kind"`
	Port   int    `json:"port"`             // inside
	Target string `json:"target,omitempty"` // forward: "127.0.0.1:9001", "[::1]:9001" or "unix:/run/pg.sock"
	Socket string `json:"socket,omitempty"` // of a target "unix:": its path with every link resolved; empty: as in Target

	// Of a direct listener, which takes all addresses of its port: what some of them are for, by the address. Sockets of
	// their own would need SO_REUSEPORT, and let programs listen there too.
	At map[netip.Addr]Listener `json:"at,omitempty"`
}

// Config configures a relay. A field that is zero has its default.
type Config struct {
	Sandbox   string           `json:"sandbox"`
	Policy    netpolicy.Policy `json:"policy"`
	Listeners []Listener       `json:"listeners"`
	Limits    Limits           `json:"limits"`

	// Upstream has passwords in it: it goes through a pipe, and is written nowhere.
	Upstream *netpolicy.Upstream `json:"upstream,omitempty"`

	// The rest is for tests.

	Judge   Judge                                                             `json:"-"` // default: the compiled Policy
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error) `json:"-"` // default: net.Dialer's
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)      `json:"-"` // default: net.Resolver's
	Own     func() ([]netip.Addr, error)                                      `json:"-"` // default: of net.InterfaceAddrs
}

// Judge decides on connections. netpolicy.Rules implements it.
type Judge interface {
	Name(host string, port int) netpolicy.Decision
	Address(d netpolicy.Decision, addr netip.Addr, own []netip.Addr) netpolicy.Decision
	Known(host string) bool
	Proxy(u *netpolicy.Upstream, d netpolicy.Decision, plainHTTP bool) *netpolicy.Proxy
}

// Limits bound the resources that a program can make the relay use. A tunnel may be open or idle without a bound.
type Limits struct {
	Conns  int           `json:"conns"`  // connections from inside at once, default 1024; fewer where RLIMIT_NOFILE is low
	Dials  int           `json:"dials"`  // hosts being resolved and dialed at once, default 64; further ones wait
	Names  int           `json:"names"`  // host names that get an address from dns, default 8192
	Head   int           `json:"head"`   // bytes of an HTTP request's head, default 64 KiB
	Dial   time.Duration `json:"dial"`   // for the wait, resolving and dialing together, default 10 s
	Header time.Duration `json:"header"` // for a request's head, or SOCKS' negotiation, to arrive in, default 30 s
	Idle   time.Duration `json:"idle"`   // between the requests of a kept connection, default 5 min

	// CPU is how much processor time the relay takes for its program, in seconds of a second; 0 is no limit.
	CPU float64 `json:"cpu,omitempty"`

	unbraked bool // refusals are answered at any rate
}

func (l Limits) withDefaults() Limits {
	l.Conns = orElse(l.Conns, 1024)
	l.Dials = orElse(l.Dials, 64)
	l.Names = orElse(l.Names, 8192)
	l.Head = orElse(l.Head, 64<<10)
	l.Dial = orElse(l.Dial, 10*time.Second)
	l.Header = orElse(l.Header, 30*time.Second)
	l.Idle = orElse(l.Idle, 5*time.Minute)
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		l.Conns = fit(l.Conns, files.Cur)
	}
	return l
}

// fit gives how many connections so many descriptors are enough for: each takes two, and two more for the pipe of each
// direction that is being spliced.
func fit(conns int, files uint64) int {
	const spare = 100
	most := uint64(8)
	if files > spare+6*most {
		most = (files - spare) / 6
	}
	return int(min(uint64(conns), most))
}

func orElse[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// server is a running relay.
type server struct {
	cfg         Config
	lim         Limits
	judge       Judge
	slots       chan struct{} // one for each connection from inside
	dials       chan struct{} // one for each dial
	busy        chan struct{} // one for each client that gets a 503
	names       *names
	own         ownAddresses
	refusals    refusals
	queries     brake // of refused DNS queries
	pace        pacer
	busyReplies sync.WaitGroup // goroutines that answer 503
	events      eventSink
	rest        *time.Timer // until tidy
	pool        sync.Pool   // of *[]byte, copyBuffer long
}

// copyBuffer is the size in bytes of a buffer for bodies that splice(2) cannot copy.
const copyBuffer = 32 << 10

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
	s.events.brake.off, s.queries.off = s.lim.unbraked, s.lim.unbraked
	s.pace = pacer{share: s.lim.CPU, used: processorTime}
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
			shut(c)
			return d, errors.New("it is no UDP socket")
		}
	case Forward, Proxy, DNSTCP, Direct:
		c, err := net.FileListener(f)
		if err != nil {
			return d, err
		}
		var ok bool
		if d.tcp, ok = c.(*net.TCPListener); !ok {
			shut(c)
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
			shut(d.tcp)
		} else {
			shut(d.udp)
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
