package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Relay describes the relay of a sandbox: its rules, and the sockets on which it listens inside.
type Relay struct {
	Policy    netpolicy.Policy `json:"policy"`
	Listeners []Listener       `json:"doors"`
	Upstream  []string         `json:"upstream_proxy,omitempty"` // without user and password

	// Proxies are the upstream proxies with user and password: they go to the relay's process and nowhere else.
	Proxies *netpolicy.Upstream `json:"-"`
}

// Listener is one listening socket of the relay in the sandbox's network namespace. The kinds are those of package relay.
type Listener struct {
	Kind   string         `json:"kind"`
	Listen netip.AddrPort `json:"listen"`
	Target string         `json:"target,omitempty"` // of a forward: "127.0.0.1:9001" or "unix:/run/pg.sock"
	Socket string         `json:"socket,omitempty"` // of a target "unix:": its path with every symlink resolved

	// Of a forward: the key of the policy that asks for it, its place, and for network.env_urls the variable with its URL.
	Key      string `json:"key,omitempty"`
	From     string `json:"from,omitempty"`
	Variable string `json:"variable,omitempty"`
}

// Kinds of listeners.
const (
	ListenForward = "forward"
	ListenProxy   = "proxy"
	ListenDNS     = "dns"
	ListenDNSTCP  = "dns-tcp"
	ListenDirect  = "direct"
)

const (
	lowPorts  = 1024 // ports below are privileged; if the relay listens on one of them, programs can listen on none
	proxyPort = 3128 // squid's port; if it is taken, the next free one
	dnsPort   = 53
	// ConnectPath is the path of this binary inside, for sandboxrun proxy-connect.
	ConnectPath = "/.sandboxrun"
)

// Resolver is the address of the name server inside. It is the address of systemd-resolved, which programs know.
func Resolver() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 53}) }

func loopback() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

// proxied reports whether a mode allows hosts through the relay.
func proxied(mode string) bool { return mode == netpolicy.Allowlist || mode == netpolicy.Public }

// network plans the relay, the environment variables that name its proxy, and warnings. The error is a *fault.Error.
func network(p *policy.Policy, h *Host, plan *Plan) error {
	n := &p.Network
	if n.Mode == netpolicy.Host {
		plan.Warnings = append(plan.Warnings, "network: the program has the host's own network and every service on it")
		return nil
	}
	list := forwards(p, plan.Exec.Passed(h.Env, h.ExecEnv))
	r := &Relay{Policy: *n}
	for _, f := range list {
		if name, ok := strings.CutPrefix(f.target, "unix:"); ok {
			var err error
			if f.socket, err = plan.View.Follower(h.Tree)(f.from+": "+f.key, name); err != nil {
				return err
			}
		}
		r.Listeners = append(r.Listeners, f.listeners()...)
	}
	if n.UpstreamProxy != "" && !proxied(n.Mode) {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("network.upstream_proxy has no effect: network.mode is %q", n.Mode))
	}
	if proxied(n.Mode) {
		if err := r.upstream(p, h.Env); err != nil {
			return err
		}
		r.proxy(n, list, plan)
		r.hideSecrets(&plan.Exec, h)
	} else if hosts := remote(n); len(hosts) > 0 {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("network.mode = %q: %s cannot be reached; network.mode = \"allowlist\" lets the "+
			"hosts of allowed_hosts and services be reached", n.Mode, hosts[0]))
	}
	if len(r.Listeners) > 0 {
		plan.Relay = r
	}
	plan.LowPorts = !slices.ContainsFunc(r.Listeners, func(d Listener) bool { return d.Listen.Port() < lowPorts })
	return nil
}

// sockets warns of Unix sockets of the host in granted directories, because no namespace keeps a program from a socket that it
// sees. A socket that is granted by its own path gets no warning. (deer-flow#5145, moby#14767)
func sockets(h *Host, plan *Plan) {
	const most = 5
	named := map[string]bool{}
	for _, m := range plan.View.Mounts {
		named[m.Source] = true
	}
	var seen []string
	names := plan.View.Names()
	for _, socket := range h.Sockets {
		if !named[socket] {
			seen = append(seen, names(socket)...)
		}
	}
	for i, name := range seen {
		if i == most {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("files: %d more sockets of the host are in granted directories", len(seen)-most))
			return
		}
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("files: the program can talk to the service that listens on the socket %s, "+
			"which a granted directory shows; files.deny hides it", name))
	}
}

// remote lists the hosts of a policy that are not on the loopback.
func remote(n *netpolicy.Policy) []string {
	hosts := slices.Clone(n.AllowedHosts)
	for _, s := range n.Services {
		if svc, err := netpolicy.ParseService(s); err == nil && !svc.Loopback() {
			hosts = append(hosts, s)
		}
	}
	return hosts
}

// proxy adds the proxy and, for programs that ignore proxy variables, the resolver and a socket for each allowed port.
func (r *Relay) proxy(n *netpolicy.Policy, forwards []forward, plan *Plan) {
	rules, err := netpolicy.Compile(n)
	if err != nil {
		return // cannot happen, because the loader has compiled them; without rules the relay allows nothing
	}
	ports := rules.Ports()
	taken := func(p int) bool {
		return slices.Contains(ports, p) || slices.ContainsFunc(forwards, func(f forward) bool { return f.port == p })
	}
	port := proxyPort
	for taken(port) {
		port++
	}
	r.listen(ListenProxy, loopback(), port)
	if n.Transparent {
		r.listen(ListenDNS, Resolver(), dnsPort)
		r.listen(ListenDNSTCP, Resolver(), dnsPort)
		for _, p := range ports {
			r.listen(ListenDirect, netip.IPv4Unspecified(), p)
		}
	}
	setProxyVariables(&plan.Exec, port, hasConnector(plan.View))
}

// upstream finds the proxy of the caller's network.
func (r *Relay) upstream(p *policy.Policy, env map[string]string) error {
	u, err := netpolicy.FindUpstream(&p.Network, env)
	if err != nil {
		return fault.New(fault.PolicyInvalid, "set the variable to http://HOST:PORT or socks5://HOST:PORT, or name such a proxy in the policy",
			"%s", p.Place("network.upstream_proxy", p.Network.UpstreamProxy)+": network.upstream_proxy: "+err.Error())
	}
	r.Proxies = u
	for _, proxy := range u.Proxies() {
		r.Upstream = append(r.Upstream, proxy.String())
	}
	return nil
}

// hideSecrets takes the upstream proxies' user and password out of what the policy lets pass of the caller's variables: others than the
// proxy variables, which lead to the relay, may have them too.
func (r *Relay) hideSecrets(e *Exec, h *Host) {
	for name, value := range e.Passed(h.Env, h.ExecEnv) {
		scheme, rest, ok := strings.Cut(value, "://")
		if !ok {
			scheme, rest = "http", value
		}
		if u, err := url.Parse(scheme + "://" + rest); err == nil && h.Env[name] == value && u.User != nil && r.knows(u.User) {
			if e.EnvSet == nil {
				e.EnvSet = map[string]string{}
			}
			e.EnvSet[name] = strings.TrimSuffix(value, rest) + rest[strings.LastIndexByte(rest, '@')+1:]
		}
	}
}

func (r *Relay) knows(user *url.Userinfo) bool {
	password, _ := user.Password()
	return slices.ContainsFunc(r.Proxies.Proxies(), func(p *netpolicy.Proxy) bool { return p.Secret() == user.Username()+":"+password })
}

// ports are the ports on which the relay listens on 127.0.0.1.
func (r *Relay) ports() []uint16 {
	var list []uint16
	if r == nil {
		return list
	}
	for _, d := range r.Listeners {
		a := d.Listen.Addr()
		if d.Kind != ListenDNS && (a == loopback() || a == netip.IPv4Unspecified()) && !slices.Contains(list, d.Listen.Port()) {
			list = append(list, d.Listen.Port())
		}
	}
	return list
}

func (r *Relay) listen(kind string, a netip.Addr, port int) {
	r.Listeners = append(r.Listeners, Listener{Kind: kind, Listen: netip.AddrPortFrom(a, uint16(port))})
}

// setProxyVariables sets the variables that name the proxy. They override the caller's, because the caller's proxy cannot be
// reached inside. env.set of the policy overrides them.
func setProxyVariables(e *Exec, port int, ssh bool) {
	proxy := "http://127.0.0.1:" + strconv.Itoa(port)
	const direct = "localhost,127.0.0.1,::1"
	env := map[string]string{
		"HTTP_PROXY": proxy, "http_proxy": proxy, "HTTPS_PROXY": proxy, "https_proxy": proxy, "ALL_PROXY": proxy, "all_proxy": proxy,
		"NO_PROXY": direct, "no_proxy": direct, "NODE_USE_ENV_PROXY": "1",
	}
	if ssh {
		env["GIT_SSH_COMMAND"] = "ssh -o ProxyCommand='" + ConnectPath + " proxy-connect %h %p'"
	}
	maps.Copy(env, e.EnvSet)
	e.EnvSet = env
}

// connector is the bind that shows this binary, for proxy-connect, in sandboxes where ssh reaches hosts only through the proxy:
// in mode public, and without transparent.
func connector(n *netpolicy.Policy, self string) *rootfs.Bind {
	if self == "" || n.Mode != netpolicy.Public && (n.Mode != netpolicy.Allowlist || n.Transparent) {
		return nil
	}
	return &rootfs.Bind{Source: self, Target: ConnectPath, From: rootfs.FromDefault}
}

func hasConnector(v *rootfs.View) bool {
	return slices.ContainsFunc(v.Mounts, func(m rootfs.Mount) bool { return m.Target == ConnectPath && m.From == rootfs.FromDefault })
}

// forward is a loopback port inside that the relay forwards.
type forward struct {
	addr     netip.Addr // its address inside; 127.0.0.1 means ::1 too
	port     int
	target   string
	socket   string
	key      string
	from     string
	variable string
}

func (f forward) listeners() []Listener {
	addrs := []netip.Addr{f.addr}
	if f.addr == loopback() {
		addrs = append(addrs, netip.IPv6Loopback())
	}
	list := make([]Listener, 0, len(addrs))
	for _, a := range addrs {
		list = append(list, Listener{
			Kind: ListenForward, Listen: netip.AddrPortFrom(a, uint16(f.port)), Target: f.target, Socket: f.socket, Key: f.key, From: f.from,
			Variable: f.variable,
		})
	}
	return list
}

// forwards are the ports of the policy, then those of its services on the loopback, then those of loopback URLs in the program's
// environment. The first of two entries for one port counts.
func forwards(p *policy.Policy, env map[string]string) []forward {
	var list []forward
	for _, port := range p.Network.Ports {
		list = append(list, forward{addr: loopback(), port: port.Inside, target: port.Outside, key: "network.ports", from: rootfs.PlaceOf(port.From)})
	}
	for _, s := range p.Network.Services {
		list = addService(list, s, forward{key: "network.services", from: p.Place("network.services", s)})
	}
	if !p.Network.EnvURLs {
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if u, err := url.Parse(env[name]); err == nil {
			u.User = nil // user name and password are for the program only
			list = addService(list, u.String(), forward{key: "network.env_urls", variable: name})
		}
	}
	return list
}

// addService adds the port of a URL, if that is on the loopback and not forwarded already.
func addService(list []forward, text string, f forward) []forward {
	svc, err := netpolicy.ParseService(text)
	if err != nil || !svc.Loopback() {
		return list
	}
	f.addr, f.port = loopback(), svc.Port
	target := loopback()
	if a, err := netip.ParseAddr(svc.Host); err == nil {
		target = a
		if a != netip.IPv6Loopback() { // 127.0.0.1 means ::1 too
			f.addr = a
		}
	}
	f.target = netip.AddrPortFrom(target, uint16(svc.Port)).String()
	if slices.ContainsFunc(list, func(o forward) bool { return o.addr == f.addr && o.port == f.port }) {
		return list
	}
	return append(list, f)
}
