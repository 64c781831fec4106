package spec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// keyExamples has for each key of a policy two values (TOML), and what else the policy needs for them to matter. The two
// policies must differ in their Plans, because a key that changes no Plan would promise something that nothing enforces.
var keyExamples = map[string]struct{ rest, one, other string }{
	"enforce":            {"", `enforce = "required"`, `enforce = "best_effort"`},
	"extends":            {"", "", `extends = "default"`},
	"name":               {"", `name = "a"`, `name = "b"`},
	"workdir":            {"[files]\nread = ['/home/ada/work']", `workdir = "/tmp"`, `workdir = "/home/ada/work"`},
	"user":               {"", `user = "caller"`, `user = 1234`},
	"workspace.source":   {"", "[workspace]\nsource = '/home/ada/work'", "[workspace]\nsource = '/home/ada/work/in'"},
	"workspace.path":     {"", "[workspace]\nsource = 'tmpfs'", "[workspace]\nsource = 'tmpfs'\npath = '/x'"},
	"workspace.size":     {"", "[workspace]\nsource = 'tmpfs'\nsize = '1M'", "[workspace]\nsource = 'tmpfs'\nsize = '2M'"},
	"workspace.lifetime": {"", "[workspace]\nsource = 'tmpfs'", "[workspace]\nsource = 'tmpfs'\nlifetime = 'exec'"},
	"files.base":         {"", "[files]\nbase = 'system'", "[files]\nbase = 'none'"},
	"files.base.rootfs":  {"", "[files]\nbase = { rootfs = '/home/ada' }", "[files]\nbase = { rootfs = '/usr' }"},
	"files.interpreters": {"", "[files]\ninterpreters = []", "[files]\ninterpreters = ['/opt/py-3.9']"},
	"files.packages": {
		"", "[files]\ninterpreters = ['/opt/py-3.9']", "[files]\ninterpreters = ['/opt/py-3.9']\npackages = ['mine']",
	},
	"files.read":           {"", "[files]\nread = []", "[files]\nread = ['/home/ada/work']"},
	"files.write":          {"", "[files]\nwrite = []", "[files]\nwrite = ['/home/ada/work']"},
	"files.deny":           {"", "[files]\ndeny = []", "[files]\ndeny = ['/etc/services']"},
	"files.tmpfs.path":     {"", "[[files.tmpfs]]\npath = '/a'", "[[files.tmpfs]]\npath = '/b'"},
	"files.tmpfs.size":     {"", "[[files.tmpfs]]\npath = '/a'", "[[files.tmpfs]]\npath = '/a'\nsize = '1M'"},
	"files.tmpfs.inodes":   {"", "[[files.tmpfs]]\npath = '/a'", "[[files.tmpfs]]\npath = '/a'\ninodes = 10"},
	"files.tmpfs.lifetime": {"", "[[files.tmpfs]]\npath = '/a'", "[[files.tmpfs]]\npath = '/a'\nlifetime = 'exec'"},
	"files.home.size":      {"", "[files.home]\nsize = '1M'", "[files.home]\nsize = '2M'"},
	"files.home.inodes":    {"", "[files.home]\ninodes = 100", "[files.home]\ninodes = 200"},
	"files.home.lifetime":  {"", "", "[files.home]\nlifetime = 'exec'"},
	"files.secrets":        {"", "[files]\nsecrets = []", "[files]\nsecrets = ['/home/ada/work']"},
	"files.missing":        {"", "[files]\nread = ['/none']\nmissing = 'error'", "[files]\nread = ['/none']\nmissing = 'skip'"},
	"bind.source":          {"", "[[bind]]\nsource = '/home'\ntarget = '/x'", "[[bind]]\nsource = '/tmp'\ntarget = '/x'"},
	"bind.target":          {"", "[[bind]]\nsource = '/tmp'\ntarget = '/x'", "[[bind]]\nsource = '/tmp'\ntarget = '/y'"},
	"bind.copy":            {"", "[[bind]]\nsource = '/tmp'\ntarget = '/x'", "[[bind]]\nsource = '/tmp'\ntarget = '/x'\ncopy = true"},
	"workspace.parent":     {"", "[workspace]\nsource = 'disk'", "[workspace]\nsource = 'disk'\nparent = '/tmp'"},
	"bind.writable":        {"", "[[bind]]\nsource = '/tmp'\ntarget = '/x'", "[[bind]]\nsource = '/tmp'\ntarget = '/x'\nwritable = true"},
	"env.allow":            {"", "[env]\nallow = []", "[env]\nallow = ['LC_*']"},
	"env.deny":             {"", "[env]\nallow = ['LC_*']", "[env]\nallow = ['LC_*']\ndeny = ['LC_ALL']"},
	"env.set":              {"", "[env]\nset = {}", "[env]\nset = { A = '1' }"},
	"env.redact":           {"", "[env]\nredact = true", "[env]\nredact = false"},
	"network.mode":         {"", "[network]\nmode = 'isolated'", "[network]\nmode = 'host'"},
	"network.ports":        {"", "[network]\nports = []", "[network]\nports = [8000]"},
	"network.services":     {"", "[network]\nservices = []", "[network]\nservices = ['http://127.0.0.1:8000']"},
	"files.deny.path":      {"", "[files]\ndeny = [{ path = '/etc/hosts' }]", "[files]\ndeny = [{ path = '/etc/services' }]"},
	"files.deny.as":        {"", "[files]\ndeny = [{ path = '/etc/services' }]", "[files]\ndeny = [{ path = '/etc/services', as = 'empty' }]"},
	"network.env_urls": {
		"[env]\nset = { URL = 'http://127.0.0.1:8000' }\n", "[network]\nenv_urls = true", "[network]\nenv_urls = false",
	},
	"network.allowed_hosts": {
		"", "[network]\nmode = 'allowlist'\nallowed_hosts = ['a.example']", "[network]\nmode = 'allowlist'\nallowed_hosts = ['b.example']",
	},
	"network.allow_private": {
		"", "[network]\nmode = 'allowlist'\nallowed_hosts = ['a.example']",
		"[network]\nmode = 'allowlist'\nallowed_hosts = ['a.example']\nallow_private = ['a.example']",
	},
	"network.transparent": {
		"", "[network]\nmode = 'allowlist'\nallowed_hosts = ['a.example']",
		"[network]\nmode = 'allowlist'\nallowed_hosts = ['a.example']\ntransparent = false",
	},
	"network.upstream_proxy": {
		"", "[network]\nmode = 'allowlist'", "[network]\nmode = 'allowlist'\nupstream_proxy = 'http://proxy.example:3128'",
	},
	"network.no_proxy":  {"", "[network]\nmode = 'allowlist'", "[network]\nmode = 'allowlist'\nno_proxy = ['a.example']"},
	"network.explain":   {"", "[network]\nmode = 'allowlist'", "[network]\nmode = 'allowlist'\nexplain = true"},
	"limits.wall":       {"", "", "[limits]\nwall = '1s'"},
	"limits.idle":       {"", "", "[limits]\nidle = '1s'"},
	"limits.cpu":        {"", "", "[limits]\ncpu = '1s'"},
	"limits.cpus":       {"", "", "[limits]\ncpus = 1.0"},
	"limits.memory":     {"", "", "[limits]\nmemory = '64M'"},
	"limits.pids":       {"", "", "[limits]\npids = 10"},
	"limits.file":       {"", "", "[limits]\nfile = '1M'"},
	"limits.disk":       {"[files]\nwrite = ['/home/ada/work/out']", "", "[limits]\ndisk = '1M'"},
	"limits.nofile":     {"", "", "[limits]\nnofile = 64"},
	"limits.output":     {"", "", "[limits]\noutput = '1M'"},
	"processes.execute": {"", "[processes]\nexecute = []", "[processes]\nexecute = ['/etc/services']"},
	"views":             {"", "[views.judge]\nread = ['/home/ada/work']", "[views.judge]\ndeny = ['/home/ada/work']"},
	"processes.guard":   {"", "[processes]\nguard = ''", "[processes]\nguard = 'python'"},
	"files.hide_modules": {
		"", "[files]\ninterpreters = ['/opt/py-3.9/bin/python3']", "[files]\nhide_modules = ['os']\ninterpreters = ['/opt/py-3.9/bin/python3']",
	},
	"processes.steps":  {"", "[processes]\nguard = 'python'", "[processes]\nguard = 'python'\nsteps = 10"},
	"processes.native": {"[workspace]\nsource = 'tmpfs'", "[processes]\nnative = true", "[processes]\nnative = false"},
	"processes.proc":   {"", "[processes]\nproc = true", "[processes]\nproc = false"},
	"processes.userns": {"", "[processes]\nuserns = false", "[processes]\nuserns = true"},
	"processes.spawn":  {"", "[processes]\nspawn = true", "[processes]\nspawn = false"},
}

// TestEveryKeyDecides is the recipe for a key (CONTRIBUTING.md) as a test: each key of the table decides something. The loader,
// the schema and the reference are held to the table by their own tests.
func TestEveryKeyDecides(t *testing.T) {
	refused := map[string]bool{"version": true} // has one value
	var names []string
	for name := range schemaKeys(t) {
		names = append(names, name)
	}
	outcome := func(key, text string) string {
		p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte(text), Dir: "/home/ada", Cwd: "/home/ada"})
		if err != nil {
			t.Errorf("%s: load %q: %v", key, text, err)
			return ""
		}
		h := madeUpHost()
		withCgroup1(h)
		plan, err := Resolve(p, h)
		if err != nil {
			return err.Error()
		}
		plan.PolicyDigest, plan.PolicyFile, plan.PolicyPaths = "", "", nil
		data, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		return string(data) + fmt.Sprint(plan.Checks, plan.Kept.Views, plan.Files.Binds, p.Files.Workspace)
	}
	known := map[string]bool{}
	for _, k := range names {
		known[k] = true
		example, ok := keyExamples[k]
		table := !ok && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, k+".") })
		switch {
		case refused[k], refused[strings.SplitN(k, ".", 2)[0]], table:
		case !ok:
			t.Errorf("%s has no example here: see the recipe for a key in CONTRIBUTING.md", k)
		default:
			// In TOML, top-level keys come before the tables.
			one, other := outcome(k, "version = 1\n"+example.one+"\n"+example.rest), outcome(k, "version = 1\n"+example.other+"\n"+example.rest)
			if one == other {
				t.Errorf("%s decides nothing: the Plans of %q and %q are equal", k, example.one, example.other)
			}
		}
	}
	for k := range keyExamples {
		if !known[k] {
			t.Errorf("%s is no key", k)
		}
	}
}

// schemaKeys are the keys of the schema, which are those of the table, with their descriptions.
func schemaKeys(t *testing.T) map[string]string {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	var visit func(v any, prefix string)
	visit = func(v any, prefix string) {
		s, ok := v.(map[string]any)
		if !ok {
			return
		}
		properties, _ := s["properties"].(map[string]any)
		for name, v := range properties {
			keys[prefix+name], _ = v.(map[string]any)["description"].(string)
			visit(v, prefix+name+".")
		}
		visit(s["items"], prefix)
		either, _ := s["anyOf"].([]any)
		for _, v := range either {
			visit(v, prefix)
		}
	}
	visit(schema, "")
	return keys
}
