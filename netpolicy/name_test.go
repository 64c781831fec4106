package netpolicy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestCanonicalNames(t *testing.T) {
	for in, want := range map[string]string{
		"a.example":                     "a.example",
		"A.EXAMPLE":                     "a.example",
		"a.example.":                    "a.example",
		"a":                             "a",
		"_srv._tcp.a.example":           "_srv._tcp.a.example",
		"r3---sn-x.a.example":           "r3---sn-x.a.example", // refused by the profile of IDNA, but in use
		"1.2.3.4.example":               "1.2.3.4.example",
		"1.2.3.4a":                      "1.2.3.4a",
		"00x1":                          "00x1",
		"0xg":                           "0xg",
		"a.0x1g":                        "a.0x1g",
		"127.0.0.1.example":             "127.0.0.1.example",
		"bücher.example":                "xn--bcher-kva.example",
		"BÜCHER.Example.":               "xn--bcher-kva.example",
		"bu\u0308cher.example":          "xn--bcher-kva.example", // not in composed form
		"xn--bcher-kva.example":         "xn--bcher-kva.example",
		"XN--BCHER-KVA.EXAMPLE.":        "xn--bcher-kva.example",
		"bücher。example":                "xn--bcher-kva.example", // every dot that IDNA knows
		"bücher．example｡":               "xn--bcher-kva.example",
		"straße.example":                "xn--strae-oqa.example", // not strasse: transitional processing is over
		"ｅｘａｍｐｌｅ.com":                   "example.com",
		"exam\u00adple.com":             "example.com", // a soft hyphen
		"\u212aelvin.example":           "kelvin.example",
		"例え.テスト":                        "xn--r8jz45g.xn--zckzah",
		"مثال.إختبار":                   "xn--mgbh0fb.xn--kgbechtv",
		"xn--mgbh0fb.xn--kgbechtv":      "xn--mgbh0fb.xn--kgbechtv",
		"axn--b.example":                "axn--b.example",
		strings.Repeat("a", 63):         strings.Repeat("a", 63),
		strings.Repeat("a.", 126):       strings.Repeat("a.", 125) + "a",
		strings.Repeat("ä", 50):         "xn--4c" + strings.Repeat("a", 50),
		strings.Repeat("ab.", 84) + "a": strings.Repeat("ab.", 84) + "a",
	} {
		got, addr, err := canonical(in)
		if err != nil || got != want || addr.IsValid() {
			t.Errorf("canonical(%q) = %q, %v, %v; want %q", in, got, addr, err, want)
		}
		if again, _, err := canonical(got); err != nil || again != got {
			t.Errorf("canonical(%q) = %q, %v; it is canonical already", got, again, err)
		}
	}
}

// TestCanonicalAddresses: every spelling that some resolver, libc or browser reads as an address.
func TestCanonicalAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1":                "127.0.0.1",
		"127.0.0.1.":               "127.0.0.1",
		"2130706433":               "127.0.0.1",
		"2130706433.":              "127.0.0.1",
		"0x7f000001":               "127.0.0.1",
		"0X7F000001":               "127.0.0.1",
		"0x0000000007f000001":      "127.0.0.1",
		"017700000001":             "127.0.0.1",
		"0177.0.0.1":               "127.0.0.1",
		"00000177.0.0.1":           "127.0.0.1",
		"0177.0.0.01":              "127.0.0.1",
		"0x7f.0.0.1":               "127.0.0.1",
		"0x7f.1":                   "127.0.0.1",
		"127.1":                    "127.0.0.1",
		"127.0.1":                  "127.0.0.1",
		"127.0x1":                  "127.0.0.1",
		"127.0.0.0x1":              "127.0.0.1",
		"127.65536":                "127.1.0.0",
		"127.16777215":             "127.255.255.255",
		"1.2.65535":                "1.2.255.255",
		"010.0.0.1":                "8.0.0.1",
		"10.010.0010.00010":        "10.8.8.8",
		"169.254.43518":            "169.254.169.254",
		"0xa9fea9fe":               "169.254.169.254",
		"2852039166":               "169.254.169.254",
		"0":                        "0.0.0.0",
		"0.":                       "0.0.0.0",
		"00":                       "0.0.0.0",
		"1.2.3.":                   "1.2.0.3",
		"1.0x":                     "1.0.0.0",
		"0x":                       "0.0.0.0",
		"0x.0x.0":                  "0.0.0.0",
		"4294967295":               "255.255.255.255",
		"１２７.0.0.1":                "127.0.0.1", // IDNA makes digits and dots of others
		"127。0。0。1":                "127.0.0.1",
		"①②⑦.⓪.⓪.①":                "127.0.0.1",
		"0ｘ7f.1":                   "127.0.0.1",
		"127.0.0.1｡":               "127.0.0.1",
		"12\u00ad7.0.0.1":          "127.0.0.1",
		"::1":                      "::1",
		"[::1]":                    "::1",
		"0:0:0:0:0:0:0:1":          "::1",
		"[0000:0::0001]":           "::1",
		"2001:DB8::A":              "2001:db8::a",
		"::ffff:127.0.0.1":         "127.0.0.1",
		"[::FFFF:7f00:1]":          "127.0.0.1",
		"::127.0.0.1":              "::7f00:1",
		"64:ff9b::10.0.0.1":        "64:ff9b::a00:1",
		"0:0:0:0:0:ffff:a9fe:a9fe": "169.254.169.254",
	} {
		got, addr, err := canonical(in)
		if err != nil || got != want || addr != netip.MustParseAddr(want) {
			t.Errorf("canonical(%q) = %q, %v, %v; want %q", in, got, addr, err, want)
		}
		if again, _, err := canonical(got); err != nil || again != got {
			t.Errorf("canonical(%q) = %q, %v; it is canonical already", got, again, err)
		}
	}
}

// badNames are neither names nor addresses, however a resolver would read them.
func badNames() []string {
	bad := []string{
		"", ".", "..", "。", "a..", "a..example", ".a.example", "a.example..", "a.example.。", "a。。b",
		" ", "a b", " a.example", "a.example ", "a.example\n", "a.example\r\nHost: b", "a\tb", "a\x00", "a.example\x00.b",
		"\x7f", "a\x1fb",
		"a@b.example", "user:pw@a.example", "a%b", "%61.example", "a%00", "a/b", "a\\b", "a?b", "a#b", "a,b", "a;b", "a:80",
		"a.example:443",
		"*", "*.example", "a.*", "<a>", "a'b", `a"b`, "a(b)", "a+b", "a=b", "a!b", "a~b", "a|b", "{a}", "a^b", "a`b", "a&b",
		"a$b",
		"-a.example", "a-.example", "a.-", "-",
		strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a", strings.Repeat("a.", 1<<20), strings.Repeat("é", 1<<20),
		strings.Repeat("ä", 60),
		strings.Repeat("0", 64), "127.0.0." + strings.Repeat("0", 64) + "1",
		// Numbers that are no address.
		"256.0.0.1", "1.2.3.4.5", "1.256.3", "1.2.65536", "1.16777216", "4294967296", "0x100000000", "040000000000",
		"08.0.0.1", "1.2.3.08",
		"0x1g.1", "1..2", "a.1", "a.0x1", "a.example.0", "1.-1", "+1", "1_0.1", "99999999999999999999999999", "1e3.1",
		"0b1.1", "0o17.1",
		"1.2.3..", ".1.2.3.4", "0x7f.0x0.0x0.0x1.0x2",
		// IPv6.
		":", "::1::", ":::", "[::1", "::1]", "[]", "[a]", "[127.0.0.1]", "[[::1]]", "[::1]:80", "[::1].", "::1.",
		"::ffff:127.0.0.01", "::ffff:256.0.0.1",
		"fe80::1%eth0", "[fe80::1%eth0]", "[fe80::1%25eth0]", "::1%0", "::ffff:127.0.0.1%lo", "2001:db8::1%",
		"1:2:3:4:5:6:7:8:9", "12345::",
		// IDNA.
		"xn--", "xn--.example", "a.xn--", "ü.xn--", "ü.\u00ad", "a.example.xn--", "xn--a", "xn--a.example", "xn--example-", "xn--99999999",
		"xn--bcher-kva-", "xn--bücher.example",
		"xn--bcher-kvb\u200d", "a≠b", "a＠b", "a％b", "a／b", "a：80", "⒈.example", "a\u200db", "\u0301a.example", "a\u202eb",
		"\ufeff", "\u00ad", "a.\u00ad", "\u00ad.a",
		"אa.example", "א1ב.a\u05d0", "\xff.example", "a\xc3.example", "a\xed\xa0\x80", "\U0010ffff", "💩\u200d",
		"ab--ü.example", "-ü.example", "_ü.example",
	}
	bad = append(bad, strings.Repeat("\u00ad", 1000)+"a.example", strings.Repeat(":", 1<<20), "["+strings.Repeat("1:", 1<<20)+"]")
	for c := range 256 {
		if c := byte(c); !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", rune(c)) {
			bad = append(bad, "a"+string([]byte{c})+"b.example")
		}
	}
	return bad
}

func TestCanonicalRefuses(t *testing.T) {
	for _, in := range badNames() {
		if got, addr, err := canonical(in); err == nil {
			t.Errorf("canonical(%.80q) = %q, %v; want an error", in, got, addr)
		}
	}
}
