package netpolicy

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// The oracle answers what the rules answer, from the policy's text, slowly and in other ways: names are lists of labels in
// their Unicode form, addresses are 16 bytes, blocks are first and last addresses, inet_aton is the state machine of BSD.

// who is a host as the oracle reads it: labels or an address.
type who struct {
	labels []string
	addr   []byte // 16 bytes
	exact  bool   // plain ASCII: the oracle knows all about it; else only what it refuses is certain
}

func (w who) same(other who) bool {
	if w.addr != nil || other.addr != nil {
		return bytes.Equal(w.addr, other.addr)
	}
	if len(w.labels) != len(other.labels) {
		return false
	}
	for i := range w.labels {
		if w.labels[i] != other.labels[i] {
			return false
		}
	}
	return true
}

// below reports whether a name has more labels than another one, and ends in all of its.
func (w who) below(suffix who) bool {
	if w.addr != nil || len(w.labels) <= len(suffix.labels) {
		return false
	}
	return who{labels: w.labels[len(w.labels)-len(suffix.labels):]}.same(suffix)
}

func oracleHost(s string) (who, bool) {
	if inner := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"); strings.Contains(s,
		":") && (inner == s || "["+inner+"]" == s) {
		ip := net.ParseIP(inner)
		return who{addr: ip.To16(), exact: true}, ip != nil
	}
	w := who{exact: true}
	for i := range len(s) {
		if s[i] >= 128 {
			w.exact = false
		}
	}
	for l := range strings.SplitSeq(s, ".") {
		if len(l) >= 4 && lowerASCII(l[:4]) == "xn--" {
			w.exact = false
		}
	}
	if !w.exact {
		var err error
		if s, err = idna.Lookup.ToUnicode(s); err != nil {
			return w, false
		}
	}
	w.labels = strings.Split(s, ".")
	if n := len(w.labels); n > 1 && w.labels[n-1] == "" {
		w.labels = w.labels[:n-1]
	}
	length := len(w.labels) - 1
	for i, l := range w.labels {
		w.labels[i] = lowerASCII(l)
		length += len(l)
		if !oracleLabel(w.labels[i], w.exact) {
			return w, false
		}
	}
	if w.exact && length > 253 {
		return w, false
	}
	last := w.labels[len(w.labels)-1]
	digits, hexa := true, len(last) >= 2 && last[:2] == "0x"
	for i := range len(last) {
		digits = digits && last[i] >= '0' && last[i] <= '9'
		hexa = hexa && (i < 2 || strings.IndexByte("0123456789abcdef", last[i]) >= 0)
	}
	if !digits && !hexa {
		return w, true
	}
	ip, ok := bsdAton(strings.Join(w.labels, "."))
	return who{addr: ip, exact: w.exact}, ok
}

func oracleLabel(l string, exact bool) bool {
	if l == "" || l[0] == '-' || l[len(l)-1] == '-' || exact && len(l) > 63 {
		return false
	}
	for i := range len(l) {
		c := l[i]
		if strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789-_", c) < 0 && (exact || c < 128) {
			return false
		}
	}
	return true
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 32
		}
	}
	return string(b)
}

// bsdAton is inet_aton of 4.3BSD, in 64 bits so that nothing wraps.
func bsdAton(s string) ([]byte, bool) {
	var parts []uint64
	for i := 0; ; i++ {
		val, base := uint64(0), uint64(10)
		if i < len(s) && s[i] == '0' {
			base = 8
			i++
			if i < len(s) && s[i] == 'x' {
				base = 16
				i++
			}
		} else if i >= len(s) || s[i] == '.' {
			return nil, false
		}
		for ; i < len(s) && s[i] != '.'; i++ {
			digit := uint64(strings.IndexByte("0123456789abcdef", s[i])) // what is no digit is more than any base
			if digit >= base {
				return nil, false
			}
			if val = val*base + digit; val >= 1<<32 {
				return nil, false
			}
		}
		parts = append(parts, val)
		if i >= len(s) {
			break
		}
	}
	ip := make([]byte, 16)
	ip[10], ip[11] = 255, 255
	if len(parts) > 4 {
		return nil, false
	}
	for i := range len(parts) - 1 {
		if parts[i] > 255 {
			return nil, false
		}
		ip[12+i] = byte(parts[i])
	}
	rest := parts[len(parts)-1]
	for i := 15; i >= 11+len(parts); i-- {
		ip[i] = byte(rest)
		rest >>= 8
	}
	return ip, rest == 0
}

// oracleRule reads a rule that ParseHost took: the host, whether it is a wildcard, and the port or 0.
func oracleRule(s string) (w who, wildcard bool, port int) {
	at := strings.LastIndexByte(s, ':')
	if at > 0 && (strings.IndexByte(s, ':') == at && s[0] != '[' || s[at-1] == ']') {
		port, _ = strconv.Atoi(s[at+1:])
		s = s[:at]
	}
	if len(s) > 2 && s[:2] == "*." {
		s, wildcard = s[2:], true
	}
	w, _ = oracleHost(s)
	return w, wildcard, port
}

func oracleNames(rule string, w who) (named bool, port int) {
	of, wildcard, port := oracleRule(rule)
	if wildcard {
		return w.below(of), port
	}
	return w.same(of), port
}

// oracleService reads a URL that ParseService took: the host and port as a rule, "" where it is on the loopback.
func oracleService(s string) string {
	scheme, rest, _ := strings.Cut(s, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	rest = strings.TrimSuffix(rest, ":")
	w, _, port := oracleRule(rest)
	if port == 0 {
		rest += map[string]string{"http": ":80", "https": ":443"}[strings.ToLower(scheme)]
	}
	if w.addr != nil && oracleIn(w.addr, "127.0.0.0-127.255.255.255") || w.addr != nil && oracleIn(w.addr, "::1-::1") {
		return ""
	}
	if n := len(w.labels); n > 0 && w.labels[n-1] == "localhost" {
		return ""
	}
	return rest
}

// oracleName reports whether a policy grants a host and port before an address is known.
func oracleName(p *Policy, w who, port int) bool {
	if port <= 0 || port >= 1<<16 || p.Mode == Isolated {
		return false
	}
	rules := slices.Clone(p.AllowedHosts)
	for _, s := range p.Services {
		if r := oracleService(s); r != "" {
			rules = append(rules, r)
		}
	}
	granted := false
	for _, rule := range rules {
		named, on := oracleNames(rule, w)
		granted = granted || named && (on == port || on == 0 && port == 80 || on == 0 && port == 443)
	}
	if p.Mode == Public && w.addr != nil {
		granted = true
	}
	if p.Mode == Public && len(w.labels) > 1 {
		last := w.labels[len(w.labels)-1]
		granted = granted || last != "localhost" && last != "local" && last != "internal"
	}
	return granted && (w.addr == nil || oraclePrivate(p, w) || oraclePublic(w.addr))
}

func oraclePrivate(p *Policy, w who) bool {
	for _, rule := range p.AllowPrivate {
		if named, _ := oracleNames(rule, w); named {
			return true
		}
	}
	return false
}

// oracleAddress reports whether a granted host may be reached at an address.
func oracleAddress(p *Policy, w who, addr netip.Addr, own []netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	b := addr.As16()
	if w.addr != nil && !bytes.Equal(w.addr, b[:]) {
		return false
	}
	if oraclePrivate(p, w) {
		return true
	}
	for _, o := range own {
		ob := o.As16()
		for _, reached := range append(oracleInner(b[:]), b[:]) {
			if bytes.Equal(reached, ob[:]) {
				return false
			}
		}
	}
	return oraclePublic(b[:])
}

func oraclePublic(b []byte) bool {
	inner := oracleInner(b)
	for _, v4 := range inner {
		if !oraclePublic(v4) {
			return false
		}
	}
	if len(inner) > 0 {
		return true
	}
	for r := range strings.FieldsSeq(`
		0.0.0.0-0.255.255.255 10.0.0.0-10.255.255.255 100.64.0.0-100.127.255.255 127.0.0.0-127.255.255.255
		169.254.0.0-169.254.255.255 172.16.0.0-172.31.255.255 192.0.0.0-192.0.0.255 192.0.2.0-192.0.2.255
		192.88.99.0-192.88.99.255 192.168.0.0-192.168.255.255 198.18.0.0-198.19.255.255 198.51.100.0-198.51.100.255
		203.0.113.0-203.0.113.255 224.0.0.0-255.255.255.255 168.63.129.16-168.63.129.16
		::-::fffe:ffff:ffff ::1:0:0:0-1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
		2001::-2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff 2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff
		3fff::-3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff 4000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff`) {
		if oracleIn(b, r) {
			return false
		}
	}
	return true
}

func oracleIn(b []byte, span string) bool {
	first, last, _ := strings.Cut(span, "-")
	return bytes.Compare(net.ParseIP(first).To16(), b) <= 0 && bytes.Compare(b, net.ParseIP(last).To16()) <= 0
}

// oracleInner finds the IPv4 addresses inside an IPv6 one, by the digits of its long form.
func oracleInner(b []byte) [][]byte {
	s := hex.EncodeToString(b)
	v4 := func(digits string) []byte {
		got, _ := hex.DecodeString("00000000000000000000ffff" + digits)
		return got
	}
	switch {
	case strings.HasPrefix(s, "0000000000000000000000000000000") && s[31] <= '1':
		return nil
	case strings.HasPrefix(s, "000000000000000000000000"), strings.HasPrefix(s, "0000000000000000ffff0000"),
		strings.HasPrefix(s, "0064ff9b0000000000000000"):
		return [][]byte{v4(s[24:])}
	case strings.HasPrefix(s, "0064ff9b0001"):
		rest, found := s[12:16]+s[18:], [][]byte{} // without the byte that RFC 6052 leaves out
		for _, digits := range []string{rest[:8], rest[2:10], rest[4:12], s[24:]} {
			if digits[:2] != "00" {
				found = append(found, v4(digits))
			}
		}
		if len(found) == 0 {
			found = append(found, v4("00000000"))
		}
		return found
	case strings.HasPrefix(s, "2002"):
		return [][]byte{v4(s[4:12])}
	case strings.HasPrefix(s, "20010000"):
		n, _ := strconv.ParseUint(s[24:], 16, 32)
		return [][]byte{v4(s[8:16]), v4(hex.EncodeToString([]byte{^byte(n >> 24), ^byte(n >> 16), ^byte(n >> 8), ^byte(n)}))}
	}
	return nil
}
