package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

var updatePlans = flag.Bool("update-plans", false, "rewrite testdata/plan_*.json")

func madeUpHost() *Host {
	return &Host{
		UID: 1000, GID: 1000, User: "ada", Group: "ada", Arch: "amd64", Kernel: Kernel{6, 1},
		Resolv:    "nameserver 192.0.2.53\n",
		ProcFiles: []string{"/proc/keys", "/proc/sys"}, CPUs: 4, Nofile: 20000,
		Tree: roottest.Files{
			"/usr": "/", "/bin": "->usr/bin", "/usr/bin": "/", "/lib": "->usr/lib", "/usr/lib": "/",
			"/etc": "/", "/etc/services": "http 80/tcp\n", "/etc/ssl": "/", "/etc/ssl/certs": "/", "/etc/shadow": "x\n",
			"/home": "/", "/home/ada": "/", "/home/ada/work": "/", "/home/ada/work/in": "/", "/home/ada/work/out": "/",
			"/home/ada/work/in/answers.csv": "42\n", "/home/ada/work/in/data.csv": "1\n", "/tmp": "/",
			"/home/ada/work/adapter": "/",
			"/opt":                   "/", "/opt/py-3.9": "/", "/opt/py-3.9/bin": "/", "/opt/py-3.9/bin/python3": "\x7fELF", "/opt/py-3.9/lib": "/",
			"/opt/py-3.9/lib/python3.9": "/", "/opt/py-3.9/lib/python3.9/os.py": "\n", "/opt/py-3.9/lib/python3.9/site-packages": "/",
			"/opt/py-3.9/lib/python3.9/site-packages/mine-1.dist-info":        "/",
			"/opt/py-3.9/lib/python3.9/site-packages/mine-1.dist-info/RECORD": "mine.pth,,\n",
			"/opt/py-3.9/lib/python3.9/site-packages/mine.pth":                "/home/ada/work/adapter\n",
		},
	}
}

// limitsPolicy has every limit there is.
const limitsPolicy = `
version = 1
[limits]
wall = "30s"
idle = "5s"
cpu = "20s"
cpus = 1.5
memory = "512M"
pids = 128
file = "100M"
disk = "1G"
nofile = 1024
output = "1M"
`

func withCgroup1(h *Host) {
	asRoot(h)
	h.Cgroups = Cgroups{
		Kind: ByCgroup1, Controllers: []string{"memory", "pids", "cpu", "cpuacct"},
		Parents: map[string]string{"memory": "/cg/memory", "pids": "/cg/pids", "cpu": "/cg/cpu", "cpuacct": "/cg/cpu"},
	}
}

func asRoot(h *Host) {
	h.UID, h.GID, h.User, h.Group, h.Root, h.Setgroups = 0, 0, "root", "root", true, true
}

// plans are policies and hosts whose Plans are kept in testdata. Read a change of one as a reviewer of the sandbox would.
var plans = []struct {
	name, policy string
	host         func(*Host)
}{
	{name: "empty", policy: "version = 1"},
	{name: "empty_root", policy: "version = 1", host: asRoot},
	{name: "machine_root", policy: machineRootPolicy, host: asMachineRoot},
	{name: "machine_root_best_effort", policy: machineRootPolicy + "enforce = \"best_effort\"\n", host: func(h *Host) {
		asMachineRoot(h)
		h.Idmap = func(string) ([]LeftOut, error) { return nil, errors.New("its file system (overlay) does not allow it") }
	}},
	{name: "task", policy: `
version = 1
name = "task"
workdir = "/home/ada/work"
[files]
read = ["/home/ada/work"]
write = ["/home/ada/work/out"]
deny = ["/home/ada/work/in/answers.csv", "/home/ada/work/out/.env"]
tmpfs = [{ path = "/scratch", size = "16M" }]
[[bind]]
source = "/home/ada/work/adapter"
target = "/opt/adapter"
[env]
allow = ["LC_*"]
set = { OMP_NUM_THREADS = "1" }
[limits]
wall = "30s"
output = "1M"
`},
	{name: "workspace_per_exec", policy: "version = 1\n[workspace]\nsource = \"tmpfs\"\nsize = \"1M\"\nlifetime = \"exec\"\n"},
	{name: "none", policy: "version = 1\nfiles.base = \"none\""},
	{name: "as_root", policy: "version = 1\nuser = \"root\""},
	{name: "as_1234", policy: "version = 1\nuser = 1234", host: asRoot},
	{name: "limits_cgroup1", policy: limitsPolicy, host: withCgroup1},
	{name: "limits_no_cgroup", policy: limitsPolicy + "[workspace]\nsource=\"tmpfs\"\n", host: func(h *Host) { h.Nproc, h.CPUs = true, 1 }},
	{name: "limits_best_effort", policy: "enforce = \"best_effort\"" + limitsPolicy},
	{name: "no_proc", policy: "version = 1\nprocesses.proc = false"},
	{name: "host_network", policy: "version = 1\nnetwork.mode = \"host\""},
	{name: "allowlist", policy: "version = 1\n[network]\nmode = \"allowlist\"\nallowed_hosts = [\"example.com\"]\n"},
}

func resolve(t *testing.T, text string, change func(*Host)) (*Plan, error) {
	t.Helper()
	h := madeUpHost()
	if change != nil {
		change(h)
	}
	p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte(text), Dir: "/home/ada"})
	if err != nil {
		t.Fatal(err)
	}
	return Resolve(p, h)
}

func TestResolveGolden(t *testing.T) {
	for _, tt := range plans {
		t.Run(tt.name, func(t *testing.T) {
			plan, err := resolve(t, tt.policy, tt.host)
			if err != nil {
				t.Fatal(err)
			}
			plan.Filter = nil // has a golden file of its own
			got, err := json.MarshalIndent(struct {
				*Plan
				OCI *specs.Spec `json:"oci"`
			}{plan, plan.OCI()}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "plan_"+tt.name+".json")
			if *updatePlans {
				if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(append(got, '\n'), want) {
				t.Errorf("%s has changed; if that is right: go test ./spec -run Golden -update-plans\n%s", file, got)
			}
		})
	}
}

// tolerantLoader mends references in the schema that lack a slash, which stricter validators do not resolve.
type tolerantLoader struct{}

func (tolerantLoader) Load(url string) (any, error) {
	data, err := os.ReadFile(strings.TrimPrefix(url, "file://"))
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(bytes.ReplaceAll(data, []byte("#definitions"), []byte("#/definitions"))))
}

// The runtime-spec module brings the schema that an OCI configuration must satisfy.
func TestSpecSatisfiesSchema(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/opencontainers/runtime-spec").Output()
	if err != nil {
		t.Skipf("no module cache to read the schema from: %v", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft4)
	compiler.UseLoader(tolerantLoader{})
	schema, err := compiler.Compile(filepath.Join(strings.TrimSpace(string(out)), "schema", "config-schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range plans {
		plan, err := resolve(t, tt.policy, tt.host)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(plan.OCI())
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		delete(value.(map[string]any), "ociVersion")
		if schema.Validate(value) == nil {
			t.Error("the schema takes anything")
		}
	}
}

func TestResolveErrors(t *testing.T) {
	tests := []struct{ name, policy, code, says string }{
		{"another user without root", "version = 1\nuser = 1234", "policy_invalid", "p.toml:2:8: user = 1234: only root"},
		{"missing grant", "version = 1\nfiles.read = [\"/nope\"]", "grant_missing", `"/nope"`},
		{"a part of a processor", "version = 1\nlimits.cpus = 1.5", "limit_unenforceable", "limits.cpus = 1.5 cannot be enforced: without a cgroup"},
		{"more files than the caller", "version = 1\nlimits.nofile = 20001", "limit_unenforceable", "limits.nofile = 20001 cannot be enforced: the caller may not open more than 20000"},
		{"missing workdir", "version = 1\nworkdir = \"/nope\"", "grant_missing", "/nope"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := resolve(t, tt.policy, nil)
			code := ""
			var ours *fault.Error
			var files *fault.Error
			switch {
			case errors.As(err, &ours):
				code = ours.Code
			case errors.As(err, &files):
				code = files.Code
			}
			if code != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %q: %v; want %q: …%s…", code, err, tt.code, tt.says)
			}
		})
	}
}

func TestEnviron(t *testing.T) {
	e := Exec{
		Env: map[string]string{"PATH": "/bin", "LANG": "C.UTF-8"}, EnvAllow: []string{"LANG", "LC_*", "A*Z*"},
		EnvSet: map[string]string{"SET": "policy", "LC_ALL": "set"},
	}
	got := e.Environ(
		map[string]string{
			"LANG": "de", "LC_ALL": "caller", "LC_TIME": "t", "SECRET": "s", "PATH": "/evil", "AxZy": "1", "AZ": "2", "ZA": "3",
			"SET": "caller",
		},
		map[string]string{"EXTRA": "e"})
	want := []string{
		"AZ=2", "AxZy=1", "EXTRA=e", "LANG=de", "LC_ALL=set", "LC_TIME=t", "PATH=/bin", "SET=policy",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"A", "A", true},
		{"A", "AB", false},
		{"A", "a", false},
		{"*", "", true},
		{"*", "X", true},
		{"A*", "A", true},
		{"A*", "BA", false},
		{"*A", "BA", true},
		{"*A", "AB", false},
		{"A*A", "A", false},
		{"A*A", "AA", true},
		{"A*B*C", "AxBxC", true},
		{"A*B*C", "ABC", true},
		{"A*B*C", "AC", false},
		{"**", "x", true},
	} {
		if got := matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("matches(%q, %q) = %v", tt.pattern, tt.name, got)
		}
	}
}

func TestLimitsLadder(t *testing.T) {
	held := func(policy string, change func(*Host)) map[string]string {
		t.Helper()
		plan, err := resolve(t, policy, change)
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]string{}
		for _, l := range plan.Limits {
			by[l.Name] = l.EnforcedBy
			if l.Verified {
				t.Errorf("%s is verified although nothing has been made", l.Name)
			}
		}
		return by
	}
	for name, tt := range map[string]struct {
		host func(*Host)
		want map[string]string
	}{
		"version 1":        {withCgroup1, map[string]string{"memory": ByCgroup1, "pids": ByCgroup1, "cpus": ByCgroup1}},
		"version 2":        {func(h *Host) { withCgroup1(h); h.Cgroups.Kind = ByCgroup2 }, map[string]string{"memory": ByCgroup2, "pids": ByCgroup2, "cpus": ByCgroup2}},
		"no cpu group":     {func(h *Host) { withCgroup1(h); h.Cgroups.Controllers = []string{"memory"}; h.Nproc = true }, map[string]string{"memory": ByCgroup1, "pids": ByRlimit, "cpus": ByAffinity}},
		"none, user":       {func(h *Host) { h.Nproc = true }, map[string]string{"memory": ByWatcher, "pids": ByRlimit, "cpus": ByAffinity}},
		"none, root":       {asRoot, map[string]string{"memory": ByWatcher, "pids": ByWatcher, "cpus": ByAffinity}},
		"no more than one": {func(h *Host) { h.CPUs = 1 }, map[string]string{"memory": ByWatcher, "pids": ByWatcher, "cpus": ByAffinity}},
	} {
		got := held("version = 1\nlimits = { memory = \"1G\", pids = 9, cpus = 2 }", tt.host)
		for limit, by := range tt.want {
			if got[limit] != by {
				t.Errorf("%s: %s is held by %q, want %q", name, limit, got[limit], by)
			}
		}
	}
}

// A program that is kept on its processors must not be able to choose others.
func TestAffinityCannotBeChanged(t *testing.T) {
	refused := func(p *Plan) bool {
		for _, s := range p.Filter.Syscalls {
			if slices.Contains(s.Names, "sched_setaffinity") {
				return s.Action != specs.ActAllow
			}
		}
		return true
	}
	for policy, want := range map[string]bool{"version = 1\nlimits.cpus = 1": true, "version = 1": false} {
		plan, err := resolve(t, policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := refused(plan); got != want {
			t.Errorf("%s: sched_setaffinity is refused: %v, want %v", policy, got, want)
		}
	}
}
