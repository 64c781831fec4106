package policy

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

const everything = `version = 1
name = "task-17"
enforce = "best_effort"
workdir = "./work"
user = 1234

[workspace]
source = "work"
path = "/w"
lifetime = "exec"

[files]
base = { rootfs = "~/rootfs" }
interpreters = ["python3"]
packages = ["mine"]
hide_modules = ["torch.cuda"]
read = ["./inputs", "~", "$DATA/x"]
write = ["out/"]
deny = [
  "inputs/golden.yaml", # why
  "/a//b/../c",
]
tmpfs = [{ path = "/tmp", size = "256M", inodes = 65_536 }, { path = "/var/tmp" }]
secrets = ["../answers"]
missing = "skip"

[[bind]]
source = "./adapter"
target = "/w/adapter"
writable = true

[[bind]]
source = "${DATA}"
target = "/data"

[env]
allow = ["LANG", "LC_*"]
set = { OMP_NUM_THREADS = "1", HOME = "$HOME ~" }
redact = false

[network]
mode = "allowlist"
ports = [8000, "5432=unix:/run/pg.sock", "9000=127.0.0.1:9001"]
services = ["http://127.0.0.1:8000/v1"]
env_urls = false
allowed_hosts = ["API.example.com", "*.example.org:8443"]
allow_private = ["*.example.org"]
transparent = false
upstream_proxy = "SOCKS5H://Proxy.example"
no_proxy = ["*.example.org", "10.0.0.0/8"]
explain = true

[limits]
wall = "1m30s"
idle = 1.5
cpu = "60"
cpus = 2
memory = "512M"
pids = 128
file = 100
disk = "1T"
nofile = 0x400
output = "4K"

[processes]
spawn = false
execute = ["/usr/bin/python3"]
guard = "python"
steps = 1000

[views.judge]
read = ["./tests"]
bind = [{ source = "./judge.py", target = "/w/judge.py" }]
`

// everythingJSON is the same policy.
const everythingJSON = ` {"views": {"judge": {"read": ["./tests"], "bind": [{"source": "./judge.py", "target": "/w/judge.py"}]}},
"processes": {"spawn": false, "execute": ["/usr/bin/python3"], "guard": "python", "steps": 1000},
"limits": {"wall": 90, "idle": "1.5", "cpu": "1m", "cpus": 2.0, "memory": 536870912, "pids": 128, "file": "100",
  "disk": "1024G", "nofile": 1024, "output": 4096},
"network": {"mode": "allowlist", "ports": ["8000", "5432=unix:/run/pg.sock", "9000=127.0.0.1:9001"],
  "services": ["http://127.0.0.1:8000/v1"], "env_urls": false, "allowed_hosts": ["api.example.com.", "*.example.org:8443"],
  "allow_private": ["*.EXAMPLE.org"], "transparent": false, "upstream_proxy": "socks5://proxy.example:1080", "no_proxy": ["*.example.org", "10.0.0.0/8"], "explain": true},
"env": {"allow": ["LANG", "LC_*"], "set": {"OMP_NUM_THREADS": "1", "HOME": "$HOME ~"}, "redact": false},
"bind": [{"source": "/p/adapter", "target": "/w/./adapter", "writable": true}, {"source": "/data", "target": "/data"}],
"files": {"base": {"rootfs": "/home/u/rootfs"}, "interpreters": ["python3"], "packages": ["mine"],
  "hide_modules": ["torch.cuda"], "read": ["/p/inputs", "/home/u", "/data/x"], "write": ["/p/out"],
  "deny": ["/p/inputs/golden.yaml", "/a/c"], "tmpfs": [{"path": "/tmp", "size": "256M", "inodes": 65536}, {"path": "/var/tmp/"}],
  "secrets": ["/answers"], "missing": "skip"},
"workspace": {"source": "work", "path": "/w", "lifetime": "exec"},
"user": 1234, "workdir": "work", "enforce": "best_effort", "name": "task-17", "version": 1}
`

func TestLoadEverything(t *testing.T) {
	got, err := Load(input("task.toml", everything))
	if err != nil {
		t.Fatal(err)
	}
	at := func(line, column int, key string) string {
		return fmt.Sprintf("task.toml:%d:%d: %s", line, column, key)
	}
	want := &Policy{
		File: "task.toml", Digest: got.Digest, Sources: []string{"task.toml"}, Expanded: []string{"DATA", "DATA"}, Name: "task-17", Enforce: EnforceBestEffort,
		User: User{Kind: "number", ID: 1234, From: at(5, 8, "user")},
		Files: rootfs.Policy{
			Workspace: &rootfs.Workspace{
				Source: "/p/work", Path: "/w", Lifetime: "exec", From: at(8, 10, "workspace.source"),
			},
			Base: rootfs.Base{Kind: rootfs.BaseRootfs, Dir: "/home/u/rootfs", From: at(13, 8, "files.base")},
			Read: []rootfs.Grant{
				{Path: "/p/inputs", From: at(17, 9, "files.read")},
				{Path: "/home/u", From: at(17, 21, "files.read")},
				{Path: "/data/x", From: at(17, 26, "files.read")},
			},
			Write: []rootfs.Grant{{Path: "/p/out", From: at(18, 10, "files.write")}},
			Deny: []rootfs.Grant{
				{Path: "/p/inputs/golden.yaml", From: at(20, 3, "files.deny")}, {Path: "/a/c", From: at(21, 3, "files.deny")},
			},
			Tmpfs: []rootfs.Tmpfs{
				{Path: "/tmp", Size: 256 << 20, Inodes: 65536, Lifetime: "sandbox", From: at(23, 10, "files.tmpfs")},
				{Path: "/var/tmp", Lifetime: "sandbox", From: at(23, 61, "files.tmpfs")},
			},
			Secrets: []rootfs.Grant{{Path: "/answers", From: at(24, 12, "files.secrets")}},
			Binds: []rootfs.Bind{
				{Source: "/p/adapter", Target: "/w/adapter", Writable: true, From: at(27, 3, "bind")},
				{Source: "/data", Target: "/data", From: at(32, 3, "bind")},
			},
			Workdir: rootfs.Grant{Path: "/p/work", From: at(4, 11, "workdir")},
			Missing: "skip",
		},
		Interpreters: Interpreters{
			Show: []string{"python3"}, Packages: []string{"mine"}, HideModules: []string{"torch.cuda"},
		},
		Env: EnvPolicy{
			Allow: []string{"LANG", "LC_*"}, Set: map[string]string{"OMP_NUM_THREADS": "1", "HOME": "$HOME ~"},
		},
		Network: netpolicy.Policy{
			Mode: netpolicy.Allowlist, From: at(42, 8, "network.mode"),
			Ports: []netpolicy.Port{
				{Inside: 8000, Outside: "127.0.0.1:8000", From: at(43, 10, "network.ports")},
				{Inside: 5432, Outside: "unix:/run/pg.sock", From: at(43, 16, "network.ports")},
				{Inside: 9000, Outside: "127.0.0.1:9001", From: at(43, 42, "network.ports")},
			},
			Services: []string{"http://127.0.0.1:8000/v1"}, AllowedHosts: []string{"api.example.com", "*.example.org:8443"},
			AllowPrivate: []string{"*.example.org"}, UpstreamProxy: "socks5://proxy.example:1080", NoProxy: []string{"*.example.org", "10.0.0.0/8"}, Explain: true,
		},
		Limits: Limits{
			Wall: 90 * time.Second, Idle: 1500 * time.Millisecond, CPU: time.Minute, CPUs: 2, Memory: 512 << 20, Pids: 128,
			File: 100, Disk: 1 << 40, Nofile: 1024, Output: 4096,
		},
		Processes: Processes{
			Native: true, Proc: true,
			Execute: []rootfs.Grant{{Path: "/usr/bin/python3", From: at(67, 12, "processes.execute")}},
			Guard:   "python", Steps: 1000,
		},
		Views: map[string]View{"judge": {
			Read:  []rootfs.Grant{{Path: "/p/tests", From: at(72, 9, "views.judge.read")}},
			Binds: []rootfs.Bind{{Source: "/p/judge.py", Target: "/w/judge.py", From: at(73, 9, "views.judge.bind")}},
		}},
		Places: map[string]string{
			"files.interpreters python3": "task.toml:14:17", "files.packages mine": "task.toml:15:13",
			"files.hide_modules torch.cuda": "task.toml:16:17", "env.allow LANG": "task.toml:37:10",
			"env.allow LC_*": "task.toml:37:18", "env.set OMP_NUM_THREADS": "task.toml:38:9", "env.set HOME": "task.toml:38:32",
			"network.services http://127.0.0.1:8000/v1": "task.toml:44:13", "network.allowed_hosts api.example.com": "task.toml:46:18",
			"network.allowed_hosts *.example.org:8443": "task.toml:46:37", "network.allow_private *.example.org": "task.toml:47:18",
			"network.upstream_proxy socks5://proxy.example:1080": "task.toml:49:18", "network.no_proxy *.example.org": "task.toml:50:13",
			"network.no_proxy 10.0.0.0/8": "task.toml:50:30",
		},
	}
	if !got.Sets("bind.writable") || !got.Sets("limits.wall") || got.Sets("extends") || got.Sets("workspace.size") {
		t.Errorf("keys that the file has: %v", got.Given)
	}
	got.Given = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestJSONTwin(t *testing.T) {
	a, errA := Load(input("task.toml", everything))
	b, errB := Load(input("task", everythingJSON))
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if a.Digest != b.Digest || len(a.Digest) != 64 {
		t.Errorf("digests %q and %q", a.Digest, b.Digest)
	}
	if got := b.Files.Binds[1].From; got != "task:9:80: bind" {
		t.Errorf("a JSON place is told as %q", got)
	}
	samePolicy(t, b, a)
}

func TestCanonicalLoadsAsTheSame(t *testing.T) {
	p, err := Load(input("task.toml", everything))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(Input{Name: "c.json", Data: p.Canonical(), Dir: "/elsewhere"})
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Canonical())
	}
	samePolicy(t, again, p)
}

func TestDefaults(t *testing.T) {
	p := mustLoad(t, input("p.toml", "version = 1\n"))
	want := defaults()
	want.File, want.Sources, want.Digest, want.Given = "p.toml", []string{"p.toml"}, p.Digest, map[string]bool{"version": true}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	if p.Enforce != "required" || p.User.Kind != "caller" || p.Files.Base.Kind != "system" || p.Files.Missing != "error" ||
		!p.Env.Redact || p.Network.Mode != "isolated" || !p.Network.EnvURLs || !p.Network.Transparent || p.Network.Explain || p.Network.UpstreamProxy != "" || !p.Processes.Spawn || !p.Processes.Native || !p.Processes.Proc {
		t.Errorf("a default is not the documented one: %+v", p)
	}
}

func TestWorkspaceDefaults(t *testing.T) {
	for data, want := range map[string]rootfs.Workspace{
		`source = "work"`:               {Source: "/p/work", Path: "/p/work", Lifetime: "sandbox"},
		`source = "."`:                  {Source: "/p", Path: "/p", Lifetime: "sandbox"},
		`source = "./tmpfs"`:            {Source: "/p/tmpfs", Path: "/p/tmpfs", Lifetime: "sandbox"},
		`source = "tmpfs"`:              {Source: "tmpfs", Path: "/w", Lifetime: "sandbox"},
		"source = 'tmpfs'\nsize = '1G'": {Source: "tmpfs", Path: "/w", Size: 1 << 30, Lifetime: "sandbox"},
		"source = '/a'\npath = '~/b'":   {Source: "/a", Path: "/home/u/b", Lifetime: "sandbox"},
	} {
		p := mustLoad(t, input("p.toml", "version = 1\n[workspace]\n"+data))
		want.From = "p.toml:3:10: workspace.source"
		if *p.Files.Workspace != want {
			t.Errorf("%s: got %+v, want %+v", data, *p.Files.Workspace, want)
		}
	}
}

func TestDigestIsOfTheMeaning(t *testing.T) {
	digest := func(data string) string { return mustLoad(t, input("p.toml", data)).Digest }
	a := digest("version = 1\n[files]\nread = ['x']\n")
	if b := digest("# words\nversion = 1\n\nuser = 'caller'\n[files]\nmissing = 'error'\nread = ['./x/']\n"); a != b {
		t.Error("layout and spelled-out defaults change the digest")
	}
	if b := digest("version = 1\n[files]\nread = ['y']\n"); a == b {
		t.Error("another grant has the same digest")
	}
}

// TestAdapterShapes has what the case scripts' policy_adapter.py writes.
func TestAdapterShapes(t *testing.T) {
	p := mustLoad(t, input("policy.toml", `version = 1
workdir = "/t/odd/new\nline"
user = 1234
[files]
read = ["/t/in.py", "/no/such"]
write = ["/t/odd/a b", "/t/odd/uni-\u00e9-\u65e5\u672c", "/t/odd/-dash", "/t/odd/co:lon", "/t/odd/com,ma=x", "/t/odd/qu'o\"te", "/t/odd/star*[x]?", "/t/odd/back\\slash", "/t/odd/#h", "/t/odd/$HOME", "/t/odd/trail "]
deny = ["/t/ws/.env"]
tmpfs = [{ path = "/tmp", size = "16M" }, { path = "/x", size = "16M" }]
[env]
allow = []
set = { "SR_KEY" = "value-in-policy-1" }
[limits]
wall = "2s"
[network]
mode = "allowlist"
ports = [9, 40001]
allowed_hosts = ["example.test", "api.example.test:40001", "*.pkg.test:40001"]
allow_private = ["*.pkg.test", "api.example.test", "example.test"]
[[bind]]
source = "/t/ws"
target = "/w/deep/er/ws"
writable = true
[[bind]]
source = "/t/in/f"
target = "/opt/x/y/f"
writable = false
`))
	var got []string
	for _, g := range p.Files.Write {
		got = append(got, strings.TrimPrefix(g.Path, "/t/odd/"))
	}
	want := []string{
		"a b", "uni-é-日本", "-dash", "co:lon", "com,ma=x", `qu'o"te`, "star*[x]?", `back\slash`, "#h", "$HOME", "trail ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if p.Files.Workdir.Path != "/t/odd/new\nline" || p.Limits.Wall != 2*time.Second || len(p.Files.Binds) != 2 {
		t.Errorf("got %+v", p)
	}
}

// TestInterface loads the policy that the contract shows: nothing is wrong with it but that it shows every key, the size of a workspace in
// memory beside a directory.
func TestInterface(t *testing.T) {
	data := strings.Replace(readTestdata(t, "interface.toml"), `"task"`, `"default"`, 1)
	_, err := Load(input("task.toml", data))
	var bad *Error
	if !errors.As(err, &bad) || bad.More != 0 {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, p := range bad.Problems {
		got[p.Key] = p.Line
	}
	want := map[string]int{
		"workspace.size": 13,
	}
	if !maps.Equal(got, want) {
		t.Errorf("refused are %v, want %v", got, want)
	}
	p, err := Load(input("task.toml", strings.Replace(data, "size = \"1G\"", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if p.Files.Base.Kind != "system" || p.Limits.Memory != 512<<20 || len(p.Env.Allow) != 6 || p.Views["judge"].Binds == nil {
		t.Errorf("got %+v", p)
	}
}
