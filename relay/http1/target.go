package http1

import (
	"net"
	"strconv"
	"strings"
)

// Target is the host, port and path of a request.
type Target struct {
	Host string // as it was written; only the judge's form of it is ever used
	Port int
	Path string // with the query; never empty
}

// Absolute reads a request's target in absolute form, "http://host[:port]/path?query" (RFC 9112, section 3.2.2), the only
// one that names a proxy's destination.
func Absolute(s string) (Target, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case !ok:
		return Target{}, Bad("this is a proxy: it takes targets such as http://host/path, and CONNECT host:port")
	case strings.EqualFold(scheme, "https"):
		return Target{}, Bad("https goes through this proxy by CONNECT host:port alone: nothing here opens TLS")
	case !strings.EqualFold(scheme, "http"):
		return Target{}, Bad("only http:// targets and CONNECT are served here")
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if strings.Contains(path, "#") {
		return Target{}, Bad("a target has no fragment")
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	t, err := ParseAuthority(authority, 80)
	t.Path = path
	return t, err
}

// ParseAuthority reads "host:port", or "host" where there is a default port. A user name, which is where parsers of URLs
// disagree most about what the host is, and whatever else is no host's are refused; what a host is the judge says.
func ParseAuthority(s string, port int) (Target, error) {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || strings.IndexByte(`@/\?#%"<>^{|}`+"`", c) >= 0 {
			return Target{}, Bad("the target's host is no host")
		}
	}
	host, digits := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, digits = s[:i], s[i+1:]
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 {
			return Target{}, Bad("the target's port is not a number from 1 to 65535")
		}
		port = int(n)
	}
	inBrackets := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if host == "" || port == 0 || strings.Contains(host, ":") && !inBrackets {
		return Target{}, Bad("the target is not host:port")
	}
	return Target{Host: host, Port: port}, nil
}

// HostField writes what a Host field says: exactly what was judged, and no port where that is 80.
func HostField(host string, port int) string {
	if port != 80 {
		return net.JoinHostPort(host, strconv.Itoa(port))
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
