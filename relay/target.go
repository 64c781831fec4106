package relay

import (
	"net"
	"strconv"
	"strings"
)

// target is the host, port and path of a request.
type target struct {
	host string // as it was written; only the judge's form of it is ever used
	port int
	path string // with the query; never empty
}

// absolute reads a request's target in absolute form, "http://host[:port]/path?query" (RFC 9112, section 3.2.2), the only
// one that tells a proxy where to go.
func absolute(s string) (target, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case !ok:
		return target{}, bad("this is a proxy: it takes targets such as http://host/path, and CONNECT host:port")
	case strings.EqualFold(scheme, "https"):
		return target{}, bad("https goes through this proxy by CONNECT host:port alone: nothing here opens TLS")
	case !strings.EqualFold(scheme, "http"):
		return target{}, bad("only http:// targets and CONNECT are served here")
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if strings.Contains(path, "#") {
		return target{}, bad("a target has no fragment")
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	t, err := parseAuthority(authority, 80)
	t.path = path
	return t, err
}

// parseAuthority reads "host:port", or "host" where there is a default port. A user name, which is where parsers of URLs
// disagree most about what the host is, and whatever else is no host's are refused; what a host is the judge says.
func parseAuthority(s string, port int) (target, error) {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || strings.IndexByte(`@/\?#%"<>^{|}`+"`", c) >= 0 {
			return target{}, bad("the target's host is no host")
		}
	}
	host, digits := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, digits = s[:i], s[i+1:]
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 {
			return target{}, bad("the target's port is not a number from 1 to 65535")
		}
		port = int(n)
	}
	inBrackets := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if host == "" || port == 0 || strings.Contains(host, ":") && !inBrackets {
		return target{}, bad("the target is not host:port")
	}
	return target{host: host, port: port}, nil
}

// hostField writes what a Host field says: exactly what was judged, and no port where that is 80.
func hostField(host string, port int) string {
	if port != 80 {
		return net.JoinHostPort(host, strconv.Itoa(port))
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
