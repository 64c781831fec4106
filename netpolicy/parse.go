package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Pattern is an allowed host: a name, every name below a suffix, or an IP address.
type Pattern struct {
	Name     string // lower case, ASCII, without a trailing dot; an address without brackets
	Wildcard bool   // every name that ends in "." + Name, but not Name itself
	Port     int    // 0 means 443 and 80
}

// String writes the pattern as ParseHost reads it.
func (p Pattern) String() string {
	s := p.Name
	switch {
	case strings.Contains(s, ":"):
		s = "[" + s + "]"
	case p.Wildcard:
		s = "*." + s
	}
	if p.Port != 0 {
		s += ":" + strconv.Itoa(p.Port)
	}
	return s
}

// ParseHost reads "host[:port]", "*.suffix[:port]" or an IP address, an IPv6 one with a port in brackets.
// Names are compared without case, without a trailing dot and in their ASCII form ("xn--..."), so they are returned so.
func ParseHost(s string) (Pattern, error) {
	p, err := parseHost(s)
	if err != nil {
		return Pattern{}, fmt.Errorf("parse host %q: %w", s, err)
	}
	return p, nil
}

// ParsePrivateHost reads a host as ParseHost does, but with no port: what a name resolves to has none.
func ParsePrivateHost(s string) (Pattern, error) {
	p, err := ParseHost(s)
	if err == nil && p.Port != 0 {
		return Pattern{}, fmt.Errorf("parse host %q: it must have no port", s)
	}
	return p, err
}

func parseHost(s string) (Pattern, error) {
	if s == "" {
		return Pattern{}, errors.New("it is empty")
	}
	if strings.Contains(s, "://") {
		return Pattern{}, errors.New("want a host, not a URL")
	}
	host, port, bracketed, err := splitPort(s)
	if err != nil {
		return Pattern{}, err
	}
	p := Pattern{Name: host}
	if port != "" {
		if p.Port, err = parsePort(port); err != nil {
			return Pattern{}, err
		}
	}
	if bracketed || strings.Contains(host, ":") {
		a, err := ipv6(host)
		p.Name = a.String()
		return p, err
	}
	host = trimDot(host)
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		host, p.Wildcard = rest, true
	}
	name, addr, err := canonicalName(host)
	if err != nil {
		return p, err
	}
	// The spellings of an address that only some programs read ("127.1") are taken from programs, not in a policy.
	if addr.IsValid() && (p.Wildcard || name != host) {
		return p, fmt.Errorf("%q is neither a name nor an IPv4 address", host)
	}
	p.Name = name
	return p, nil
}

// splitPort splits "host:port", "[v6]:port" and the same without a port. The port is "" where there is none.
func splitPort(s string) (host, port string, bracketed bool, err error) {
	rest := ""
	switch {
	case strings.HasPrefix(s, "["):
		var ok bool
		if host, rest, ok = strings.Cut(s[1:], "]"); !ok {
			return "", "", true, errors.New(`"[" without "]"`)
		}
		bracketed = true
	case strings.Count(s, ":") == 1:
		i := strings.IndexByte(s, ':')
		host, rest = s[:i], s[i:]
	default:
		return s, "", false, nil
	}
	if rest == "" {
		return host, "", bracketed, nil
	}
	port, ok := strings.CutPrefix(rest, ":")
	if !ok || port == "" {
		return "", "", bracketed, fmt.Errorf(`want ":PORT" after the host, got %q`, rest)
	}
	return host, port, bracketed, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16) // takes no sign, no space and no underscore
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q is not a number from 1 to 65535", s)
	}
	return int(n), nil
}

// ParsePort reads a forwarded port: "PORT", or "PORT=OUT" where OUT is a port of the host's loopback, "HOST:PORT" or
// "unix:/absolute/path".
func ParsePort(s string) (Port, error) {
	in, out, forwarded := strings.Cut(s, "=")
	p := Port{}
	var err error
	if p.Inside, err = parsePort(in); err == nil {
		if !forwarded {
			out = in
		}
		p.Outside, err = parseOutside(out)
	}
	if err != nil {
		return Port{}, fmt.Errorf("parse port %q: %w", s, err)
	}
	return p, nil
}

// String writes the port as ParsePort reads it.
func (p Port) String() string { return strconv.Itoa(p.Inside) + "=" + p.Outside }

func parseOutside(s string) (string, error) {
	if p, ok := strings.CutPrefix(s, "unix:"); ok {
		if !path.IsAbs(p) || strings.Contains(p, "\x00") {
			return "", fmt.Errorf("socket %q is not an absolute path", p)
		}
		return "unix:" + path.Clean(p), nil
	}
	if !strings.Contains(s, ":") {
		n, err := parsePort(s)
		if err != nil {
			return "", err
		}
		return "127.0.0.1:" + strconv.Itoa(n), nil
	}
	h, err := parseHost(s)
	switch {
	case err != nil:
		return "", err
	case h.Name == "unix": // or it could be mistaken for a socket's prefix
		return "", errors.New(`"unix:" stands before an absolute path`)
	case h.Wildcard:
		return "", errors.New(`"*" is no host to connect to`)
	case h.Port == 0:
		return "", fmt.Errorf("%q has no port", s)
	}
	return h.String(), nil
}

// Service is an HTTP service that a program uses: a forwarded port when it is on the loopback, an allowed host else.
type Service struct {
	Host string // as Pattern.Name
	Port int    // 1 to 65535; 80 or 443 where the URL has none
}

// ParseService reads an http or https URL. It must hold no user name or password: policies are kept in records.
func ParseService(s string) (Service, error) {
	svc, err := parseService(s)
	if err != nil {
		return Service{}, fmt.Errorf("parse service %q: %w", s, err)
	}
	return svc, nil
}

func parseService(s string) (Service, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Service{}, errors.Unwrap(err)
	}
	if u.User != nil {
		return Service{}, errors.New("a URL in a policy must hold no user name or password")
	}
	def, ok := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if !ok {
		return Service{}, errors.New("want a URL that begins with http:// or https://")
	}
	if u.Hostname() == "" {
		return Service{}, errors.New("it names no host")
	}
	p, err := parseHost(strings.TrimSuffix(u.Host, ":"))
	switch {
	case err != nil:
		return Service{}, err
	case p.Wildcard:
		return Service{}, errors.New(`"*" is no host to connect to`)
	case p.Port == 0:
		p.Port = def
	}
	return Service{Host: p.Name, Port: p.Port}, nil
}

// Loopback reports whether the service is on the machine's loopback.
func (s Service) Loopback() bool {
	a, err := netip.ParseAddr(s.Host)
	return err == nil && a.IsLoopback() || s.Host == "localhost" || strings.HasSuffix(s.Host, ".localhost")
}
