package ceiling

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// files is a made-up host: directories, "file", or "-> TARGET".
type files map[string]string

func (t files) Lstat(p string) (hostfs.Info, error) {
	i := hostfs.Info{UID: 1000, GID: 1000, Nlink: 1, Dev: 1, Ino: uint64(slices.Index(t.all(), p) + 1)}
	switch is, ok := t[p]; {
	case strings.HasPrefix(is, "->"):
		i.Mode = fs.ModeSymlink | 0o777
	case is == "file":
		i.Mode = 0o755
	case ok || slices.ContainsFunc(t.all(), func(o string) bool { return pathname.Within(o, p) }):
		i.Mode = fs.ModeDir | 0o755
		if !strings.HasPrefix(p, "/work") && !strings.HasPrefix(p, "/home/") {
			i.UID, i.GID = 0, 0
		}
	default:
		return i, fs.ErrNotExist
	}
	return i, nil
}

func (t files) all() []string {
	var list []string
	for p := range t {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

func (t files) Readlink(p string) (string, error) { return strings.TrimPrefix(t[p], "-> "), nil }

func (t files) ReadDir(p string) ([]string, error) {
	var names []string
	for _, o := range t.all() {
		if o != p && pathname.Within(o, p) {
			name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(o, p), "/"), "/")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (t files) ReadFile(string) ([]byte, error) { return nil, fs.ErrNotExist }

// Open gives every program the same content: a static one.
func (t files) Open(string) (hostfs.File, error) {
	head := make([]byte, 64)
	copy(head, "\x7fELF\x02\x01\x01")
	head[16], head[18], head[20], head[52], head[54] = 2, 62, 1, 64, 56
	return plain{bytes.NewReader(head)}, nil
}

type plain struct{ io.ReaderAt }

func (plain) Close() error { return nil }

func (t files) Mounts() []hostfs.Mount { return []hostfs.Mount{{Target: "/"}} }

func host() *spec.Host {
	return &spec.Host{
		UID: 1000, GID: 1000, User: "ada", Group: "ada", Arch: "amd64", Kernel: spec.Kernel{Major: 6, Minor: 18}, Landlock: 5, Nproc: true, CPUs: 4,
		Nofile: 1 << 20, Self: "/opt/sandboxrun",
		Env: map[string]string{"SERVER_TOKEN": "http://127.0.0.1:9999", "LC_ALL": "C"},
		Tree: files{
			"/usr/bin/true": "file", "/usr/bin/sh": "file", "/usr/lib": "dir", "/etc/passwd": "file", "/opt/sandboxrun": "file", "/tmp": "dir", "/home/ada": "dir",
			"/work/in/a": "file", "/work/out": "dir", "/work/deny/key": "file", "/work/link": "-> /home/ada", "/work/dangling": "-> /root/none",
			"/work/evil": "file", "/other": "dir", "/alias": "-> /work", "/run/s.sock": "file",
		},
	}
}

func load(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte("version = 1\n" + text), Dir: "/", Cwd: "/"})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// under holds a policy below a ceiling as the server does.
func under(t *testing.T, ceiling, asked string) (*policy.Policy, *spec.Plan, error) {
	t.Helper()
	h := host()
	top := load(t, ceiling)
	plan, err := spec.Resolve(top, h)
	if err != nil {
		t.Fatalf("ceiling %s: %v", ceiling, err)
	}
	c, err := New(top, plan, h.Tree)
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, asked)
	if err := c.Narrow(p); err != nil {
		return p, nil, err
	}
	if plan, err = spec.Resolve(p, h); err != nil {
		return p, nil, err
	}
	return p, plan, c.Check(plan)
}

const work = "[files]\nread = ['/work']\nwrite = ['/work/out']\ndeny = ['/work/deny']\n"

// beyond has for each key a ceiling, what stays below it, and what goes beyond. Where nothing can, it is empty.
var beyond = map[string]struct{ ceiling, below, above string }{
	"version": {}, "extends": {}, "name": {"", "name = 'x'", ""}, "workdir": {"", "workdir = '/usr'", ""},
	"enforce":              {"", "enforce = 'required'", "enforce = 'best_effort'"},
	"user":                 {"", "user = 'caller'", "user = 'root'"},
	"workspace.source":     {work, "[workspace]\nsource = '/work/out'", "[workspace]\nsource = '/work/in'"},
	"workspace.path":       {"", "[workspace]\nsource = 'tmpfs'\npath = '/x'", ""},
	"workspace.size":       {"[workspace]\nsource = 'tmpfs'\nsize = '2G'", "[workspace]\nsource = 'tmpfs'\nsize = '2G'", "[workspace]\nsource = 'tmpfs'\nsize = '3G'"},
	"workspace.lifetime":   {"", "[workspace]\nsource = 'tmpfs'\nlifetime = 'exec'", ""},
	"files.base":           {"", "[files]\nbase = 'none'", "[files]\nbase = 'host'"},
	"files.base.rootfs":    {"[files]\nbase = { rootfs = '/usr' }", "[files]\nbase = { rootfs = '/usr' }", "[files]\nbase = { rootfs = '/other' }"},
	"files.interpreters":   {"", "", "[files]\ninterpreters = ['python3']"},
	"files.hide_modules":   {"[files]\nhide_modules = ['a']", "[files]\nhide_modules = ['b']", ""},
	"files.packages":       {"", "", "[files]\npackages = ['mine']"},
	"files.read":           {work, "[files]\nread = ['/work/in', '/usr/lib', '/work/new']\nmissing = 'skip'", "[files]\nread = ['/home/ada']"},
	"files.write":          {work, "[files]\nwrite = ['/work/out']", "[files]\nwrite = ['/work']"},
	"files.deny":           {work, "[files]\ndeny = ['/work/in']", ""},
	"files.secrets":        {"[files]\nsecrets = ['/other']", "[files]\nsecrets = ['/home/ada']", ""},
	"files.missing":        {work, "[files]\nread = ['/work/none']\nmissing = 'skip'", ""},
	"files.tmpfs.path":     {"", "[[files.tmpfs]]\npath = '/a'", ""},
	"files.tmpfs.size":     {"", "[[files.tmpfs]]\npath = '/a'\nsize = '1G'", "[[files.tmpfs]]\npath = '/a'\nsize = '2G'"},
	"workspace.parent":     {"", "", "[workspace]\nsource = 'disk'\nparent = '/tmp'"},
	"files.tmpfs.lifetime": {"", "[[files.tmpfs]]\npath = '/a'\nlifetime = 'exec'", ""},
	"files.home.size":      {"", "[files.home]\nsize = '1G'", "[files.home]\nsize = '2G'"},
	"files.home.inodes":    {"", "[files.home]\ninodes = 100", "[files.home]\ninodes = 1000000"},
	"files.home.lifetime":  {"", "[files.home]\nlifetime = 'exec'", ""},
	"bind.copy":            {work, "[[bind]]\nsource = '/work/in'\ntarget = '/x'", "[[bind]]\nsource = '/work/in'\ntarget = '/x'\ncopy = true"},
	"files.tmpfs.inodes":   {"", "[[files.tmpfs]]\npath = '/a'\ninodes = 100", "[[files.tmpfs]]\npath = '/a'\ninodes = 1000000"},
	"bind.source":          {work, "[[bind]]\nsource = '/work/in'\ntarget = '/x'", "[[bind]]\nsource = '/other'\ntarget = '/x'"},
	"bind.target":          {work, "[[bind]]\nsource = '/work/in'\ntarget = '/usr/lib'", ""},
	"bind.writable":        {work, "[[bind]]\nsource = '/work/out'\ntarget = '/x'\nwritable = true", "[[bind]]\nsource = '/work/in'\ntarget = '/x'\nwritable = true"},
	"env.allow":            {"[env]\nallow = ['LC_*']", "[env]\nallow = ['LC_ALL', 'LC_M*']", "[env]\nallow = ['*_TOKEN']"},
	"env.deny":             {"[env]\nallow = ['*']\ndeny = ['*_TOKEN']", "[env]\nallow = ['*']", ""},
	"env.set":              {"", "[env]\nset = { A = 'b' }", ""},
	"env.redact":           {"", "[env]\nredact = true", "[env]\nredact = false"},
	"network.mode":         {"[network]\nmode = 'allowlist'", "[network]\nmode = 'allowlist'", "[network]\nmode = 'public'"},
	"files.deny.path":      {work, "[files]\ndeny = [{ path = '/work/in' }]", ""},
	"files.deny.as":        {work, "[files]\ndeny = [{ path = '/work/in', as = 'empty' }]", ""},
	"network.ports": {
		"[network]\nports = ['80=unix:/run/s.sock', 8000]", "[network]\nports = ['99=unix:/run/s.sock', '80=8000']", "[network]\nports = ['8000=unix:/run/other']",
	},
	"network.services": {
		"[network]\nmode = 'allowlist'\nservices = ['http://127.0.0.1:80', 'https://a.example']",
		"[network]\nmode = 'allowlist'\nservices = ['http://127.0.0.1:80', 'https://a.example']", "[network]\nmode = 'allowlist'\nservices = ['https://b.example']",
	},
	"network.env_urls":      {"[network]\nports = [80]", "[env]\nset = { U = 'http://127.0.0.1:80' }", "[env]\nset = { U = 'http://127.0.0.1:81' }"},
	"network.allowed_hosts": {"[network]\nmode = 'allowlist'\nallowed_hosts = ['*.a.example']", "[network]\nmode = 'allowlist'\nallowed_hosts = ['b.a.example', '*.c.a.example:443']", "[network]\nmode = 'allowlist'\nallowed_hosts = ['a.example']"},
	"network.allow_private": {"[network]\nmode = 'public'\nallow_private = ['a.example']", "[network]\nmode = 'public'\nallow_private = ['a.example']", "[network]\nmode = 'public'\nallow_private = ['10.0.0.1']"},
	"network.transparent":   {"[network]\nmode = 'public'", "[network]\nmode = 'public'\ntransparent = false", ""},
	"network.upstream_proxy": {
		"[network]\nmode = 'public'", "[network]\nmode = 'public'", "[network]\nmode = 'public'\nupstream_proxy = 'http://127.0.0.1:22'",
	},
	"network.no_proxy": {
		"[network]\nmode = 'public'\nupstream_proxy = 'http://p.example:1'\nno_proxy = ['a.example']", "[network]\nmode = 'public'",
		"[network]\nmode = 'public'\nno_proxy = ['*']",
	},
	"network.explain":   {"[network]\nmode = 'public'", "[network]\nmode = 'public'\nexplain = true", ""},
	"limits.wall":       {"[limits]\nwall = 2", "[limits]\nwall = 1", "[limits]\nwall = 3"},
	"limits.idle":       {"[limits]\nidle = 2", "[limits]\nidle = 2", "[limits]\nidle = 3"},
	"limits.cpu":        {"[limits]\nwall = 1", "[limits]\ncpu = 2", "[limits]\ncpu = 3"},
	"limits.cpus":       {"[limits]\ncpus = 1.0", "", "[limits]\ncpus = 1.5"},
	"limits.memory":     {"[limits]\nmemory = '64M'", "", "[limits]\nmemory = '65M'"},
	"limits.pids":       {"[limits]\npids = 10", "", "[limits]\npids = 11"},
	"limits.file":       {"[limits]\nfile = 10", "", "[limits]\nfile = 11"},
	"limits.disk":       {"[limits]\ndisk = '1M'", "", "[limits]\ndisk = '2M'"},
	"limits.nofile":     {"[limits]\nnofile = 10", "", "[limits]\nnofile = 11"},
	"limits.output":     {"[limits]\noutput = 10", "", "[limits]\noutput = 11"},
	"processes.spawn":   {"[processes]\nspawn = false", "", "[processes]\nspawn = true"},
	"processes.native":  {"[processes]\nnative = false", "", "[processes]\nnative = true"},
	"processes.proc":    {"[processes]\nproc = false", "", "[processes]\nproc = true"},
	"processes.userns":  {"", "[processes]\nuserns = false", "[processes]\nuserns = true"},
	"processes.execute": {"[processes]\nexecute = ['/usr/bin/true']", "", "[processes]\nexecute = ['/usr/bin/sh']"},
}

// TestEveryKeyHasARule: a new key of the reference needs a rule, and an example that shows it hold.
func TestEveryKeyHasARule(t *testing.T) {
	// Load refuses these yet; their rules hold policies that other code has made.
	unread := []string{"processes.guard", "processes.steps", "views"}
	keys := policy.Keys()
	for _, key := range keys {
		table := slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, key+".") })
		r, has := rules()[key]
		example, shown := beyond[key]
		switch {
		case has && r.narrow == nil && r.why == "":
			t.Errorf("%s has a rule that says nothing", key)
		case table && !has || slices.Contains(unread, key):
			continue
		case !has:
			t.Errorf("%s has no rule: see rules.go", key)
		case !shown:
			t.Errorf("%s has no example here", key)
		}
		if _, _, err := under(t, example.ceiling, example.below); err != nil {
			t.Errorf("%s: below the ceiling: %v", key, err)
		}
		if example.above == "" {
			continue
		}
		_, _, err := under(t, example.ceiling, example.above)
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.BeyondCeiling || !strings.Contains(e.Error(), strings.TrimSuffix(key, ".rootfs")+" = ") {
			t.Errorf("%s: beyond the ceiling: %v", key, err)
		}
	}
	for key := range rules() {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is no key", key)
		}
	}
}

// TestTakenOver: what the ceiling restricts holds where the policy says nothing of it.
func TestTakenOver(t *testing.T) {
	p, plan, err := under(t, work+"base = 'none'\nsecrets = ['/other']\n[limits]\nmemory = '64M'\n[processes]\nspawn = false\n[env]\ndeny = ['A*']", "[files]\nread = ['/work']")
	if err != nil {
		t.Fatal(err)
	}
	if p.Limits.Memory != 64<<20 || p.Processes.Spawn || p.Files.Base.Kind != rootfs.BaseNone || len(p.Files.Secrets) != 1 || len(p.Env.Deny) != 1 {
		t.Errorf("%+v", p)
	}
	if a := plan.View.Access("/work/deny/key"); a != rootfs.Hidden {
		t.Errorf("denied: %v", a)
	}
	if again := load(t, "[files]\nread = ['/work']"); p.Digest == again.Digest {
		t.Error("the digest is that of another policy")
	}
}

// TestLinks: what a link leads to counts, and a refusal does not tell whether that is there.
func TestLinks(t *testing.T) {
	said := map[string]string{}
	for _, name := range []string{"link", "dangling"} {
		_, _, err := under(t, work, "[files]\nread = ['/work/"+name+"']")
		if err == nil {
			t.Fatalf("%s: shown", name)
		}
		said[name] = strings.ReplaceAll(err.Error(), name, "X")
	}
	if said["link"] != said["dangling"] {
		t.Errorf("%q", said)
	}
	if _, _, err := under(t, "[files]\nread = ['/alias']", "[files]\nread = ['/alias/in', '/work/out']"); err != nil {
		t.Errorf("a ceiling that is a link: %v", err)
	}
}

// many is a list of many different names.
func many() string {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "', 'A%d", i)
	}
	return b.String()
}

// TestCheck: what no rule of a key sees is seen in what the policy has become.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct{ ceiling, asked, want string }{
		"a read-only part of what is writable": {"[files]\nwrite = ['/work']\nread = ['/work/in']", "[files]\nwrite = ['/work']", "/work/in"},
		"another file under a name that may be executed": {
			work + "[processes]\nexecute = ['/usr/bin/true']", "[[bind]]\nsource = '/work/evil'\ntarget = '/usr/bin/true'", "processes.execute",
		},
		"what the base of the ceiling hides": {"[files]\nbase = 'host'", "[files]\nbase = 'none'\nread = ['/home']", "/home"},
		"more than a server has time for":    {"", "[env]\nallow = ['A" + many() + "']", "256 others"},
		"a forward of the host's network":    {"[network]\nmode = 'host'", "[network]\nports = ['80=unix:/run/s.sock']", "unix:/run/s.sock"},
	} {
		if _, _, err := under(t, c.ceiling, c.asked); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := under(t, "[network]\nmode = 'host'", "[network]\nmode = 'public'\nports = [80]\nallow_private = ['10.0.0.1']"); err != nil {
		t.Errorf("below the host's network: %v", err)
	}
}

// TestDeniedAsEmpty: what the ceiling hides as empty is hidden below it.
func TestDeniedAsEmpty(t *testing.T) {
	for _, asked := range []string{"[files]\nread = ['/work']", "[files]\nread = ['/work']\ndeny = [{ path = '/work/other', as = 'empty' }]"} {
		p, plan, err := under(t, "[files]\nread = ['/work']\ndeny = [{ path = '/work/in', as = 'empty' }]", asked)
		if err != nil {
			t.Fatal(err)
		}
		if plan.View.Access("/work/in") != rootfs.Hidden || plan.View.Access("/work") != rootfs.Readable {
			t.Errorf("%s: denied %+v", asked, p.Files.DenyEmpty)
		}
	}
}

// A client's sandbox hides what the ceiling hides, and what the client does.
func TestHiddenModulesAreAdded(t *testing.T) {
	p, _, err := under(t, "[files]\nhide_modules = ['a', 'b']", "[files]\nhide_modules = ['b', 'c']")
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Clone(p.Interpreters.HideModules)
	slices.Sort(got)
	if !slices.Equal(slices.Compact(got), []string{"a", "b", "c"}) {
		t.Errorf("hidden are %q", p.Interpreters.HideModules)
	}
}
