package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Limits of DNS names (RFC 1035, section 2.3.4), in bytes.
const (
	maxName  = 253
	maxLabel = 63
)

// canonical writes a host as the rules compare it and as it must be resolved: a name in lower case, in its ASCII form and
// without a trailing dot, or an address as netip writes it. addr is the zero Addr for a name.
func canonical(host string) (name string, addr netip.Addr, err error) {
	if len(host) > 4*maxName { // no such name gets short enough, but by characters that IDNA ignores
		return "", addr, fmt.Errorf("it is longer than %d bytes", maxName)
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); !ok {
			return "", addr, errors.New(`"[" without "]"`)
		}
		addr, err = ipv6(inner)
		return addr.String(), addr, err
	}
	if strings.Contains(host, ":") {
		addr, err = ipv6(host)
		return addr.String(), addr, err
	}
	return canonicalName(trimDot(host))
}

// canonicalName does so for what has no colon, no brackets and no trailing dot any more.
func canonicalName(s string) (name string, addr netip.Addr, err error) {
	if name, err = toASCII(s); err == nil {
		err = checkName(name)
	}
	if err != nil || !endsInNumber(name) {
		return name, addr, err
	}
	addr, ok := inetAton(name)
	if !ok {
		return "", addr, fmt.Errorf("%q is neither a name nor an IPv4 address", name)
	}
	return addr.String(), addr, nil
}

func ipv6(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q is no IPv6 address", s)
	}
	return a.Unmap(), nil // ::ffff:10.0.0.1 and 10.0.0.1 are one address
}

// trimDot cuts one trailing dot, in any of the forms that IDNA knows. It is done before IDNA, which can drop a whole label
// ("xn--", or one of soft hyphens): what ends in a dot only then is another name.
func trimDot(s string) string {
	for _, dot := range []string{".", "\u3002", "\uff0e", "\uff61"} {
		if rest, ok := strings.CutSuffix(s, dot); ok {
			return rest
		}
	}
	return s
}

// toASCII writes a name in the ASCII form of IDNA2008, lookup profile. Names without any other character and without
// "xn--" do not go that way: the profile refuses some that are in use ("_srv", "r3---sn-x").
func toASCII(s string) (string, error) {
	ascii := strings.ToLower(s)
	if !isASCII(s) {
		var err error
		if ascii, err = idna.Lookup.ToASCII(s); err != nil {
			return "", fmt.Errorf("it is no international name: %w", err)
		}
	}
	if !strings.HasPrefix(ascii, "xn--") && !strings.Contains(ascii, ".xn--") {
		return ascii, nil
	}
	// A resolver takes the ASCII form as it is: it must be the one form of its name, or two names would be the same here.
	if again, err := idna.Lookup.ToASCII(ascii); err != nil || again != ascii {
		return "", fmt.Errorf("%q is the ASCII form of no international name", ascii)
	}
	return ascii, nil
}

func isASCII(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0 }

func checkName(name string) error {
	if name == "" {
		return errors.New("it names no host")
	}
	if len(name) > maxName {
		return fmt.Errorf("it is longer than %d bytes", maxName)
	}
	for l := range strings.SplitSeq(name, ".") {
		if err := checkLabel(l); err != nil {
			return err
		}
	}
	return nil
}

func checkLabel(l string) error {
	switch {
	case l == "":
		return errors.New("it has an empty label")
	case len(l) > maxLabel:
		return fmt.Errorf("label %q is longer than %d bytes", l, maxLabel)
	case l[0] == '-' || l[len(l)-1] == '-':
		return fmt.Errorf("label %q begins or ends with \"-\"", l)
	}
	for _, c := range l {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
		case c == '*':
			return errors.New(`"*" may only be the whole first label, as in "*.example.org"`)
		default:
			return fmt.Errorf("it has the character %q", c)
		}
	}
	return nil
}

// endsInNumber reports whether the last label makes the whole name an IPv4 address or nothing (WHATWG URL, "ends in a
// number checker"): no top-level domain looks so, and some resolver takes it for an address.
func endsInNumber(name string) bool {
	l := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(l, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(l, "0123456789") == ""
}

// inetAton reads an IPv4 address as inet_aton(3) does: one to four parts, each decimal, octal after "0" or hexadecimal
// after "0x"; the last one fills the bytes that are left. A lone "0x" is 0, as BSDs and browsers have it.
func inetAton(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var ip uint64
	for i, part := range parts {
		n, err := parsePart(part)
		left := 1 // bytes that this part fills
		if i == len(parts)-1 {
			left = 4 - i
		}
		if err != nil || n >= 1<<(8*left) {
			return netip.Addr{}, false
		}
		ip = ip<<(8*left) | n
	}
	return netip.AddrFrom4([4]byte{byte(ip >> 24), byte(ip >> 16), byte(ip >> 8), byte(ip)}), true
}

func parsePart(s string) (uint64, error) {
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		return strconv.ParseUint("0"+hex, 16, 64)
	}
	if len(s) > 1 && s[0] == '0' {
		return strconv.ParseUint(s, 8, 64)
	}
	return strconv.ParseUint(s, 10, 64)
}
