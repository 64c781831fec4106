package netpolicy

import (
	"net/netip"
	"slices"
)

// block is a range of addresses that are not public, with words that follow "it is".
type block struct {
	prefix netip.Prefix
	kind   string
}

// blocks are what the special-purpose registries of IANA list as not globally reachable (RFC 6890), multicast, and the
// addresses where clouds tell machines their secrets. The first that holds an address names it.
var blocks = []block{ //nolint:gochecknoglobals // a table
	{netip.MustParsePrefix("169.254.169.254/32"), kindMetadata}, // most clouds
	{netip.MustParsePrefix("169.254.170.2/32"), kindMetadata},   // Amazon ECS
	{netip.MustParsePrefix("100.100.100.200/32"), kindMetadata}, // Alibaba
	{netip.MustParsePrefix("192.0.0.192/32"), kindMetadata},     // Oracle
	{netip.MustParsePrefix("168.63.129.16/32"), kindMetadata},   // Azure: a public address, but answered by the machine's host
	{netip.MustParsePrefix("fd00:ec2::254/128"), kindMetadata},  // Amazon
	{netip.MustParsePrefix("fd20:ce::254/128"), kindMetadata},   // Google

	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address"}, // Linux connects 0.0.0.0 to the loopback
	{netip.MustParsePrefix("10.0.0.0/8"), kindPrivate},
	{netip.MustParsePrefix("100.64.0.0/10"), kindPrivate}, // behind a carrier's NAT
	{netip.MustParsePrefix("127.0.0.0/8"), kindLoopback},
	{netip.MustParsePrefix("169.254.0.0/16"), kindLinkLocal},
	{netip.MustParsePrefix("172.16.0.0/12"), kindPrivate},
	{netip.MustParsePrefix("192.0.0.0/24"), kindReserved}, // IETF protocols
	{netip.MustParsePrefix("192.0.2.0/24"), kindDocumentation},
	{netip.MustParsePrefix("192.88.99.0/24"), kindReserved}, // relays of 6to4, no longer in use
	{netip.MustParsePrefix("192.168.0.0/16"), kindPrivate},
	{netip.MustParsePrefix("198.18.0.0/15"), "a benchmark address"},
	{netip.MustParsePrefix("198.51.100.0/24"), kindDocumentation},
	{netip.MustParsePrefix("203.0.113.0/24"), kindDocumentation},
	{netip.MustParsePrefix("224.0.0.0/4"), kindMulticast},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), kindReserved},

	{netip.MustParsePrefix("::/128"), "an unspecified address"},
	{netip.MustParsePrefix("::1/128"), kindLoopback},
	{netip.MustParsePrefix("2001::/23"), kindReserved}, // IETF protocols; Teredo, inside it, is judged by its IPv4 addresses
	{netip.MustParsePrefix("2001:db8::/32"), kindDocumentation},
	{netip.MustParsePrefix("3fff::/20"), kindDocumentation},
	{netip.MustParsePrefix("fc00::/7"), kindPrivate},
	{netip.MustParsePrefix("fe80::/10"), kindLinkLocal},
	{netip.MustParsePrefix("fec0::/10"), kindPrivate}, // site-local
	{netip.MustParsePrefix("ff00::/8"), kindMulticast},
}

const (
	kindPrivate       = "a private address"
	kindLoopback      = "a loopback address"
	kindLinkLocal     = "a link-local address"
	kindMetadata      = "a cloud metadata address"
	kindMulticast     = "a multicast address"
	kindDocumentation = "a documentation address"
	kindReserved      = "a reserved address"
)

// kind names the kind of an address that is not public, in words that follow "it is"; "" for a public one.
func kind(a netip.Addr) string {
	a = a.Unmap()
	inner := embedded(a)
	for _, v4 := range inner {
		if k := listed(v4); k != "" {
			return k
		}
	}
	if len(inner) > 0 {
		return ""
	}
	return listed(a)
}

func listed(a netip.Addr) string {
	for _, b := range blocks {
		if b.prefix.Contains(a) {
			return b.kind
		}
	}
	if a.Is6() && a.As16()[0]>>5 != 1 { // nothing but 2000::/3 is global unicast (RFC 4291, section 2.4)
		return kindReserved
	}
	return ""
}

// isOwn reports whether a packet to an address comes back to this machine.
func isOwn(a netip.Addr, own []netip.Addr) bool {
	reached := append(embedded(a), a.Unmap())
	return slices.ContainsFunc(own, func(o netip.Addr) bool {
		return slices.Contains(reached, o.WithZone("").Unmap())
	})
}

// embedded lists the IPv4 addresses that a translator or tunnel may deliver packets for an IPv6 address to. A mapped address
// (::ffff:0:0/96) is not among them: it is the IPv4 address itself, see Unmap.
func embedded(a netip.Addr) []netip.Addr {
	if !a.Is6() || a.IsUnspecified() || a.IsLoopback() {
		return nil
	}
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	in := func(prefix string) bool { return netip.MustParsePrefix(prefix).Contains(a) }
	switch {
	case in("::/96"), // IPv4-compatible (RFC 4291)
		in("::ffff:0:0:0/96"), // IPv4-translated (RFC 2765)
		in("64:ff9b::/96"):    // NAT64 (RFC 6052)
		return []netip.Addr{at(12)}
	case in("64:ff9b:1::/48"): // NAT64 of a network's own choice (RFC 8215)
		return translated(b)
	case in("2002::/16"): // 6to4 (RFC 3056)
		return []netip.Addr{at(2)}
	case in("2001::/32"): // Teredo (RFC 4380): the server and, inverted, the client
		return []netip.Addr{at(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	}
	return nil
}

// translated reads the IPv4 address in each of the places where a NAT64 prefix of 48 to 96 bits has it (RFC 6052, section
// 2.2): which one is the network's choice, and a program that makes the address up could use another to hide it. The places that
// are not used are zero, so of those that begin with a zero byte, which lead nowhere, only one is kept.
func translated(b [16]byte) []netip.Addr {
	found := []netip.Addr{}
	for _, i := range [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}} {
		if b[i[0]] != 0 {
			found = append(found, netip.AddrFrom4([4]byte{b[i[0]], b[i[1]], b[i[2]], b[i[3]]}))
		}
	}
	if len(found) == 0 {
		found = append(found, netip.IPv4Unspecified())
	}
	return found
}
