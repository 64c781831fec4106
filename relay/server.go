package relay

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pace"
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
	queries     pace.Brake // of refused DNS queries
	pace        pace.Pacer
	busyReplies sync.WaitGroup // goroutines that answer 503
	events      eventSink
	rest        *time.Timer // until tidy
	pool        sync.Pool   // of *[]byte, copyBuffer long
}

// copyBuffer is the size in bytes of a buffer for bodies that splice(2) cannot copy.
const copyBuffer = 32 << 10
