package relay

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

func queryFor(t testing.TB, name string, kind dnsmessage.Type, edns bool) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 77, RecursionDesired: true})
	check(t, b.StartQuestions())
	check(t, b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}))
	if edns {
		var h dnsmessage.ResourceHeader
		check(t, h.SetEDNS0(4096, 0, true))
		check(t, b.StartAdditionals())
		check(t, b.OPTResource(h, dnsmessage.OPTResource{}))
	}
	q, err := b.Finish()
	check(t, err)
	return q
}

func ask(t testing.TB, c net.Conn, query []byte) dnsmessage.Message {
	t.Helper()
	check(t, c.SetDeadline(time.Now().Add(5*time.Second)))
	buf := make([]byte, 4096)
	var n int
	var err error
	if _, tcp := c.(*net.TCPConn); tcp {
		_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...))
		check(t, err)
		_, err = io.ReadFull(c, buf[:2])
		check(t, err)
		n, err = io.ReadFull(c, buf[:binary.BigEndian.Uint16(buf)])
	} else {
		_, err = c.Write(query)
		check(t, err)
		n, err = c.Read(buf)
	}
	check(t, err)
	var m dnsmessage.Message
	check(t, m.Unpack(buf[:n]))
	return m
}

func TestDNS(t *testing.T) {
	policy := netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{"api.example.test:8443", "*.pkg.test", "93.184.216.34", "xn--bcher-kva.test"}}
	w := publicWorld(t)
	addrs := w.start(t, policy, Listener{Kind: DNS}, Listener{Kind: DNSTCP})
	for i, network := range []string{"udp", "tcp"} {
		c, err := net.Dial(network, addrs[i])
		check(t, err)
		defer pipe.Shut(c)
		for _, test := range []struct {
			name string
			kind dnsmessage.Type
			want string
			code dnsmessage.RCode
		}{
			{"api.example.test.", dnsmessage.TypeA, "127.77.0.1", 0},
			{"API.Example.TEST.", dnsmessage.TypeA, "127.77.0.1", 0},
			{"api.example.test.", dnsmessage.TypeAAAA, "", 0},
			{"api.example.test.", dnsmessage.TypeTXT, "", 0},
			{"api.example.test.", dnsmessage.TypeHTTPS, "", 0},
			{"api.example.test.", dnsmessage.TypeALL, "", 0},
			{"a.pkg.test.", dnsmessage.TypeA, "127.77.0.2", 0},
			{"b.a.pkg.test.", dnsmessage.TypeA, "127.77.0.3", 0},
			{"a.pkg.test.", dnsmessage.TypeA, "127.77.0.2", 0},
			{"xn--bcher-kva.test.", dnsmessage.TypeA, "127.77.0.4", 0},
			{"pkg.test.", dnsmessage.TypeA, "", dnsmessage.RCodeNameError},
			{"evil.test.", dnsmessage.TypeA, "", dnsmessage.RCodeNameError},
			{"evil.test.", dnsmessage.TypeTXT, "", dnsmessage.RCodeNameError},
			{"secret.data.evil.test.", dnsmessage.TypeAAAA, "", dnsmessage.RCodeNameError},
			{"93.184.216.34.", dnsmessage.TypeA, "", dnsmessage.RCodeNameError},
			{"1.0.0.127.in-addr.arpa.", dnsmessage.TypePTR, "", dnsmessage.RCodeNameError},
			{".", dnsmessage.TypeNS, "", dnsmessage.RCodeNameError},
			{"*.pkg.test.", dnsmessage.TypeA, "", dnsmessage.RCodeNameError},
			{"a b.pkg.test.", dnsmessage.TypeA, "", dnsmessage.RCodeNameError},
			{"b\u00fccher.test.", dnsmessage.TypeA, "127.77.0.4", 0},
		} {
			for _, edns := range []bool{false, true} {
				m := ask(t, c, queryFor(t, test.name, test.kind, edns))
				got := ""
				for _, a := range m.Answers {
					body, _ := a.Body.(*dnsmessage.AResource)
					got += netip.AddrFrom4(body.A).String()
					if a.Header.TTL != 5 || a.Header.Name.String() != test.name {
						t.Errorf("%s %v: %+v", test.name, test.kind, a.Header)
					}
				}
				if got != test.want || m.RCode != test.code || m.ID != 77 || !m.Response || !m.RecursionAvailable || len(m.Questions) != 1 || (len(m.Additionals) == 1) != edns {
					t.Errorf("%s %v: %+v", test.name, test.kind, m)
				}
			}
		}
	}
	if asked, dialed := w.list(&w.asked), w.list(&w.dialed); len(asked)+len(dialed) > 0 {
		t.Errorf("asked %q, dialed %q: nothing may leave", asked, dialed)
	}
	seen := map[string]int{}
	for i := range len(w.events) {
		ev := w.event(t, i)
		seen[ev.Host]++
		if ev.Kind != "dns" || ev.Verdict != Refused || seen[ev.Host] > 1 {
			t.Errorf("%+v", ev)
		}
	}
	if seen["secret.data.evil.test"] != 1 || seen["api.example.test"] != 0 {
		t.Errorf("events of %v", seen)
	}
}

func TestDNSPoolUsedUp(t *testing.T) {
	w := publicWorld(t)
	addr := w.startWith(t, Config{
		Policy: netpolicy.Policy{Mode: netpolicy.Public}, Listeners: []Listener{{Kind: DNS}}, Limits: Limits{Names: 2},
	})[0]
	c, err := net.Dial("udp", addr)
	check(t, err)
	defer pipe.Shut(c)
	for i, want := range []dnsmessage.RCode{0, 0, dnsmessage.RCodeServerFailure, dnsmessage.RCodeServerFailure} {
		if m := ask(t, c, queryFor(t, fmt.Sprintf("n%d.test.", i), dnsmessage.TypeA, false)); m.RCode != want {
			t.Errorf("%d: %v", i, m.RCode)
		}
	}
	if m := ask(t, c, queryFor(t, "n1.test.", dnsmessage.TypeA, false)); m.RCode != 0 || len(m.Answers) != 1 {
		t.Errorf("%+v", m)
	}
}

func TestNames(t *testing.T) {
	n := newNames(1 << 20)
	for i := range maxNames {
		host := fmt.Sprint("h", i)
		a, ok := n.address(host)
		if got, found := n.host(a); !ok || !found || got != host || a.As4()[3] == 0 || a.As4()[3] == 255 || a.As4()[2] == 255 {
			t.Fatalf("%s: %v, %v; %q, %v", host, a, ok, got, found)
		}
	}
	if _, ok := n.address("more"); ok {
		t.Error("there is no end")
	}
	one := newNames(8)
	_, _ = one.address("a")
	for _, a := range []string{"127.77.0.0", "127.77.0.2", "127.77.0.255", "127.77.255.1", "127.0.0.1", "127.76.0.1", "10.77.0.1", "::1"} {
		if host, ok := one.host(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is %q", a, host)
		}
	}
	if host, ok := one.host(netip.MustParseAddr("::ffff:127.77.0.1")); !ok || host != "a" {
		t.Errorf("%q, %v", host, ok)
	}
}

// Whatever a program sends, it gets an answer that says nothing, or none.
func FuzzDNS(f *testing.F) {
	f.Add(queryFor(f, "api.example.test.", dnsmessage.TypeA, true))
	f.Add(queryFor(f, "evil.test.", dnsmessage.TypeTXT, false))
	f.Add(queryFor(f, "a.example.test.", dnsmessage.TypeAAAA, false)[:20])
	for _, s := range []string{"", "\x00", strings.Repeat("\xc0\x0c", 40), strings.Repeat("\xff", 300)} {
		f.Add([]byte(s))
	}
	s, err := newServer(Config{Policy: publicPolicy()}, nil)
	check(f, err)
	f.Fuzz(func(t *testing.T, query []byte) {
		answer, _ := s.answerDNS(query)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		check(t, m.Unpack(answer))
		for _, a := range m.Answers {
			body, ok := a.Body.(*dnsmessage.AResource)
			if !ok || body.A[0] != 127 || body.A[1] != 77 || !s.judge.Known(m.Questions[0].Name.String()) {
				t.Errorf("%x: %+v", query, m)
			}
		}
		if len(answer) > 512 {
			t.Errorf("%d bytes", len(answer))
		}
	})
}

func TestDNSMalformed(t *testing.T) {
	s, err := newServer(Config{Policy: publicPolicy()}, nil)
	check(t, err)
	two := queryFor(t, "api.example.test.", dnsmessage.TypeA, false)
	two[5] = 2
	status := queryFor(t, "api.example.test.", dnsmessage.TypeA, false)
	status[2] |= 2 << 3
	response := queryFor(t, "api.example.test.", dnsmessage.TypeA, false)
	response[2] |= 0x80
	none := queryFor(t, "api.example.test.", dnsmessage.TypeA, false)[:12]
	none[5] = 0
	chaos := queryFor(t, "api.example.test.", dnsmessage.TypeA, false)
	chaos[len(chaos)-1] = 3
	for name, test := range map[string]struct {
		query []byte
		code  int // -1 for no answer
	}{
		"empty": {nil, -1}, "short": {two[:11], -1}, "two questions": {two, int(dnsmessage.RCodeFormatError)}, "none": {none, int(dnsmessage.RCodeFormatError)},
		"status": {status, int(dnsmessage.RCodeNotImplemented)}, "a response": {response, -1}, "chaos": {chaos, int(dnsmessage.RCodeNameError)},
		"cut": {queryFor(t, "api.example.test.", dnsmessage.TypeA, false)[:20], int(dnsmessage.RCodeFormatError)},
	} {
		answer, _ := s.answerDNS(test.query)
		var p dnsmessage.Parser
		h, err := p.Start(answer)
		if test.code == -1 && answer != nil || test.code >= 0 && (err != nil || int(h.RCode) != test.code) {
			t.Errorf("%s: %x", name, answer)
		}
	}
}

func TestRefusalsAreFew(t *testing.T) {
	var r refusals
	now := time.Now()
	told := 0
	for i := range 10_000 {
		if r.fits(fmt.Sprint(i%5000), now.Add(time.Duration(i)*time.Millisecond)) {
			told++
		}
	}
	if told != noteBurst+9 {
		t.Errorf("%d told in 10 s", told)
	}
}
