package netpolicy

import (
	"strings"
	"testing"
)

func TestParseProxy(t *testing.T) {
	for _, test := range []struct{ text, want, secret string }{
		{"http://proxy.test:3128", "http://proxy.test:3128", ""},
		{"http://PROXY.test/", "http://proxy.test:80", ""},
		{"socks5://10.0.0.1", "socks5://10.0.0.1:1080", ""},
		{"socks5h://u:p%40:x@[fd00::1]:9", "socks5://[fd00::1]:9", "u:p@:x"},
		{"http://us%20er@proxy:8080", "http://proxy:8080", "us er:"},
	} {
		p, err := ParseProxy(test.text)
		if err != nil || p.String() != test.want || p.Secret() != test.secret {
			t.Errorf("%s: %v %q, %v", test.text, p, p.Secret(), err)
		}
	}
	for _, text := range []string{
		"", "proxy", "https://u:hunter2@proxy:1", "socks4://u:hunter2@proxy:1", "http://u:hunter2@", "http://u:hunter2@*.proxy.test:1", "http://u:hunter2@proxy:0",
		"http://u:hunter2@proxy:1/x", "http://u:hunter2@proxy:1?x", "http://u:hunter2@pro xy", "http://u:hunter2@[::1", "http://u%3av:hunter2@proxy",
		"http://u:" + strings.Repeat("hunter2", 40) + "@proxy", "http://u:hunter2@pro%xy",
	} {
		if p, err := ParseProxy(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
}

func TestFindUpstream(t *testing.T) {
	env := map[string]string{
		"HTTPS_PROXY": "http://me:hunter2@proxy.test:3128", "https_proxy": "", "all_proxy": "socks5://socks.test", "no_proxy": "a.test, .b.test,10.0.0.0/8, ,no such host",
	}
	show := func(u *Upstream) string {
		if u == nil {
			return "none"
		}
		text := ""
		for _, p := range []*Proxy{u.HTTP, u.Tunnel} {
			if p != nil {
				text += p.String() + " " + p.Secret()
			}
			text += ";"
		}
		return text + strings.Join(u.NoProxy, ",")
	}
	for _, test := range []struct {
		proxy string
		env   map[string]string
		want  string
	}{
		{"", env, "none"},
		{FromEnvironment, env, "socks5://socks.test:1080 ;http://proxy.test:3128 me:hunter2;own.test,a.test,.b.test,10.0.0.0/8"},
		{FromEnvironment, nil, ";;own.test"},
		{FromEnvironment, map[string]string{"http_proxy": "proxy.test:1", "HTTP_PROXY": "http://other.test:2"}, "http://proxy.test:1 ;;own.test"},
		{"http://proxy.test:3128", env, "http://proxy.test:3128 me:hunter2;http://proxy.test:3128 me:hunter2;own.test"},
		{"http://proxy.test:3129", env, "http://proxy.test:3129 ;http://proxy.test:3129 ;own.test"},
		{"socks5://proxy.test:3128", env, "socks5://proxy.test:3128 ;socks5://proxy.test:3128 ;own.test"},
	} {
		u, err := FindUpstream(&Policy{UpstreamProxy: test.proxy, NoProxy: []string{"own.test"}}, test.env)
		if got := show(u); got != test.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", test.proxy, got, err, test.want)
		}
	}
	_, err := FindUpstream(&Policy{UpstreamProxy: FromEnvironment}, map[string]string{"HTTPS_PROXY": "https://u:hunter2@proxy"})
	if err == nil || !strings.HasPrefix(err.Error(), "HTTPS_PROXY: ") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// Only what can be expected to be a public host goes through a proxy.
func TestRulesProxy(t *testing.T) {
	rules, err := Compile(&Policy{Mode: Public, AllowedHosts: []string{
		"intra.corp.test:22", "db", "metadata.google.internal", "localhost", "10.0.0.9", "127.0.0.1", "8.8.8.8:53",
	}, AllowPrivate: []string{"intra.corp.test", "*.lan.test", "10.0.0.9", "127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	tunnel, plain := &Proxy{Scheme: ProxySOCKS, Address: "s:1"}, &Proxy{Scheme: ProxyHTTP, Address: "h:1"}
	u := &Upstream{HTTP: plain, Tunnel: tunnel, NoProxy: []string{"no.test", ".below.test", "*.star.test", "9.9.9.0/24", "1.1.1.1", "port.test:8443", "[2606:4700::1111]"}}
	for _, test := range []struct {
		host    string
		port    int
		through bool
	}{
		{"api.test", 443, true},
		{"API.test.", 80, true},
		{"8.8.8.8", 53, true},
		{"2606:4700::1", 443, true},
		{"intra.corp.test", 22, false},
		{"x.lan.test", 443, false},
		{"lan.test", 443, true},
		{"db", 443, false},
		{"localhost", 80, false},
		{"metadata.google.internal", 80, false},
		{"10.0.0.9", 443, false},
		{"127.0.0.1", 80, false},
		{"no.test", 443, false},
		{"a.no.test", 443, false},
		{"ano.test", 443, true},
		{"below.test", 443, true},
		{"a.below.test", 443, false},
		{"star.test", 443, true},
		{"b.a.star.test", 443, false},
		{"9.9.9.9", 443, false},
		{"1.1.1.1", 443, false},
		{"1.1.1.2", 443, true},
		{"port.test", 8443, false},
		{"port.test", 443, true},
		{"2606:4700::1111", 443, false},
	} {
		d := rules.Name(test.host, test.port)
		for _, asked := range []*Proxy{tunnel, plain} {
			p := rules.Proxy(u, d, asked == plain)
			if !d.Allow || test.through && p != asked || !test.through && p != nil {
				t.Errorf("%s:%d: %+v goes through %v, want %v", test.host, test.port, d, p, test.through)
			}
		}
	}
	d := rules.Name("api.test", 443)
	if rules.Proxy(nil, d, false) != nil || rules.Proxy(&Upstream{HTTP: plain}, d, false) != nil || rules.Proxy(&Upstream{Tunnel: tunnel, NoProxy: []string{"*"}}, d, false) != nil {
		t.Error("it goes through a proxy that is none")
	}
	if d.Allow = false; rules.Proxy(u, d, false) != nil {
		t.Error("what is refused goes through a proxy")
	}
}
