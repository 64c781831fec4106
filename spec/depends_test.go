package spec

import (
	"testing"

	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// TestDependsOn: the variables that a plan can depend on, by what a policy has.
func TestDependsOn(t *testing.T) {
	for _, c := range []struct {
		policy, name string
		want         bool
	}{
		{`files.read = ["$DATA/x"]`, "DATA", true},
		{`files.read = ["$DATA/x"]`, "OTHER", false},
		{``, "HOME", true},
		{``, "PATH", false},
		{`files.interpreters = ["python3"]`, "PATH", true},
		{`env.allow = ["SVC*"]`, "SVC_URL", true},
		{"env.allow = [\"SVC*\"]\nenv.deny = [\"SVC_URL\"]", "SVC_URL", false},
		{"env.allow = [\"SVC*\"]\nnetwork.env_urls = false", "SVC_URL", false},
		{"env.allow = [\"SVC*\"]\nnetwork.mode = \"host\"", "SVC_URL", false},
		{`network.mode = "allowlist"`, "https_proxy", true},
		{`network.mode = "allowlist"`, "HTTP_PROXY", true},
		{``, "HTTP_PROXY", false},
	} {
		p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte("version = 1\n" + c.policy), Dir: "/p", Home: "/home/u", Env: map[string]string{"DATA": "/data"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := DependsOn(p, c.name); got != c.want {
			t.Errorf("%q depends on %s: %v", c.policy, c.name, got)
		}
	}
}
