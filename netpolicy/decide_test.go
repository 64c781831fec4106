package netpolicy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func compile(t testing.TB, p Policy) *Rules {
	t.Helper()
	r, err := Compile(&p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// question is a host and port, and what Name must say: the rule that allows it, or the reason.
type question struct {
	host string
	port int
	want string
}

// ask compares what Name says, and that Known agrees. Rules are written with a "+" before them.
func ask(t *testing.T, r *Rules, questions []question) {
	t.Helper()
	for _, q := range questions {
		d := r.Name(q.host, q.port)
		got := d.Reason
		if d.Allow {
			got = "+" + d.Rule
		}
		if got != q.want || d.Port != q.port || d.Allow == (d.Reason != "") {
			t.Errorf("Name(%q, %d) = %+v; want %s", q.host, q.port, d, q.want)
		}
		if d.Allow && !r.Known(q.host) {
			t.Errorf("Known(%q) = false, but port %d is allowed", q.host, q.port)
		}
	}
}

func TestAllowlist(t *testing.T) {
	ask(t, compile(t, Policy{
		Mode: Allowlist,
		AllowedHosts: []string{
			"api.example.com", "*.example.org:8443", "one.example.org:1", "*.deep.wild.test", "bücher.example",
			"*.xn--bcher-kva.test",
			"1.1.1.1", "8.8.8.8:53", "2606:4700::1111", "[2606:4700::2]:8443", "10.0.0.1", "127.0.0.1:8000",
			"localhost:8000", "two.test:1", "two.test:2", "*.test:7",
		},
		Services: []string{
			"http://127.0.0.1:8001/v1", "http://svc.example/v1", "https://svc.example:444",
			"http://localhost:8002", "http://10.0.0.2:80",
		},
		AllowPrivate: []string{"127.0.0.1"},
	}), []question{
		{"api.example.com", 443, "+api.example.com"},
		{"api.example.com", 80, "+api.example.com"},
		{"API.Example.COM.", 443, "+api.example.com"},
		{"api.example.com", 8443, ReasonWrongPort},
		{"api.example.com", 22, ReasonWrongPort},
		{"api.example.com..", 443, ReasonBadName},
		{"evil-api.example.com", 443, ReasonNoRule},
		{"evilapi.example.com", 443, ReasonNoRule},
		{"sub.api.example.com", 443, ReasonNoRule},
		{"example.com", 443, ReasonNoRule},
		{"com", 443, ReasonNoRule},
		{"api.example.com.evil.test", 443, ReasonWrongPort}, // of *.test:7
		{"api.example.com.evil", 443, ReasonNoRule},
		{"api.example", 443, ReasonNoRule},
		{"api-example.com", 443, ReasonNoRule},
		{"api.example.com\x00.evil", 443, ReasonBadName},
		{"api.example.com@evil.test", 443, ReasonBadName},
		{"api.example.com:443", 443, ReasonBadName},
		{"api.example.com%2eevil", 443, ReasonBadName},
		{"api.example.com ", 443, ReasonBadName},
		{"аpi.example.com", 443, ReasonNoRule}, // a Cyrillic letter
		{"ａｐｉ.example.com", 443, "+api.example.com"},

		{"a.example.org", 8443, "+*.example.org:8443"},
		{"b.a.example.org", 8443, "+*.example.org:8443"},
		{"A.EXAMPLE.ORG.", 8443, "+*.example.org:8443"},
		{"example.org", 8443, ReasonNoRule},
		{".example.org", 8443, ReasonBadName},
		{"evilexample.org", 8443, ReasonNoRule},
		{"a.evilexample.org", 8443, ReasonNoRule},
		{"a.example.org", 443, ReasonWrongPort},
		{"a.example.org.evil", 8443, ReasonNoRule},
		{"one.example.org", 1, "+one.example.org:1"},
		{"one.example.org", 8443, "+*.example.org:8443"},
		{"one.example.org", 2, ReasonWrongPort},
		{"x.deep.wild.test", 443, "+*.deep.wild.test"},
		{"deep.wild.test", 443, ReasonWrongPort},
		{"deep.wild.test", 7, "+*.test:7"},
		{"test", 7, ReasonNoRule},
		{"two.test", 1, "+two.test:1"},
		{"two.test", 2, "+two.test:2"},
		{"two.test", 3, ReasonWrongPort},

		{"bücher.example", 443, "+bücher.example"},
		{"BÜCHER.example", 443, "+bücher.example"},
		{"xn--bcher-kva.example", 443, "+bücher.example"},
		{"XN--BCHER-KVA.example.", 443, "+bücher.example"},
		{"bucher.example", 443, ReasonNoRule},
		{"a.bücher.example", 443, ReasonNoRule},
		{"a.bücher.test", 443, "+*.xn--bcher-kva.test"},
		{"bücher.test", 443, ReasonWrongPort},
		{"a.xn--bcher-kva.test", 443, "+*.xn--bcher-kva.test"},
		{"xn--r8jz45g.example", 443, ReasonNoRule},

		{"1.1.1.1", 443, "+1.1.1.1"},
		{"1.1.1.1.", 443, "+1.1.1.1"},
		{"1.1.257", 443, "+1.1.1.1"},
		{"0x01010101", 80, "+1.1.1.1"},
		{"16843009", 80, "+1.1.1.1"},
		{"::ffff:1.1.1.1", 443, "+1.1.1.1"},
		{"[::ffff:101:101]", 443, "+1.1.1.1"},
		{"::1.1.1.1", 443, ReasonNoRule}, // another address, whatever it is judged by
		{"64:ff9b::1.1.1.1", 443, ReasonNoRule},
		{"1.1.1.1", 53, ReasonWrongPort},
		{"1.1.1.2", 443, ReasonNoRule},
		{"8.8.8.8", 53, "+8.8.8.8:53"},
		{"010.010.010.010", 53, "+8.8.8.8:53"}, // octal
		{"8.8.8.8", 443, ReasonWrongPort},
		{"2606:4700::1111", 443, "+2606:4700::1111"},
		{"[2606:4700:0::1111]", 443, "+2606:4700::1111"},
		{"2606:4700::1111%eth0", 443, ReasonBadName},
		{"2606:4700::2", 8443, "+[2606:4700::2]:8443"},
		{"2606:4700::2", 443, ReasonWrongPort},

		{"10.0.0.1", 443, ReasonPrivate}, // it stands in allowed_hosts alone
		{"012.1", 443, ReasonPrivate},
		{"10.0.0.1", 22, ReasonWrongPort},
		{"010.0.0.1", 443, ReasonNoRule}, // 8.0.0.1
		{"127.0.0.1", 8000, "+127.0.0.1:8000"},
		{"127.1", 8000, "+127.0.0.1:8000"},
		{"::ffff:7f00:1", 8000, "+127.0.0.1:8000"},
		{"127.0.0.2", 8000, ReasonNoRule},
		{"::1", 8000, ReasonNoRule},
		{"localhost", 8000, "+localhost:8000"},
		{"127.0.0.1", 8001, ReasonWrongPort}, // a service on the loopback is a forwarded port
		{"localhost", 8002, ReasonWrongPort},
		{"svc.example", 80, "+http://svc.example/v1"},
		{"svc.example", 444, "+https://svc.example:444"},
		{"svc.example", 443, ReasonWrongPort},
		{"10.0.0.2", 80, ReasonPrivate},

		{"api.example.com", 0, ReasonBadPort},
		{"api.example.com", -1, ReasonBadPort},
		{"api.example.com", 65536, ReasonBadPort},
		{"api.example.com", 65536 + 443, ReasonBadPort},
		{"evil.example", 0, ReasonBadPort},
		{"", 443, ReasonBadName},
		{"", 0, ReasonBadName},
	})
}

func TestPublic(t *testing.T) {
	const public = `+mode = "public"`
	ask(t, compile(t, Policy{
		Mode:         Public,
		AllowedHosts: []string{"printer:631", "metadata.google.internal", "api.example.com:1", "*.corp.local", "10.0.0.1"},
		Services:     []string{"http://db:5432", "http://localhost:80", "http://a.localhost:81"},
		AllowPrivate: []string{"10.0.0.2", "intranet", "*.lan.internal", "10.0.0.1"},
	}), []question{
		{"a.example", 1, public},
		{"A.Example.", 65535, public},
		{"bücher.example", 25, public},
		{"1.1.1.1", 53, public},
		{"2606:4700::1111", 53, public},
		{"api.example.com", 1, "+api.example.com:1"},
		{"api.example.com", 2, public},
		{"a.localhost.example", 80, public},
		{"internal.example", 80, public},
		{"evilinternal.org", 80, public},
		{"localhost", 80, ReasonNotPublic},
		{"LOCALHOST.", 80, ReasonNotPublic},
		{"a.localhost", 81, ReasonNotPublic}, // a service on the loopback is a forwarded port, no rule
		{"a.b.localhost", 80, ReasonNotPublic},
		{"printer.local", 80, ReasonNotPublic},
		{"local", 80, ReasonNotPublic},
		{"x.internal", 80, ReasonNotPublic},
		{"metadata", 80, ReasonNotPublic},
		{"ai", 80, ReasonNotPublic},
		{"例え", 80, ReasonNotPublic},
		{"metadata.google.internal", 80, "+metadata.google.internal"},
		{"metadata.google.internal", 8080, ReasonWrongPort},
		{"a.metadata.google.internal", 80, ReasonNotPublic},
		{"printer", 631, "+printer:631"},
		{"printer", 80, ReasonWrongPort},
		{"db", 5432, "+http://db:5432"},
		{"db", 80, ReasonWrongPort},
		{"a.corp.local", 80, "+*.corp.local"},
		{"corp.local", 80, ReasonNotPublic},
		{"intranet", 80, ReasonNotPublic}, // allow_private is about addresses
		{"a.lan.internal", 80, ReasonNotPublic},
		{"10.0.0.1", 80, "+10.0.0.1"},
		{"10.0.0.1", 22, public},
		{"10.0.0.2", 22, public},
		{"10.2", 22, public},
		{"10.0.0.3", 80, ReasonPrivate},
		{"169.254.169.254", 80, ReasonPrivate},
		{"0xa9fea9fe", 80, ReasonPrivate},
		{"2130706433", 80, ReasonPrivate},
		{"0", 80, ReasonPrivate},
		{"::1", 80, ReasonPrivate},
		{"::", 80, ReasonPrivate},
		{"64:ff9b::10.0.0.2", 80, ReasonPrivate}, // allow_private has another address
		{"::ffff:10.0.0.2", 80, public},
		{"a.example", 0, ReasonBadPort},
		{"a b", 80, ReasonBadName},
		{"fe80::1%eth0", 80, ReasonBadName},
	})
}

func TestOtherModes(t *testing.T) {
	all := Policy{
		AllowedHosts: []string{"*.example", "1.1.1.1"}, Services: []string{"http://svc.example"},
		AllowPrivate: []string{"*.example", "127.0.0.1"},
	}
	for _, mode := range Modes() {
		p := all
		p.Mode = mode
		r := compile(t, p)
		for _, host := range []string{"a.example", "1.1.1.1", "127.0.0.1", "svc.example", "localhost"} {
			d := r.Name(host, 80)
			switch mode {
			case Isolated:
				if d.Reason != ReasonIsolated || r.Known(host) {
					t.Errorf("isolated: %+v, known %v", d, r.Known(host))
				}
			case Host:
				if !d.Allow || d.Rule != `mode = "host"` || !r.Known(host) {
					t.Errorf("host: %+v, known %v", d, r.Known(host))
				}
				if d = r.Address(d, netip.MustParseAddr("10.0.0.1"), nil); !d.Allow {
					t.Errorf("host: %+v", d)
				}
			}
		}
		for _, host := range badNames() {
			d := r.Name(host, 443)
			if mode != Host && (d.Reason != ReasonBadName || r.Known(host)) {
				t.Errorf("%s: Name(%.80q) = %+v, known %v", mode, host, d, r.Known(host))
			}
			if mode == Host && !d.Allow {
				t.Errorf("host: Name(%.80q) = %+v", host, d)
			}
			if again := r.Name(d.Host, 443); mode != Host && again.Reason != ReasonBadName {
				t.Errorf("%s: %q, which was written for a bad name, is %+v", mode, d.Host, again)
			}
		}
	}
	var none Rules
	if d := none.Name("a.example", 443); d.Allow || none.Known("a.example") || none.Ports() != nil {
		t.Errorf("rules that were not compiled say %+v", d)
	}
}

func TestAddress(t *testing.T) {
	p := Policy{
		AllowedHosts: []string{
			"a.example", "*.lan.example", "db.lan.example:5432", "localhost", "1.1.1.1", "10.0.0.1",
			"10.0.0.2", "64:ff9b::a00:1", "2606:4700::1",
		},
		AllowPrivate: []string{"*.LAN.example", "localhost", "10.0.0.1", "10.0.0.9", "2606:4700::1"},
	}
	own := []netip.Addr{netip.MustParseAddr("8.8.4.4"), netip.MustParseAddr("2606:4700::1"), netip.MustParseAddr("10.0.0.9")}
	for _, mode := range []string{Allowlist, Public} {
		p.Mode = mode
		r := compile(t, p)
		for _, c := range []struct{ host, addr, want string }{
			{"a.example", "93.184.216.34", ""},
			{"a.example", "::ffff:93.184.216.34", ""},
			{"a.example", "2606:4700::1111", ""},
			{"a.example", "64:ff9b::8.8.8.8", ""},
			{"a.example", "10.0.0.1", ReasonPrivate}, // in allow_private, but this is not the host that was asked for
			{"a.example", "10.0.0.9", ReasonPrivate},
			{"a.example", "::ffff:10.0.0.1", ReasonPrivate},
			{"a.example", "64:ff9b::10.0.0.1", ReasonPrivate},
			{"a.example", "127.0.0.1", ReasonPrivate},
			{"a.example", "::1", ReasonPrivate},
			{"a.example", "0.0.0.0", ReasonPrivate},
			{"a.example", "169.254.169.254", ReasonPrivate},
			{"a.example", "224.0.0.1", ReasonPrivate},
			{"a.example", "fd00:ec2::254", ReasonPrivate},
			{"a.example", "8.8.4.4", ReasonOwn},
			{"a.example", "::ffff:8.8.4.4", ReasonOwn},
			{"a.example", "2002:808:404::", ReasonOwn},
			{"a.example", "2606:4700::1", ReasonOwn},
			{"a.example", "", ReasonBadAddress},
			{"a.example", "2606:4700::1111%eth0", ReasonBadAddress},
			{"a.example", "::ffff:8.8.8.8%eth0", ReasonBadAddress},
			{"b.lan.example", "10.0.0.7", ""},
			{"B.Lan.Example.", "169.254.169.254", ""},
			{"b.lan.example", "8.8.4.4", ""},
			{"b.lan.example", "fe80::1", ""},
			{"b.lan.example", "fe80::1%eth0", ReasonBadAddress},
			{"b.lan.example", "", ReasonBadAddress},
			{"localhost", "127.0.0.1", ""},
			{"1.1.1.1", "1.1.1.1", ""},
			{"1.1.1.1", "::ffff:1.1.1.1", ""},
			{"::ffff:1.1.1.1", "1.1.1.1", ""},
			{"1.1.1.1", "1.1.1.2", ReasonOtherAddress},
			{"1.1.1.1", "10.0.0.1", ReasonOtherAddress},
			{"1.1.1.1", "64:ff9b::1.1.1.1", ReasonOtherAddress},
			{"10.0.0.1", "10.0.0.1", ""},
			{"10.1", "10.0.0.1", ""},
			{"10.0.0.1", "10.0.0.2", ReasonOtherAddress},
			{"10.0.0.2", "10.0.0.2", ReasonPrivate},
			{"64:ff9b::a00:1", "64:ff9b::a00:1", ReasonPrivate},
			{"2606:4700::1", "2606:4700::1", ""},
			{"evil.example.", "10.0.0.1", map[string]string{Allowlist: ReasonNoRule, Public: ReasonPrivate}[mode]},
			{"evillan.example", "10.0.0.1", map[string]string{Allowlist: ReasonNoRule, Public: ReasonPrivate}[mode]},
			{"lan.example", "10.0.0.1", map[string]string{Allowlist: ReasonNoRule, Public: ReasonPrivate}[mode]},
		} {
			addr, _ := netip.ParseAddr(c.addr)
			d := r.Address(r.Name(c.host, 443), addr, own)
			if d.Reason != c.want || d.Allow != (c.want == "") {
				t.Errorf("%s: %q at %q: %+v; want %q", mode, c.host, c.addr, d, c.want)
			}
			if d.Allow && d.Address != addr.Unmap() {
				t.Errorf("%s: %q at %q: address %s", mode, c.host, c.addr, d.Address)
			}
		}
	}
}

func TestAddressOfARefusal(t *testing.T) {
	r := compile(t, Policy{Mode: Allowlist, AllowedHosts: []string{"a.example"}, AllowPrivate: []string{"*.example"}})
	for _, d := range []Decision{r.Name("b.example", 443), r.Name("a.example", 1), r.Name("a b", 443), {}} {
		if got := r.Address(d, netip.MustParseAddr("1.1.1.1"), nil); got != d || got.Allow {
			t.Errorf("%+v became %+v", d, got)
		}
	}
}

func TestKnown(t *testing.T) {
	r := compile(t, Policy{
		Mode: Allowlist, AllowedHosts: []string{"a.example:1", "*.b.example", "10.0.0.1:1", "10.0.0.2:1"},
		AllowPrivate: []string{"10.0.0.2"},
		Services:     []string{"http://c.example:9", "http://localhost:1"},
	})
	for host, want := range map[string]bool{
		"a.example": true, "A.example.": true, "b.example": false, "x.b.example": true, "y.x.b.example": true,
		"c.example": true, "d.example": false,
		"localhost": false, "10.0.0.1": false, "10.0.0.2": true, "10.2": true, "a b": false, "": false,
		"a.example..": false, "xa.example": false,
	} {
		if got := r.Known(host); got != want {
			t.Errorf("Known(%q) = %v", host, got)
		}
	}
}

func TestPorts(t *testing.T) {
	hosts := []string{"a.example:8443", "b.example:22", "c.example:22", "d.example:443"}
	for _, c := range []struct {
		policy Policy
		want   []int
	}{
		{Policy{Mode: Allowlist}, nil},
		{Policy{Mode: Allowlist, AllowedHosts: []string{"a.example"}}, []int{80, 443}},
		{Policy{Mode: Allowlist, AllowedHosts: hosts}, []int{22, 443, 8443}},
		{Policy{Mode: Allowlist, Services: []string{"http://127.0.0.1:8000", "https://a.example"}}, []int{443}},
		{Policy{Mode: Public}, []int{80, 443}},
		{Policy{Mode: Public, AllowedHosts: hosts}, []int{22, 80, 443, 8443}},
		{Policy{Mode: Isolated, AllowedHosts: hosts}, nil},
		{Policy{Mode: Host, AllowedHosts: hosts}, nil},
	} {
		if got := compile(t, c.policy).Ports(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: ports %v; want %v", c.policy, got, c.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	_, err := Compile(&Policy{
		Mode: "open", AllowedHosts: []string{"a b", "c.example"}, Services: []string{"ftp://d"},
		AllowPrivate: []string{"e:1"},
	})
	if err == nil {
		t.Fatal("a bad policy is accepted")
	}
	for _, want := range []string{`mode "open"`, `host "a b"`, `service "ftp://d"`, `host "e:1"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if _, err := Compile(&Policy{}); err == nil {
		t.Error("an empty mode is accepted")
	}
}
