package netpolicy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// FromEnvironment is the upstream_proxy that stands for the caller's proxy variables.
const FromEnvironment = "environment"

// Schemes of a Proxy.
const (
	ProxyHTTP  = "http"
	ProxySOCKS = "socks5"
)

// Proxy is a proxy of the caller's network. Its user and password are in nothing that is printed or kept.
type Proxy struct {
	Scheme   string `json:"scheme"`
	Address  string `json:"address"` // "host:port"
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// String writes the proxy without its user and password.
func (p *Proxy) String() string { return p.Scheme + "://" + p.Address }

// Secret is the proxy's user and password; "" where it takes none.
func (p *Proxy) Secret() string {
	if p.User == "" && p.Password == "" {
		return ""
	}
	return p.User + ":" + p.Password
}

// ParseProxy reads "http://[USER:PASSWORD@]HOST[:PORT]", or socks5. No error has the user or the password in it.
func ParseProxy(s string) (*Proxy, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("parse proxy: want http://HOST:PORT or socks5://HOST:PORT")
	}
	p := &Proxy{Scheme: u.Scheme}
	port := "80"
	switch p.Scheme {
	case ProxyHTTP:
	case ProxySOCKS, "socks5h": // names are the proxy's to resolve in both
		p.Scheme, port = ProxySOCKS, "1080"
	default:
		return nil, fmt.Errorf("parse proxy: its scheme is %q: want http or socks5; the relay speaks no TLS to a proxy", p.Scheme)
	}
	host, err := ParseHost(u.Host)
	if err != nil || host.Wildcard {
		return nil, errors.New("parse proxy: it names no host and port to connect to")
	}
	if host.Port != 0 {
		port = fmt.Sprint(host.Port)
	}
	if p.Address = host.Name + ":" + port; strings.Contains(host.Name, ":") {
		p.Address = "[" + host.Name + "]:" + port
	}
	p.User = u.User.Username()
	p.Password, _ = u.User.Password()
	if len(p.User) > 255 || len(p.Password) > 255 || strings.Contains(p.User, ":") {
		return nil, errors.New("parse proxy: its user or password is longer than 255 bytes, or the user has a colon")
	}
	return p, nil
}

// Upstream holds the proxies that the relay reaches hosts through.
type Upstream struct {
	HTTP    *Proxy   `json:"http,omitempty"`   // for requests of plain HTTP
	Tunnel  *Proxy   `json:"tunnel,omitempty"` // for everything else
	NoProxy []string `json:"no_proxy,omitempty"`
}

// Proxies lists the proxies, each once.
func (u *Upstream) Proxies() []*Proxy {
	var list []*Proxy
	if u != nil && u.Tunnel != nil {
		list = append(list, u.Tunnel)
	}
	if u != nil && u.HTTP != nil && (u.Tunnel == nil || *u.HTTP != *u.Tunnel) {
		list = append(list, u.HTTP)
	}
	return list
}

// FindUpstream returns the upstream proxies of a policy; nil if it has none. It reads the proxy variables of env if the policy says so.
// User and password of a proxy that the policy names come from these variables too. An error has the name of a variable, not its value.
func FindUpstream(p *Policy, env map[string]string) (*Upstream, error) {
	u := &Upstream{NoProxy: p.NoProxy}
	switch p.UpstreamProxy {
	case "":
		return nil, nil
	case FromEnvironment:
		var err1, err2 error
		u.HTTP, err1 = proxyOf(env, "http_proxy", "all_proxy")
		u.Tunnel, err2 = proxyOf(env, "https_proxy", "all_proxy")
		for text := range strings.SplitSeq(variable(env, "no_proxy"), ",") {
			if text = strings.TrimSpace(text); CheckNoProxy(text) == nil {
				u.NoProxy = append(u.NoProxy, text)
			}
		}
		return u, errors.Join(err1, err2)
	}
	named, err := ParseProxy(p.UpstreamProxy)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"https_proxy", "http_proxy", "all_proxy"} {
		if other, err := proxyOf(env, name); err == nil && other != nil && other.String() == named.String() && named.Secret() == "" {
			named = other
		}
	}
	u.HTTP, u.Tunnel = named, named
	return u, nil
}

func variable(env map[string]string, name string) string {
	return cmp.Or(env[name], env[strings.ToUpper(name)])
}

// proxyOf reads the first of some variables that is set.
func proxyOf(env map[string]string, names ...string) (*Proxy, error) {
	for _, name := range names {
		text := variable(env, name)
		if text == "" {
			continue
		}
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		p, err := ParseProxy(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.ToUpper(name), err)
		}
		return p, nil
	}
	return nil, nil
}

// exception is an entry of NO_PROXY.
type exception struct {
	all    bool
	prefix netip.Prefix
	name   string // with all names below it
	below  bool   // without itself
	port   int    // 0: any
}

// CheckNoProxy returns the fault of an entry of NO_PROXY, which is "*", a name, ".suffix", "*.suffix", an address, or a range of addresses;
// with ":PORT" for one port alone.
func CheckNoProxy(s string) error {
	_, err := parseException(s)
	return err
}

func parseException(s string) (exception, error) {
	if s == "*" {
		return exception{all: true}, nil
	}
	if prefix, err := netip.ParsePrefix(s); err == nil {
		return exception{prefix: prefix.Masked()}, nil
	}
	rest, below := strings.CutPrefix(s, ".")
	p, err := ParseHost(rest)
	if err != nil {
		return exception{}, fmt.Errorf("parse no_proxy %q: want \"*\", a host, .SUFFIX, an address or ADDRESS/BITS", s)
	}
	e := exception{name: p.Name, below: below || p.Wildcard, port: p.Port}
	if a, err := netip.ParseAddr(p.Name); err == nil {
		e.prefix = netip.PrefixFrom(a, a.BitLen())
	}
	return e, nil
}

func (e *exception) holds(d Decision) bool {
	if e.port != 0 && e.port != d.Port {
		return false
	}
	if a, err := netip.ParseAddr(d.Host); err == nil {
		return e.all || e.prefix.IsValid() && e.prefix.Contains(a)
	}
	return e.all || d.Host == e.name && !e.below || strings.HasSuffix(d.Host, "."+e.name)
}

// Proxy returns the proxy for an allowed connection; nil if the connection goes directly, to an address that Address judges.
//
// A proxy resolves names in its own network, so no address can be judged here. For that reason only hosts that should be public go
// through a proxy. These go directly, because the policy means the network of this machine: names that have a meaning in one network
// alone, addresses that are not public, and hosts of allow_private.
func (r *Rules) Proxy(u *Upstream, d Decision, plainHTTP bool) *Proxy {
	if u == nil || !d.Allow || r.mode == Host {
		return nil
	}
	p := u.Tunnel
	if plainHTTP {
		p = u.HTTP
	}
	if p == nil || !r.expectedPublic(d.Host) {
		return nil
	}
	for _, text := range u.NoProxy {
		if e, err := parseException(text); err != nil || e.holds(d) {
			return nil
		}
	}
	return p
}

func (r *Rules) expectedPublic(host string) bool {
	for _, p := range r.private {
		if p.names(host) {
			return false
		}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return kind(a) == ""
	}
	return !isLocal(host)
}
