package netpolicy

import (
	"net/netip"
	"testing"
)

func TestExplain(t *testing.T) {
	p := Policy{
		AllowedHosts: []string{
			"api.example.com", "*.example.org:8443", "10.0.0.1", "10.0.0.2:1", "2606:4700::1",
			"printer:631",
		},
		Services: []string{"https://svc.example/v1"},
	}
	for _, c := range []struct {
		mode, host string
		port       int
		addr       string
		want       string
	}{
		{
			Allowlist, "API.example.com.", 443, "",
			`api.example.com:443 is allowed by "api.example.com" of network.allowed_hosts`,
		},
		{
			Allowlist, "a.example.org", 8443, "1.1.1.1",
			`a.example.org:8443 is allowed by "*.example.org:8443" of network.allowed_hosts`,
		},
		{Allowlist, "svc.example", 443, "", `svc.example:443 is allowed by "https://svc.example/v1" of network.services`},
		{Public, "a.example", 1, "", `a.example:1 is allowed by network.mode = "public"`},
		{Host, "a", 1, "", `a:1 is allowed by network.mode = "host"`},
		{
			Allowlist, "evil.example", 443, "",
			`evil.example:443 is not allowed: no rule of network.allowed_hosts names it; add "evil.example"`,
		},
		{
			Allowlist, "evil.example", 22, "",
			`evil.example:22 is not allowed: no rule of network.allowed_hosts names it; add "evil.example:22"`,
		},
		{
			Allowlist, "2606:4700::2", 22, "",
			`[2606:4700::2]:22 is not allowed: no rule of network.allowed_hosts names it; add "[2606:4700::2]:22"`,
		},
		{
			Allowlist, "127.1", 80, "",
			`127.0.0.1:80 is not allowed: no rule of network.allowed_hosts names it; add "127.0.0.1", and "127.0.0.1" to ` +
				`network.allow_private, since it is a loopback address`,
		},
		{
			Allowlist, "api.example.com", 22, "",
			`api.example.com:22 is not allowed: "api.example.com" of network.allowed_hosts is for another port; ` +
				`add "api.example.com:22" to network.allowed_hosts`,
		},
		{
			Allowlist, "a.example.org", 443, "",
			`a.example.org:443 is not allowed: "*.example.org:8443" of network.allowed_hosts is for another port; ` +
				`add "a.example.org:443" to network.allowed_hosts`,
		},
		{
			Allowlist, "10.0.0.2", 22, "",
			`10.0.0.2:22 is not allowed: "10.0.0.2:1" of network.allowed_hosts is for another port; add "10.0.0.2:22" to ` +
				`network.allowed_hosts, and "10.0.0.2" to network.allow_private, since it is a private address`,
		},
		{
			Allowlist, "svc.example", 80, "",
			`svc.example:80 is not allowed: "https://svc.example/v1" of network.services is for another port; ` +
				`add "svc.example:80" to network.allowed_hosts`,
		},
		{
			Allowlist, "api.example.com", 443, "10.0.0.7",
			`api.example.com:443 is not allowed: it resolves to a private address; add "api.example.com" to network.allow_private`,
		},
		{
			Allowlist, "api.example.com", 443, "64:ff9b::a9fe:a9fe",
			`api.example.com:443 is not allowed: it resolves to a cloud metadata address; ` +
				`add "api.example.com" to network.allow_private`,
		},
		{
			Allowlist, "10.1", 443, "",
			`10.0.0.1:443 is not allowed: it is a private address; add "10.0.0.1" to network.allow_private`,
		},
		{
			Allowlist, "api.example.com", 443, "8.8.4.4",
			`api.example.com:443 is not allowed: it resolves to an address of this machine; ` +
				`add "api.example.com" to network.allow_private`,
		},
		{
			Public, "8.8.4.4", 443, "8.8.4.4",
			`8.8.4.4:443 is not allowed: it is an address of this machine; add "8.8.4.4" to network.allow_private`,
		},
		{
			Public, "scanner", 631, "",
			`scanner:631 is not allowed: network.mode is "public", and this is a local name; add "scanner:631" to network.allowed_hosts`,
		},
		{
			Isolated, "a.example", 443, "",
			`a.example:443 is not allowed: network.mode is "isolated"; it takes "allowlist", and "a.example" in network.allowed_hosts`,
		},
		{Public, "a b\x00\u202e", 443, "", `"a b\x00\u202e" is not allowed: it is neither a host name nor an IP address`},
		{Public, "a.example", 0, "", `a.example:0 is not allowed: a port is a number from 1 to 65535`},
		{Public, "::1", 65536, "", `[::1]:65536 is not allowed: a port is a number from 1 to 65535`},
		{
			Public, "a.example", 1, "fe80::1%\x1b[2J",
			`a.example:1 is not allowed: it resolves to what is no address to connect to`,
		},
		{Public, "1.1.1.1", 1, "1.1.1.2", `1.1.1.1:1 is not allowed: it was to be connected to another address`},
	} {
		p.Mode = c.mode
		r := compile(t, p)
		d := r.Name(c.host, c.port)
		if addr, err := netip.ParseAddr(c.addr); err == nil {
			d = r.Address(d, addr, []netip.Addr{netip.MustParseAddr("8.8.4.4")})
		}
		if got := d.Explain(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if got, want := (Decision{}).Explain(), ":0 is not allowed: no policy was asked"; got != want {
		t.Errorf("got %s", got)
	}
}
