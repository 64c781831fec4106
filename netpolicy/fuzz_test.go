package netpolicy

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// situation is all that a decision depends on.
type situation struct {
	policy Policy
	host   string
	port   int
	addr   netip.Addr
	own    []netip.Addr
}

// checkDecision holds the rules against the oracle, and against what must be true of every decision.
func checkDecision(t *testing.T, s situation) (name, address Decision) {
	t.Helper()
	r, err := Compile(&s.policy)
	if err != nil {
		t.Fatal(err)
	}
	name = r.Name(s.host, s.port)
	address = r.Address(name, s.addr, s.own)
	checkWords(t, s, name)
	checkWords(t, s, address)
	if s.policy.Mode == Host {
		if !name.Allow || !address.Allow {
			t.Errorf("%+v: refused in mode host", s)
		}
		return name, address
	}
	w, ok := oracleHost(s.host)
	if name.Reason == ReasonBadName {
		if ok && w.exact {
			t.Errorf("%+v: bad_name, but the oracle reads %+v", s, w)
		}
		return name, address
	}
	granted := ok && oracleName(&s.policy, w, s.port)
	if name.Allow != granted {
		t.Errorf("%+v: %+v; the oracle says %v of %+v", s, name, granted, w)
	}
	if want := granted && oracleAddress(&s.policy, w, s.addr, s.own); address.Allow != want {
		t.Errorf("%+v: %+v; the oracle says %v of %+v", s, address, want, w)
	}
	checkStable(t, r, s, name)
	return name, address
}

// checkStable: the same host, written in another way, gets the same decision.
func checkStable(t *testing.T, r *Rules, s situation, d Decision) {
	t.Helper()
	if again, _, err := canonical(d.Host); err != nil || again != d.Host {
		t.Errorf("%q is %q, and that is %q, %v", s.host, d.Host, again, err)
	}
	others := []string{d.Host, strings.ToUpper(d.Host)}
	if a, err := netip.ParseAddr(d.Host); err != nil || a.Is4() {
		others = append(others, d.Host+".", d.Host+"。")
	} else {
		others = append(others, "["+d.Host+"]", a.StringExpanded())
	}
	for _, host := range others {
		if got := r.Name(host, s.port); got != d {
			t.Errorf("%q: %+v; but %q: %+v", s.host, d, host, got)
		}
	}
	allowed := d.Allow
	for _, port := range r.Ports() {
		allowed = allowed || r.Name(s.host, port).Allow
	}
	if r.Known(s.host) != allowed {
		t.Errorf("%+v: known %v, but some port allowed %v", s, r.Known(s.host), allowed)
	}
}

// checkWords: a decision has a reason or none, and can be printed on one line whatever the program asked for.
func checkWords(t *testing.T, s situation, d Decision) {
	t.Helper()
	if d.Allow == (d.Reason != "") || d.Allow && d.Rule == "" || d.Port != s.port {
		t.Errorf("%+v: %+v", s, d)
	}
	text := d.Explain()
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unprintable) || strings.Contains(text, "no policy was asked") {
		t.Errorf("%+v: %+q", s, text)
	}
	if strings.ContainsFunc(d.Host, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%+v: host %q", s, d.Host)
	}
}

// fields keeps the lines that are good rules.
func fields[T any](text string, parse func(string) (T, error)) []string {
	var good []string
	for s := range strings.SplitSeq(text, "\n") {
		if _, err := parse(s); err == nil {
			good = append(good, s)
		}
	}
	return good
}

func makeSituation(mode uint8, allowed, services, private, host string, port int, addr, own []byte) situation {
	s := situation{
		policy: Policy{
			Mode:         Modes()[int(mode)%len(Modes())],
			AllowedHosts: fields(allowed, ParseHost),
			Services:     fields(services, ParseService),
			AllowPrivate: fields(private, ParsePrivateHost),
		},
		host: host, port: port,
	}
	s.addr, _ = netip.AddrFromSlice(addr)
	if o, ok := netip.AddrFromSlice(own); ok {
		s.own = append(s.own, o)
	}
	if literal, err := netip.ParseAddr(host); err == nil && len(addr) == 0 {
		s.addr = literal
	}
	return s
}

func FuzzDecide(f *testing.F) {
	add := func(mode uint8, allowed, services, private, host string, port int, addr string) {
		a, _ := netip.ParseAddr(addr)
		f.Add(mode, allowed, services, private, host, port, a.AsSlice(), []byte{8, 8, 4, 4})
	}
	add(1, "a.example\n*.b.example:1", "http://c.example:9/v1", "a.example", "A.example.", 443, "10.0.0.1")
	add(1, "*.example", "http://localhost:1\nhttps://[::1]", "*.example", "a..example", 80, "8.8.4.4")
	add(1, "bücher.example\n*.xn--bcher-kva.test:8", "", "", "xn--BCHER-kva.example", 80, "1.1.1.1")
	add(1, "127.0.0.1:80\n[::ffff:10.0.0.1]:80", "", "127.0.0.1", "0x7f.1", 80, "127.0.0.1")
	add(1, "2606:4700::1\n[64:ff9b::a00:1]:2", "", "64:ff9b::a00:1", "[64:FF9B::10.0.0.1]", 2, "64:ff9b::a00:1")
	add(2, "printer:631", "http://db:5432", "10.0.0.1", "metadata.google.internal", 80, "169.254.169.254")
	add(2, "", "", "", "１２７。0。0。1", 1, "64:ff9b:1:a00:0:100:808:808")
	add(2, "", "", "", "a b\x00\xff", -1, "2002:808:404::1")
	add(0, "*.example", "", "*.example", "a.example", 443, "2001:0:808:808::f7f7:f7f7")
	add(3, "", "", "", "xn--", 65536, "::1")
	f.Fuzz(func(t *testing.T, mode uint8, allowed, services, private, host string, port int, addr, own []byte) {
		checkDecision(t, makeSituation(mode, allowed, services, private, host, port, addr, own))
	})
}

// TestDecide asks about hosts made of the same few parts as the rules, so that many are allowed, or nearly are.
func TestDecide(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(1, 2))}
	count := map[string]int{}
	for range 30000 {
		s := g.situation()
		name, address := checkDecision(t, s)
		count[s.policy.Mode+" name "+name.Reason]++
		count[s.policy.Mode+" address "+address.Reason]++
		if t.Failed() { // one is enough to read
			t.FailNow()
		}
	}
	for _, want := range []string{
		"isolated name isolated", "host name ", "allowlist name ", "allowlist name no_rule", "allowlist name wrong_port",
		"allowlist name bad_name", "allowlist name bad_port", "allowlist name private_address",
		"public name ", "public name not_public", "public name private_address",
		"allowlist address ", "allowlist address private_address", "allowlist address own_address",
		"public address ", "public address private_address", "public address other_address", "public address bad_address",
	} {
		if count[want] < 20 {
			t.Errorf("only %d were %q: %v", count[want], want, count)
		}
	}
}

type generator struct{ *rand.Rand }

func (g generator) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g generator) situation() situation {
	list := func(n int, make func() string) string {
		var all []string
		for range g.IntN(n) {
			all = append(all, make())
		}
		return strings.Join(all, "\n")
	}
	port := func() string { return g.pick("", "", "", ":80", ":443", ":1") }
	allowed := list(6, func() string { return g.pick("", "", "*.") + g.host(true) + port() })
	private := list(4, func() string { return g.pick("", "*.") + g.host(false) })
	host := g.host(false)
	switch g.IntN(3) {
	case 0:
		host = g.near(allowed)
		private += "\n" + g.pick(host, "")
	case 1:
		host = g.near(private)
		allowed += "\n" + g.pick(host, "*.test")
	}
	s := makeSituation(g.pick("\x00", "\x01", "\x01", "\x01", "\x01", "\x02", "\x02", "\x02", "\x03")[0],
		allowed, list(3, func() string {
			return g.pick("http", "https") + "://" + g.host(true) + port() + g.pick("", "/", "/a:b")
		}),
		private, host, []int{1, 80, 443, 443, 443, 443, 443, 443, 65536, 0}[g.IntN(10)], nil, nil)
	if a, _ := netip.ParseAddr(g.address()); !s.addr.IsValid() || g.IntN(4) == 0 {
		s.addr = a
	}
	for range g.IntN(3) {
		if o, err := netip.ParseAddr(g.address()); err == nil {
			s.own = append(s.own, o)
		}
	}
	return s
}

// near is a host that one of the rules names, or almost.
func (g generator) near(rules string) string {
	host := g.pick(strings.Split(rules, "\n")...)
	if i := strings.LastIndexByte(host, ':'); i > 0 && (strings.IndexByte(host, ':') == i || host[i-1] == ']') {
		host = host[:i]
	}
	if below, ok := strings.CutPrefix(host, "*."); ok {
		return g.pick("", "x", "x.", "a.", "a.b.", "*.") + below
	}
	return g.pick("", "", "", "x", "x.") + host
}

func (g generator) address() string {
	return g.pick("1.1.1.1", "1.1.1.1", "8.8.8.8", "10.0.0.1", "127.0.0.1", "169.254.169.254", "0.0.0.0",
		"::ffff:1.1.1.1", "::ffff:10.0.0.1", "2606:4700::1", "2606:4700::1", "::1", "::", "::1.1.1.1", "fd00:ec2::254",
		"64:ff9b::1.1.1.1", "64:ff9b::10.0.0.1", "64:ff9b:1::101:101", "64:ff9b:1:a00:0:100:101:101",
		"2002:101:101::", "2002:a00:1::", "2001:0:101:101::f7f7:f7f7", "fe80::1%eth0", "no address")
}

func (g generator) host(bracketed bool) string {
	switch g.IntN(8) {
	case 0:
		return g.pick("1.1.1.1", "1.1.257", "0x1.1.1.1", "01.01.01.01", "16843009", "127.0.0.1", "127.1", "0x7f000001",
			"10.0.0.1", "10.1", "012.0.0.1", "08.1", "1.1.1.1.1", "0x")
	case 1:
		a := g.address()
		if bracketed && strings.Contains(a, ":") {
			a = "[" + a + "]"
		}
		return a
	}
	var labels []string
	for range 1 + g.IntN(3) {
		labels = append(labels, g.pick("a", "a", "A", "b", "ba", "bücher", "xn--bcher-kva", "BÜCHER", "_x", "1"))
	}
	labels = append(labels, g.pick("test", "test", "test", "TEST", "example", "test", "example", "localhost", "local",
		"internal", "xtest", "1", "テスト"))
	return strings.Join(labels[g.IntN(2)*g.IntN(len(labels)):], ".") + g.pick("", "", "", "", "", "", "", "", "", "", "",
		".", "..", " ", "\x00", "%")
}
