package netpolicy

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestKind goes to both ends of each block, and one step beyond them.
func TestKind(t *testing.T) {
	for in, want := range map[string]string{
		"0.0.0.0": "an unspecified address", "0.255.255.255": "an unspecified address", "1.0.0.0": "",
		"9.255.255.255": "", "10.0.0.0": "a private address", "10.255.255.255": "a private address", "11.0.0.0": "",
		"100.63.255.255": "", "100.64.0.0": "a private address", "100.127.255.255": "a private address", "100.128.0.0": "",
		"126.255.255.255": "", "127.0.0.0": "a loopback address", "127.255.255.255": "a loopback address", "128.0.0.0": "",
		"169.253.255.255": "", "169.254.0.0": "a link-local address", "169.254.255.255": "a link-local address",
		"169.255.0.0":     "",
		"169.254.169.253": "a link-local address", "169.254.169.254": "a cloud metadata address",
		"169.254.169.255": "a link-local address",
		"169.254.170.2":   "a cloud metadata address", "100.100.100.200": "a cloud metadata address",
		"192.0.0.192":   "a cloud metadata address",
		"168.63.129.15": "", "168.63.129.16": "a cloud metadata address", "168.63.129.17": "",
		"172.15.255.255": "", "172.16.0.0": "a private address", "172.31.255.255": "a private address", "172.32.0.0": "",
		"191.255.255.255": "", "192.0.0.0": "a reserved address", "192.0.0.255": "a reserved address", "192.0.1.0": "",
		"192.0.1.255": "", "192.0.2.0": "a documentation address", "192.0.2.255": "a documentation address", "192.0.3.0": "",
		"192.88.98.255": "", "192.88.99.0": "a reserved address", "192.88.99.255": "a reserved address", "192.88.100.0": "",
		"192.167.255.255": "", "192.168.0.0": "a private address", "192.168.255.255": "a private address", "192.169.0.0": "",
		"198.17.255.255": "", "198.18.0.0": "a benchmark address", "198.19.255.255": "a benchmark address", "198.20.0.0": "",
		"198.51.99.255": "", "198.51.100.0": "a documentation address", "198.51.100.255": "a documentation address",
		"198.51.101.0":  "",
		"203.0.112.255": "", "203.0.113.0": "a documentation address", "203.0.113.255": "a documentation address",
		"203.0.114.0":     "",
		"223.255.255.255": "", "224.0.0.0": "a multicast address", "239.255.255.255": "a multicast address",
		"240.0.0.0":       "a reserved address",
		"255.255.255.254": "a reserved address", "255.255.255.255": "the broadcast address",
		"1.1.1.1": "", "8.8.8.8": "", "93.184.216.34": "",

		"::": "an unspecified address", "::1": "a loopback address", "::2": "an unspecified address", // ::2 holds 0.0.0.2
		"1fff:ffff::": "a reserved address", "2000::": "", "3ffe:ffff::": "", "4000::": "a reserved address",
		"2000:ffff::": "", "2001:1::": "a reserved address", "2001:1ff:ffff::": "a reserved address", "2001:200::": "",
		"2001:20::1": "a reserved address", "2001:2::1": "a reserved address",
		"2001:db7:ffff::": "", "2001:db8::": "a documentation address", "2001:db8:ffff::ffff": "a documentation address",
		"2001:db9::": "",
		"3fff::":     "a documentation address", "3fff:fff:ffff::": "a documentation address", "3fff:1000::": "",
		"100::1": "a reserved address", "5f00::1": "a reserved address", "fbff::": "a reserved address",
		"fc00::": "a private address", "fdff:ffff::": "a private address", "fe00::": "a reserved address",
		"fd00:ec2::253": "a private address", "fd00:ec2::254": "a cloud metadata address",
		"fd20:ce::254": "a cloud metadata address",
		"fe7f::":       "a reserved address", "fe80::": "a link-local address", "febf:ffff::": "a link-local address",
		"fec0::": "a private address", "feff:ffff::": "a private address", "ff00::": "a multicast address",
		"ff02::1": "a multicast address",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "a multicast address",
		"2606:4700:4700::1111":                    "", "2a00:1450::1": "",

		// Each way to write an IPv4 address in an IPv6 one: judged by it.
		"::ffff:10.0.0.1": "a private address", "::ffff:8.8.8.8": "", "::ffff:169.254.169.254": "a cloud metadata address",
		"::10.0.0.1": "a private address", "::8.8.8.8": "", "::127.0.0.1": "a loopback address",
		"::ffff:ffff":       "the broadcast address",
		"::ffff:0:10.0.0.1": "a private address", "::ffff:0:8.8.8.8": "", "::fffe:8.8.8.8": "a reserved address",
		"::1:0:8.8.8.8":     "a reserved address",
		"64:ff9b::10.0.0.1": "a private address", "64:ff9b::8.8.8.8": "", "64:ff9b::127.0.0.1": "a loopback address",
		"64:ff9b::":          "an unspecified address",
		"64:ff9b::1:808:808": "a reserved address", "64:ff9a::808:808": "a reserved address",
		"64:ff9c::808:808": "a reserved address",
		"2002:a00:1::":     "a private address", "2002:a00:1::1": "a private address", "2002:808:808::1": "",
		"2002:7f00:1::":    "a loopback address",
		"2002:a9fe:a9fe::": "a cloud metadata address", "2003::": "", "2002::": "an unspecified address",
		"2001:0:808:808:0:0:f7f7:f7f7": "", "2001:0:808:808:0:0:f5ff:fffe": "a private address",
		// 8.8.8.8, then 10.0.0.1 inverted
		"2001:0:a00:1:0:0:f7f7:f7f7": "a private address", "2001:0:808:808::": "the broadcast address",

		// The four places of RFC 6052, in a network's own NAT64 prefix: 8.8.8.8, then 10.0.0.1 in each, then one behind another.
		"64:ff9b:1::808:808": "", "64:ff9b:1:0:8:808:800::": "", "64:ff9b:1:8:8:808::": "", "64:ff9b:1:808:8:800::": "",
		"64:ff9b:1::a00:1": "a private address", "64:ff9b:1:0:a:0:100::": "a private address",
		"64:ff9b:1:a:0:1::": "a private address", "64:ff9b:1:a00:0:100::": "a private address",
		"64:ff9b:1:a00:0:100:808:808": "a private address", "64:ff9b:1:808:8:800:a00:1": "a private address",
		"64:ff9b:1:7f00:0:100:808:808": "a loopback address", "64:ff9b:1::": "an unspecified address",
		"64:ff9b:1::1":            "an unspecified address",
		"64:ff9b:0:ffff::808:808": "a reserved address", "64:ff9b:2::808:808": "a reserved address",
	} {
		if got := kind(netip.MustParseAddr(in)); got != want {
			t.Errorf("kind(%s) = %q; want %q", in, got, want)
		}
	}
	if got := kind(netip.Addr{}); got != "" {
		t.Errorf("kind of no address = %q", got) // Address refuses it before
	}
}

// TestKindOracle goes to the edges of every block, hidden in each way to write an IPv4 address, and to addresses made up.
func TestKindOracle(t *testing.T) {
	var all []netip.Addr
	for _, b := range blocks {
		first, last := b.prefix.Masked().Addr(), b.prefix.Addr().AsSlice()
		for i := b.prefix.Bits(); i < 8*len(last); i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		all = append(all, first, first.Prev(), end, end.Next())
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		b := [16]byte{}
		for i := range b {
			b[i] = byte(random.Uint32()) & byte(-random.IntN(2)) // half of them 0
		}
		all = append(all, netip.AddrFrom16(b), netip.AddrFrom4([4]byte(b[:4])))
	}
	for _, a := range all {
		if !a.IsValid() {
			continue // before the first, or after the last
		}
		checkKind(t, a)
		for _, hidden := range hide(a) {
			checkKind(t, hidden)
		}
	}
}

func checkKind(t *testing.T, a netip.Addr) {
	t.Helper()
	if b := a.As16(); (kind(a) == "") != oraclePublic(b[:]) {
		t.Errorf("kind(%s) = %q; the oracle says public %v", a, kind(a), oraclePublic(b[:]))
	}
}

// hide puts the last four bytes of an address into others, with a public address around it.
func hide(a netip.Addr) []netip.Addr {
	b := a.As16()
	v := b[12:]
	var hidden []netip.Addr
	for _, form := range [][16]byte{
		{12: v[0], v[1], v[2], v[3]},
		{10: 0xff, 0xff, v[0], v[1], v[2], v[3]},
		{8: 0xff, 0xff, 0, 0, v[0], v[1], v[2], v[3]},
		{0, 0x64, 0xff, 0x9b, 12: v[0], v[1], v[2], v[3]},
		{0, 0x64, 0xff, 0x9b, 0, 1, 12: v[0], v[1], v[2], v[3]},
		{0, 0x64, 0xff, 0x9b, 0, 1, 0, 8, 0, v[0], v[1], v[2], v[3]},
		{0, 0x64, 0xff, 0x9b, 0, 1, 8, v[0], 0, v[1], v[2], v[3], 8, 8, 8, 8},
		{0, 0x64, 0xff, 0x9b, 0, 1, v[0], v[1], 0, v[2], v[3], 8, 8, 8, 8, 8},
		{0x20, 2, v[0], v[1], v[2], v[3], 15: 8},
		{0x20, 1, 0, 0, 8, 8, 8, 8, 0, 0, 0, 0, ^v[0], ^v[1], ^v[2], ^v[3]},
		{0x20, 1, 0, 0, v[0], v[1], v[2], v[3], 0, 0, 0, 0, 8, 8, 8, 8},
	} {
		hidden = append(hidden, netip.AddrFrom16(form))
	}
	return hidden
}

func TestIsOwn(t *testing.T) {
	own := []netip.Addr{
		netip.MustParseAddr("8.8.4.4"), netip.MustParseAddr("::ffff:9.9.9.9"), netip.MustParseAddr("2606:4700::1"),
		netip.MustParseAddr("fe80::1%eth0"),
		{},
	}
	for in, want := range map[string]bool{
		"8.8.4.4": true, "::ffff:8.8.4.4": true, "::8.8.4.4": true, "64:ff9b::8.8.4.4": true, "64:ff9b:1::808:404": true,
		"2002:808:404::1":       true,
		"64:ff9b:1:808:4:400::": true, "2001:0:101:101::f7f7:fbfb": true, "2001:0:808:404::f7f7:f7f7": true,
		"9.9.9.9": true, "::ffff:9.9.9.9": true, "2606:4700::1": true, "fe80::1": true,
		"8.8.4.5": false, "8.8.8.8": false, "2606:4700::2": false, "64:ff9b::8.8.8.8": false, "2002:808:405::1": false,
		"::1": false, "::": false,
	} {
		if got := isOwn(netip.MustParseAddr(in), own); got != want {
			t.Errorf("isOwn(%s) = %v", in, got)
		}
	}
	if isOwn(netip.MustParseAddr("1.1.1.1"), nil) {
		t.Error("a machine without addresses has 1.1.1.1")
	}
}
