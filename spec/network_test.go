package spec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// listeners writes a plan's listeners, one a word: "forward@127.0.0.1:8000>127.0.0.1:8000".
func listeners(p *Plan) []string {
	var list []string
	if p.Relay == nil {
		return nil
	}
	for _, d := range p.Relay.Listeners {
		text := d.Kind + "@" + d.Listen.String()
		if d.Target != "" {
			text += ">" + d.Target
		}
		list = append(list, text)
	}
	return list
}

func TestListeners(t *testing.T) {
	env := map[string]string{
		"API": "http://127.0.0.1:7001/v1", "LOCAL": "https://user:word@localhost:7002", "SIX": "http://[::1]:7003",
		"OTHER": "http://127.0.0.9:7004", "REMOTE": "http://a.example:7005", "NOTURL": "127.0.0.1:7006", "HIDDEN": "http://127.0.0.1:7007",
	}
	const pass = "env.allow = [\"API\", \"LOCAL\", \"SIX\", \"OTHER\", \"REMOTE\", \"NOTURL\"]\n"
	for _, tt := range []struct {
		name, policy string
		want         string
	}{
		{"isolated", "", ""},
		{"host", "network.mode = \"host\"\nnetwork.ports = [8000]", ""},
		{
			"port", "network.ports = [8000, \"5432=unix:/run/pg.sock\", \"9000=db.example:9001\"]",
			"forward@127.0.0.1:8000>127.0.0.1:8000 forward@[::1]:8000>127.0.0.1:8000 " +
				"forward@127.0.0.1:5432>unix:/run/pg.sock forward@[::1]:5432>unix:/run/pg.sock " +
				"forward@127.0.0.1:9000>db.example:9001 forward@[::1]:9000>db.example:9001",
		},
		{
			"services", "network.ports = [\"8000=9000\"]\nnetwork.services = [\"http://127.0.0.1:8000\", \"http://localhost/v1\", \"https://a.example\"]",
			"forward@127.0.0.1:8000>127.0.0.1:9000 forward@[::1]:8000>127.0.0.1:9000 " +
				"forward@127.0.0.1:80>127.0.0.1:80 forward@[::1]:80>127.0.0.1:80",
		},
		{
			"environment", pass,
			"forward@127.0.0.1:7001>127.0.0.1:7001 forward@[::1]:7001>127.0.0.1:7001 " +
				"forward@127.0.0.1:7002>127.0.0.1:7002 forward@[::1]:7002>127.0.0.1:7002 " +
				"forward@127.0.0.9:7004>127.0.0.9:7004 " +
				"forward@127.0.0.1:7003>[::1]:7003 forward@[::1]:7003>[::1]:7003",
		},
		{"no environment", pass + "network.env_urls = false", ""},
		{
			"allowlist", "network.mode = \"allowlist\"\nnetwork.allowed_hosts = [\"a.example\", \"b.example:22\", \"c.example:3128\"]",
			"proxy@127.0.0.1:3129 dns@127.0.0.53:53 dns-tcp@127.0.0.53:53 " +
				"direct@0.0.0.0:22 direct@0.0.0.0:80 direct@0.0.0.0:443 direct@0.0.0.0:3128",
		},
		{
			"not transparent", "network.mode = \"allowlist\"\nnetwork.transparent = false\nnetwork.ports = [3128]\nnetwork.allowed_hosts = [\"a.example\"]",
			"forward@127.0.0.1:3128>127.0.0.1:3128 forward@[::1]:3128>127.0.0.1:3128 proxy@127.0.0.1:3129",
		},
		{
			"public", "network.mode = \"public\"",
			"proxy@127.0.0.1:3128 dns@127.0.0.53:53 dns-tcp@127.0.0.53:53 direct@0.0.0.0:80 direct@0.0.0.0:443",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan, err := resolve(t, "version = 1\n"+tt.policy, func(h *Host) { h.Env = env })
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(listeners(plan), " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			own := slices.ContainsFunc(plan.OCI().Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == "network" && ns.Path == "" })
			if own != (tt.name != "host") {
				t.Errorf("a network namespace of its own: %v", own)
			}
		})
	}
}

func TestProxyEnvironment(t *testing.T) {
	caller := map[string]string{"HTTPS_PROXY": "http://callers:1", "no_proxy": "callers"}
	plan, err := resolve(t, "version = 1\nnetwork.mode = \"public\"\nenv.allow = [\"*\"]\nenv.set = { ALL_PROXY = \"\" }", func(h *Host) {
		h.Env, h.Self = caller, "/usr/bin/sandboxrun"
		h.Tree.(roottest.Files)["/usr/bin/sandboxrun"] = "ELF"
	})
	if err != nil {
		t.Fatal(err)
	}
	got := plan.Exec.Passed(caller, map[string]string{"http_proxy": "mine"})
	for name, want := range map[string]string{
		"HTTPS_PROXY": "http://127.0.0.1:3128", "https_proxy": "http://127.0.0.1:3128", "HTTP_PROXY": "http://127.0.0.1:3128",
		"http_proxy": "mine", "ALL_PROXY": "", "all_proxy": "http://127.0.0.1:3128", "NODE_USE_ENV_PROXY": "1",
		"no_proxy": "localhost,127.0.0.1,::1", "NO_PROXY": "localhost,127.0.0.1,::1",
		"GIT_SSH_COMMAND": "ssh -o ProxyCommand='/.sandboxrun proxy-connect %h %p'",
	} {
		if got[name] != want {
			t.Errorf("%s=%q; want %q", name, got[name], want)
		}
	}
	if !hasConnector(plan.View) {
		t.Error("proxy-connect is not inside")
	}
	for _, policy := range []string{"", "network.mode = \"host\"", "network.ports = [8000]"} {
		plan, err := resolve(t, "version = 1\n"+policy, func(h *Host) { h.Self = "/usr/bin/sandboxrun" })
		if err != nil {
			t.Fatal(err)
		}
		for name := range plan.Exec.Passed(nil, nil) {
			if strings.Contains(strings.ToLower(name), "proxy") {
				t.Errorf("%s: %s is set without a proxy", policy, name)
			}
		}
		if hasConnector(plan.View) {
			t.Errorf("%s: this binary is shown for nothing", policy)
		}
	}
}

// The plan warns of hosts that the mode does not allow, and of dangerous settings.
func TestNetworkWarnings(t *testing.T) {
	for policy, want := range map[string]string{
		"network.mode = \"host\"":                                                 "host's own network",
		"network.allowed_hosts = [\"a.example\"]":                                 "a.example cannot be reached",
		"network.services = [\"https://a.example\"]":                              "https://a.example cannot be reached",
		"files.read = [\"/home/ada/work\"]":                                       "listens on the socket /home/ada/work/in/agent.sock",
		"files.read = [\"/home/ada/work\"]\nfiles.deny = [\"/home/ada/work/in\"]": "",
		"files.read = [\"/home/ada/work/in/agent.sock\"]":                         "",
		"network.mode = \"allowlist\"":                                            "", "network.mode = \"public\"": "", "network.ports = [1]": "",
	} {
		plan, err := resolve(t, "version = 1\n"+policy, func(h *Host) {
			h.Sockets = []string{"/home/ada/work/in/agent.sock", "/run/docker.sock"}
			h.Tree.(roottest.Files)["/home/ada/work/in/agent.sock"] = "a socket"
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(plan.Warnings, "; "); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s: warnings %s", policy, got)
		}
	}
	var many []string
	for i := range 9 {
		many = append(many, fmt.Sprintf("/home/ada/work/%d.sock", i))
	}
	plan, err := resolve(t, "version = 1\nfiles.read = [\"/home/ada/work\"]", func(h *Host) { h.Sockets = many })
	if err != nil || len(plan.Warnings) != 6 || !strings.Contains(plan.Warnings[5], "4 more") {
		t.Errorf("%v, %q", err, plan.Warnings)
	}
}

func TestResolvConf(t *testing.T) {
	host := "search example.com\nnameserver 192.0.2.53\n  nameserver\t2001:db8::53 # ours\nnameserver\n"
	for _, c := range []struct{ mode, want string }{
		{"isolated", "# There are no name servers here: the sandbox's network is isolated.\n"},
		{"allowlist", "nameserver 127.0.0.53\n"},
		{"public", "nameserver 127.0.0.53\n# outside: nameserver 192.0.2.53\n# outside: nameserver 2001:db8::53\n"},
		{"host", host},
	} {
		if got := resolvConf(&netpolicy.Policy{Mode: c.mode, Transparent: true}, host); got != c.want {
			t.Errorf("%s: %q", c.mode, got)
		}
	}
}

// The caller's proxy is in the plan without its password; the password is nowhere in what is kept, and in nothing that a program gets.
func TestUpstreamProxy(t *testing.T) {
	caller := map[string]string{
		"HTTPS_PROXY": "http://me:hunter2@proxy.example:3128", "FTP_PROXY": "http://me:hunter2@proxy.example:3128/", "BARE": "me:hunter2@proxy.example:3128",
		"OTHER": "http://me:mine@proxy.example:3128", "ALL_PROXY": "socks5://socks.example",
	}
	const allow = "version = 1\nenv.allow = [\"*\"]\nnetwork.mode = \"allowlist\"\nnetwork.allowed_hosts = [\"a.example\"]\n"
	for _, tt := range []struct{ policy, want, secret string }{
		{"", "", ""},
		{"network.upstream_proxy = \"environment\"", "http://proxy.example:3128 socks5://socks.example:1080", "me:hunter2"},
		{"network.upstream_proxy = \"http://proxy.example:3128\"", "http://proxy.example:3128", "me:hunter2"},
		{"network.upstream_proxy = \"socks5://proxy.example:3128\"", "socks5://proxy.example:3128", ""},
	} {
		plan, err := resolve(t, allow+tt.policy, func(h *Host) { h.Env = caller })
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(plan.Relay.Upstream, " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.policy, got, tt.want)
		}
		if u := plan.Relay.Proxies; (u == nil) != (tt.want == "") || u != nil && u.Tunnel.Secret() != tt.secret {
			t.Errorf("%s: %+v", tt.policy, u)
		}
		kept, err := json.Marshal(plan)
		if err != nil || strings.Contains(string(kept), "hunter2") {
			t.Errorf("%s: the plan has the password, or %v", tt.policy, err)
		}
		inside := plan.Exec.Passed(caller, nil)
		if all := fmt.Sprint(inside); tt.secret != "" && strings.Contains(all, "hunter2") || inside["OTHER"] != caller["OTHER"] {
			t.Errorf("%s: %s", tt.policy, all)
		}
		if tt.secret != "" && (inside["FTP_PROXY"] != "http://proxy.example:3128/" || inside["BARE"] != "proxy.example:3128") {
			t.Errorf("%s: %q, %q", tt.policy, inside["FTP_PROXY"], inside["BARE"])
		}
	}
	for _, tt := range []struct{ policy, variable, want string }{
		{allow + "network.upstream_proxy = \"environment\"", "https://me:hunter2@proxy.example", "HTTPS_PROXY: parse proxy: its scheme is"},
		{"version = 1\nnetwork.upstream_proxy = \"environment\"", "https://me:hunter2@proxy.example", ""},
	} {
		plan, err := resolve(t, tt.policy, func(h *Host) { h.Env = map[string]string{"HTTPS_PROXY": tt.variable} })
		switch {
		case tt.want == "" && (err != nil || !strings.Contains(strings.Join(plan.Warnings, " "), "network.upstream_proxy has no effect")):
			t.Errorf("%s: %v, %q", tt.policy, err, plan.Warnings)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: %v", tt.policy, err)
		}
	}
}
