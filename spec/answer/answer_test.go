package answer

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// explainWith resolves a policy on a made-up machine.
func explainWith(t *testing.T, text string, h *spec.Host) (*policy.Policy, *spec.Plan) {
	t.Helper()
	p, err := policy.Load(policy.Input{Name: "task.toml", Data: []byte(text), Dir: "/p"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := spec.Resolve(p, h)
	if err != nil {
		t.Fatal(err)
	}
	return p, plan
}

func host(env map[string]string) *spec.Host {
	return &spec.Host{
		UID: 1000, GID: 1000, User: "ada", Group: "ada", Arch: "amd64", Kernel: spec.Kernel{Major: 6, Minor: 1}, Env: env,
		Resolv: "nameserver 192.0.2.53\n", CPUs: 4, Nofile: 20000,
		Tree: roottest.Files{"/usr": "/", "/usr/bin": "/", "/etc": "/", "/etc/services": "http 80/tcp\n", "/tmp": "/"},
	}
}

const explainPolicy = `version = 1
[env]
allow = ["LC_*", "*_KEY", "DATA_URL"]
set = { LC_TIME = "C", MY_TOKEN = "0123456789abcdef", SHORT_KEY = "0" }
[network]
mode = "isolated"
`

func TestExplainVariable(t *testing.T) {
	p, plan := explainWith(t, explainPolicy, host(nil))
	caller := map[string]string{"LC_ALL": "x", "A_KEY": "0123456789abcdefSECRET", "HOME": "/h", "OTHER": "hidden-value", "LC_TIME": "y"}
	for _, c := range []struct {
		name, is, rule, from, why, hint string
		ok                              bool
	}{
		{"LC_ALL", "passes, with the caller's value", "env.allow", "task.toml:3:10", `env.allow at task.toml:3:10 has "LC_*"`, "", true},
		{"LC_TIME", "set by the policy", "env.set", "task.toml:4:9", `env.set at task.toml:4:9 gives it "C"; this overrides`, "", true},
		{"MY_TOKEN", "set by the policy", "env.set", "task.toml:4:24", "a value that is not printed", "", true},
		{"A_KEY", "passes, with the caller's value", "env.allow", "task.toml:3:18", "env.redact replaces its value by <NAME>", "", true},
		{"HOME", "made by sandboxrun", "default", "", "the caller's value does not pass", "", true},
		{"LC_NUMERIC", "not set", "env.allow", "task.toml:3:10", "the caller does not have it", "", false},
		{"OTHER", "does not pass", "default", "", "the caller has it", `env.allow = ["OTHER"]`, false},
		{"NOTHING", "does not pass", "default", "", "nor does the caller have it", `env.set = { NOTHING = "..." }`, false},
	} {
		a := Variable(p, plan, caller, c.name)
		why := strings.Join(a.Why, "; ")
		if a.OK != c.ok || a.Is != c.is || a.Rule != c.rule || a.From != c.from || !strings.Contains(why, c.why) || a.Hint != c.hint {
			t.Errorf("%+v", a)
		}
		if strings.Contains(why, "SECRET") || strings.Contains(why, "hidden-value") || strings.Contains(why, "0123456789abcdef") {
			t.Errorf("a value is printed: %s", why)
		}
		// It is what the program has.
		passes := slices.ContainsFunc(plan.Exec.Environ(caller, nil), func(kv string) bool { return strings.HasPrefix(kv, c.name+"=") })
		if passes != c.ok {
			t.Errorf("%s: the program has it: %v, and explain says %v", c.name, passes, c.ok)
		}
	}
	p.Env.Redact = false
	if why := strings.Join(Variable(p, plan, caller, "MY_TOKEN").Why, "; "); !strings.Contains(why, "env.redact is off") {
		t.Error(why)
	}
}

func TestExplainHost(t *testing.T) {
	isolated, loop := explainPolicy+"env_urls = true\nports = [8000, \"5432=unix:/run/pg.sock\"]\nservices = [\"http://localhost:9000/v1\"]\n", "allowlist"
	allow := "version = 1\n[network]\nmode = \"" + loop + "\"\nallowed_hosts = [\"api.example.com\", \"*.example.org:8443\", \"10.0.0.1\"]\n" +
		"allow_private = [\"*.example.org\"]\n"
	caller := map[string]string{"DATA_URL": "http://user:pw@127.0.0.1:7000/x", "A_KEY": "http://127.0.0.1:7100/secret"}
	for _, c := range []struct {
		policy, host  string
		port          int
		ok            bool
		is, from, why string
	}{
		{explainPolicy, "example.com", 443, false, "not allowed", "task.toml:6:8", `network.mode is "isolated"`},
		{explainPolicy, "127.0.0.1", 80, false, "not forwarded", "", "no rule forwards port 80"},
		{"version = 1\n[network]\nmode = \"host\"\n", "anything", 1, true, "allowed", "task.toml:3:8", "no rule applies"},
		{isolated, "127.0.0.1", 8000, true, "forwarded to 127.0.0.1:8000", "task.toml:8:10", "forwards the port to 127.0.0.1:8000"},
		{isolated, "localhost", 5432, true, "forwarded to unix:/run/pg.sock", "task.toml:8:16", "forwards the port to unix:/run/pg.sock"},
		{isolated, "[::1]", 9000, true, "forwarded to 127.0.0.1:9000", "task.toml:9:13", "forwards the port to 127.0.0.1:9000"},
		{isolated, "127.0.0.1", 7100, true, "forwarded to 127.0.0.1:7100", "", "the variable A_KEY of the passed environment"},
		{isolated, "127.0.0.1", 7000, true, "forwarded to 127.0.0.1:7000", "", "the variable DATA_URL of the passed environment"},
		{isolated, "127.0.0.2", 8000, false, "not forwarded", "", "no rule forwards port 8000"},
		{allow, "127.0.0.1", 8000, false, "not forwarded", "", "no rule forwards port 8000"},
		{allow, "api.example.com", 443, true, "allowed", "task.toml:4:18", "only to public addresses"},
		{allow, "API.example.com.", 80, true, "allowed", "task.toml:4:18", "programs that ignore proxy variables reach it too"},
		{allow + "transparent = false\n", "api.example.com", 80, true, "allowed", "task.toml:4:18", "programs that ignore proxy variables do not reach it"},
		{isolated, "127.0.0.1", 65536 + 8000, false, "not allowed", "task.toml:6:8", "a port is a number"},
		{allow, "127.0.0.1", 3128, true, "the sandbox's own proxy", "task.toml:3:8", "the relay listens there"},
		{allow, "127.0.0.53", 53, true, "the sandbox's own name server", "task.toml:3:8", "the relay listens there"},
		{allow, "localhost", 53, false, "not forwarded", "", "no rule forwards port 53"},
		{allow, "x.example.org", 8443, true, "allowed", "task.toml:4:37", `network.allow_private at task.toml:5:18 has "*.example.org"`},
		{allow, "x.example.org", 443, false, "not allowed", "task.toml:4:37", "is for another port"},
		{allow, "10.0.0.1", 443, false, "not allowed", "task.toml:4:59", "network.allow_private"},
		{allow + "upstream_proxy = \"http://proxy.example:3128\"\nno_proxy = [\"no.example.org\"]\n", "api.example.com", 443, true, "allowed", "task.toml:4:18", "http://proxy.example:3128 for it, by network.upstream_proxy at task.toml:6:18"},
		{allow + "upstream_proxy = \"http://proxy.example:3128\"\n", "x.example.org", 8443, true, "allowed", "task.toml:4:37", "network.allow_private at"},
		{allow, "bad host", 443, false, "not allowed", "task.toml:3:8", "neither a host name"},
		{allow, "other.com", 70000, false, "not allowed", "task.toml:3:8", "a port is a number"},
	} {
		p, plan := explainWith(t, c.policy, host(caller))
		a, err := Host(p, plan, c.host, c.port)
		why := strings.Join(a.Why, "; ")
		if err != nil || a.OK != c.ok || !strings.HasPrefix(a.Is, c.is) || a.From != c.from || !strings.Contains(why, c.why) {
			t.Errorf("%s:%d: %v %+v", c.host, c.port, err, a)
		}
		if strings.Contains(why, "secret") || strings.Contains(why, "pw") {
			t.Errorf("a value is printed: %s", why)
		}
	}
}

// The proxy's variables are sandboxrun's, and so is the connector.
func TestExplainProxy(t *testing.T) {
	const text = "version = 1\n[env]\nallow = [\"HTTP_PROXY\"]\nset = { NO_PROXY = \"x\" }\n[network]\nmode = \"public\"\n"
	h := host(nil)
	h.Self = "/etc/services"
	p, plan := explainWith(t, text, h)
	caller := map[string]string{"HTTP_PROXY": "theirs"}
	if a := Variable(p, plan, caller, "HTTP_PROXY"); !a.OK || a.Is != "made by sandboxrun" || a.Rule != "default" {
		t.Errorf("%+v", a)
	}
	if a := Variable(p, plan, caller, "NO_PROXY"); a.Is != "set by the policy" || a.From != "task.toml:4:9" {
		t.Errorf("%+v", a)
	}
	e := spec.Explainer(p, plan, h, nil).Explain(spec.ConnectPath)
	if !e.Inside() || e.Rule != "default" || !strings.Contains(strings.Join(e.Why, "; "), "sandboxrun itself") {
		t.Errorf("%+v", e)
	}
	plan.Relay = nil
	if a, err := Host(p, plan, "example.com", 443); err != nil || a.OK || a.Is != "not reachable" {
		t.Errorf("without a relay: %+v, %v", a, err)
	}
}
