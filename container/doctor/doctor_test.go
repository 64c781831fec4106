package doctor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// wellFacts are those of a machine that has everything.
func wellFacts() *facts {
	works, loader := attempt{tried: true}, ""
	return &facts{
		diagnosis: &diagnose.Diagnosis{}, core: &spec.Core{}, loader: &loader, id: idFacts{looked: true},
		overlay: works, trees: works, noNewPrivs: works, filter: works, keyring: works, clone3: works, landlock: works,
		around: diagnose.Around{UID: 1000, Setting: settings()}, user: "ann", kernel: spec.Kernel{Major: 6, Minor: 18}, arch: "amd64",
		calls: []namedAttempt{{name: "openat2"}}, actions: []namedAttempt{{name: "errno"}}, abi: 7,
		limits: []spec.Limit{
			{Name: "memory", EnforcedBy: spec.ByCgroup2}, {Name: "pids", EnforcedBy: spec.ByCgroup2}, {Name: "cpus", EnforcedBy: spec.ByCgroup2},
		},
		state: stateFacts{path: "/run/user/1000/sandboxrun", fs: "tmpfs", free: 1 << 30},
		trial: trial{made: true, interpreters: []interpreter{{name: "python3", path: "/usr/bin/python3", asked: true, version: "3.13"}}},
	}
}

// failing is what is found where a step is refused.
func failing(f *facts, step forkexec.ProbeStep) *diagnose.Diagnosis {
	d := diagnose.Step(step, unix.EPERM, f.around)
	return &d
}

// TestRowsOfNothing: what nobody has tried is not well. The zero value of each fact means that nobody looked.
func TestRowsOfNothing(t *testing.T) {
	f := &facts{trial: trial{interpreters: []interpreter{{name: "python3", path: "/usr/bin/python3"}}}}
	for _, c := range f.checks() {
		if c.Status == OK {
			t.Errorf("%+v", c)
		}
	}
	if f.trial.enforced() {
		t.Error("enforced")
	}
}

func rowsOf(f *facts) map[string]Row {
	rows := map[string]Row{}
	for _, c := range f.checks() {
		rows[c.Name] = c
	}
	return rows
}

func TestRowsOfAWellMachine(t *testing.T) {
	f := wellFacts()
	for _, c := range f.checks() {
		if c.Status != OK || c.Value == "" || c.Cost != "" || c.Fix != "" {
			t.Errorf("%+v", c)
		}
	}
	if !f.trial.enforced() {
		t.Error("not enforced")
	}
}

// Each row: what is made up, what it says, and that every other row that is not well has a cost and a fix too.
func TestRows(t *testing.T) {
	watched := func(by string) func(f *facts) {
		return func(f *facts) {
			for i := range f.limits {
				f.limits[i].EnforcedBy = by
			}
			f.groups.Found.Reason = "no systemd"
		}
	}
	for _, tt := range []struct {
		row, status string
		change      func(f *facts)
		value, cost string // parts
		fix         string // part
	}{
		{"kernel", Missing, func(f *facts) { f.kernel = spec.Kernel{Major: 5, Minor: 10} }, "5.10", nothingRuns, diagnose.NewerKernel},
		{"kernel", Weaker, func(f *facts) { f.kernel = spec.Kernel{Major: 5, Minor: 13} }, "5.13", "watcher", diagnose.NewerKernel},
		{"kernel", Missing, func(f *facts) { f.arch = "riscv64" }, "riscv64", nothingRuns, "amd64"},
		{"kernel", Missing, func(f *facts) { f.kernelErr = errors.New("unknown form") }, "unknown form", nothingRuns, diagnose.NewerKernel},
		{"outer_confinement", OK, func(f *facts) { f.around.Filter, f.around.NoNewPrivs = true, true }, "a seccomp filter, no_new_privs", "", ""},
		{
			"outer_confinement", Weaker, func(f *facts) {
				f.around.Filter = true
				f.diagnosis = failing(f, forkexec.ProbeUserns)
			}, "a seccomp filter", "refuses", diagnose.OuterOptions,
		},
		{
			"nested_user_namespace", Missing, func(f *facts) { f.diagnosis = failing(f, forkexec.ProbeMount) },
			"not tried", nothingRuns, "dmesg",
		},
		{"seccomp_filter", Missing, func(f *facts) { f.filter = attempt{true, unix.EINVAL} }, "invalid", nothingRuns, "CONFIG_SECCOMP"},
		{"seccomp_filter", Missing, func(f *facts) { f.filter = attempt{err: unix.EINVAL} }, "not tried", nothingRuns, "CONFIG_SECCOMP"},
		{"process_calls", Missing, func(f *facts) { f.calls[0].err = unix.ENOSYS }, "openat2: function not", nothingRuns, diagnose.NewerKernel},
		{"seccomp_actions", Missing, func(f *facts) { f.actions[0].err = unix.EOPNOTSUPP }, "errno: ", nothingRuns, diagnose.NewerKernel},
		{"clone3", Weaker, func(f *facts) { f.clone3, f.around.Filter = attempt{true, unix.ENOSYS}, true }, "function", "watchers", diagnose.OuterOptions},
		{"keyring", Weaker, func(f *facts) { f.keyring = attempt{true, unix.ENOSYS} }, "function", "keyring", "CONFIG_KEYS"},
		{"landlock", Missing, func(f *facts) { f.landlock.err = unix.EOPNOTSUPP }, "not supported", "processes.execute", "lsm=landlock"},
		{"landlock", Missing, func(f *facts) { f.abi = 1 }, "less than 2", "processes.execute", "Linux 5.19"},
		{"overlay", Weaker, func(f *facts) { f.overlay = attempt{true, unix.ENODEV} }, "no such device", "empty instead of absent", "sudo modprobe overlay"},
		{"program_id", OK, func(f *facts) { f.id = idFacts{looked: true, root: true, dir: "/w"} }, "/w can be idmapped", "", ""},
		{"program_id", Missing, func(f *facts) { f.id = idFacts{looked: true, root: true, not: "no CAP_CHOWN"} }, "CAP_CHOWN", "root to the host", "capabilities"},
		{"program_id", Weaker, func(f *facts) { f.id = idFacts{looked: true, root: true, dir: "/w", idmap: unix.EINVAL} }, "/w cannot be idmapped: invalid", "refused", "ext4"},
		{"limits_memory", Weaker, watched(spec.ByWatcher), "watcher (no systemd)", "watcher", "mount -t cgroup2"},
		{"limits_pids", Weaker, watched(spec.ByRlimit), "rlimit", "64 more", "cgroup"},
		{"limits_pids", Weaker, watched(spec.ByWatcher), "watcher", "burst", "cgroup"},
		{"limits_cpus", Weaker, watched(spec.ByAffinity), "affinity", "whole processors", "cgroup"},
		{"limits_cpus", Missing, func(f *facts) { f.limits = f.limits[:1] }, "nothing", "refused", "cgroup"},
		{"limits_memory", Missing, func(f *facts) { f.limitsErr = errors.New("no /proc") }, "no /proc", "refused", "cgroup"},
		{"core_handler", Weaker, func(f *facts) { f.core = &spec.Core{Pattern: "|/usr/lib/handler", Fixed: true} }, "/usr/lib/handler", "as root", "ulimit -Hc 1"},
		{"core_handler", Weaker, func(f *facts) { f.core = &spec.Core{Pattern: "@/run/crash"} }, "/run/crash", "as root", "sysctl kernel.core_pattern"},
		{"ports_below_1024", Missing, func(f *facts) { f.trial.ports = unix.EACCES }, "permission", "loopback", "ip_unprivileged_port_start"},
		{"ports_below_1024", Missing, func(f *facts) { f.trial = trial{err: fault.New("x", "do so", "no")} }, "not tried", "loopback", "do so"},
		{"state_directory", Missing, func(f *facts) { f.state.err = errors.New("no") }, "/run/user/1000/sandboxrun: no", nothingRuns, "SANDBOXRUN_ROOT="},
		{"state_directory", Weaker, func(f *facts) { f.state.free = 1 << 20 }, "1 MB free", "full", "SANDBOXRUN_ROOT="},
		{"state_directory", Weaker, func(f *facts) { f.state.fs = "nfs" }, "nfs", "waits", "SANDBOXRUN_ROOT="},
		{"binary", Weaker, func(f *facts) { *f.loader = "/lib/ld.so" }, "/lib/ld.so", "C library", "scripts/build"},
		{"binary", Missing, func(f *facts) { f.selfOK = unix.ENOENT }, "no such file", "not known", "mount -t proc"},
		{
			"interpreter_python3", Weaker, func(f *facts) {
				f.trial.interpreters[0].path, f.trial.interpreters[0].err = "/opt/py/bin/python3", fault.New(fault.ProgramNotFound, "", "no")
			}, "does not show", "does not run", `'"/opt/py"'`,
		},
		{
			"interpreter_python3", Weaker, func(f *facts) {
				f.trial.interpreters[0].err, f.trial.interpreters[0].instead = fault.New("failed", "", "it ends"), "3.9"
			}, "it ends", "another one: 3.9", "policy.toml",
		},
		{"interpreter_python3", Missing, func(f *facts) { f.trial.interpreters[0].asked = false }, "not tried", "not known", ""},
		{
			"interpreter_node", Missing, func(f *facts) { f.trial.interpreters = []interpreter{{name: "node", packed: "nodejs"}} },
			"not on PATH", "no program", "nodejs",
		},
		{"sandbox", Missing, func(f *facts) { f.trial.err = fault.New("x", "do so", "why not") }, "why not", nothingRuns, "do so"},
		{
			"sandbox", Weaker, func(f *facts) { f.trial.weaker = []spec.Weakness{{What: "limits.x", Reason: "none"}} },
			"limits.x: none", "in full", "",
		},
	} {
		f := wellFacts()
		tt.change(f)
		c := rowsOf(f)[tt.row]
		if c.Status != tt.status || !strings.Contains(c.Value, tt.value) || !strings.Contains(c.Cost, tt.cost) || !strings.Contains(c.Fix, tt.fix) {
			t.Errorf("%s: %+v\nwant %+v", tt.row, c, tt)
		}
		if (c.Cost == "") != (c.Status == OK) {
			t.Errorf("%s is %s and costs %q", tt.row, c.Status, c.Cost)
		}
	}
}

// What a program could say to be believed is checked as a whole: a field that is not there does not hold.
func TestBrokenWalls(t *testing.T) {
	const well = "CapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0000\nCapAmb:\t0000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	if broken := brokenWalls(procfs.StatusFields(well)); len(broken) != 0 {
		t.Errorf("all hold, and broken are %q", broken)
	}
	if broken := brokenWalls(procfs.StatusFields("")); len(broken) != 7 {
		t.Errorf("of none broken are %q", broken)
	}
	for _, tt := range [][2]string{{"CapBnd:\t0000", "CapBnd:\t0400"}, {"Seccomp:\t2", "Seccomp:\t0"}, {"NoNewPrivs:\t1", "NoNewPrivs:\t0"}} {
		if broken := brokenWalls(procfs.StatusFields(strings.Replace(well, tt[0], tt[1], 1))); len(broken) != 1 {
			t.Errorf("%s: broken are %q", tt[1], broken)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"  v1.2 \nmore": "v1.2", "a\x1b[31mb": "a?[31mb", "\x00\x7f": "??", "": "", "caf\xc3\xa9": "café",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
	if got := printable(strings.Repeat("é", 500)); len(got) > 210 || !strings.HasSuffix(got, "é…") {
		t.Errorf("a long one: %q", got)
	}
}

// The commands that give a shell a control group are words that a shell reads as we mean them.
func TestGroupFix(t *testing.T) {
	for _, tt := range []struct {
		groups cgroup.Facts
		uid    int
		want   string
	}{
		{cgroup.Facts{ReadOnly: true, Unified: "/sys/fs/cgroup"}, 0, "docker run --cgroupns private --security-opt writable-cgroups=true"},
		{cgroup.Facts{Systemd: true, Unified: "/sys/fs/cgroup"}, 1000, "sudo loginctl enable-linger ann"},
		{cgroup.Facts{Systemd: true, Found: spec.Cgroups{Controllers: []string{"pids"}}}, 1000, "delegate.conf"},
		{cgroup.Facts{Unified: "/sys/fs/cgroup"}, 1000, "d=/sys/fs/cgroup; g=$d/user-1000;"},
		{cgroup.Facts{Legacy: []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"}}, 1000, "for d in /sys/fs/cgroup/memory /sys/fs/cgroup/pids;"},
		{cgroup.Facts{}, 0, "mount -t cgroup2 cgroup2 /sys/fs/cgroup"},
	} {
		f := wellFacts()
		f.groups, f.around.UID = tt.groups, tt.uid
		got := f.groupFix()
		if !strings.Contains(got, tt.want) || strings.HasPrefix(got, "sudo ") != (tt.uid != 0 && !tt.groups.ReadOnly) {
			t.Errorf("%+v: %s", tt.groups, got)
		}
		if out, err := exec.Command("sh", "-n", "-c", got).CombinedOutput(); err != nil {
			t.Errorf("a shell does not read %s: %s", got, out)
		}
	}
}

// What a killed examination has left goes with the next one; what another is at work in stays, and so does what is not ours.
func TestSweepTrials(t *testing.T) {
	parent := t.TempDir()
	old := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{trialPrefix + "old", trialPrefix + "new", "old"} {
		if err := os.MkdirAll(filepath.Join(parent, name, "doctor"), 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "old") {
			if err := os.Chtimes(filepath.Join(parent, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(filepath.Join(parent, "old"), filepath.Join(parent, trialPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	sweepTrials(parent)
	for name, stays := range map[string]bool{trialPrefix + "old": false, trialPrefix + "new": true, "old/doctor": true, trialPrefix + "link": true} {
		if exists(filepath.Join(parent, name)) != stays {
			t.Errorf("%s stays: %v", name, !stays)
		}
	}
}

func TestAppArmorPath(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/local/bin/sandboxrun": "/usr/local/bin/sandboxrun",
		"/opt/a b/sandboxrun":       `"/opt/a b/sandboxrun"`,
		"/opt/a*[b]{c}?^/x":         `"/opt/a\*\[b\]\{c\}\?\^/x"`,
		"/opt/@{HOME}/x":            `"/opt/@\{HOME\}/x"`,
		"/opt/ü,#/x":                `"/opt/ü,#/x"`,
	} {
		if got, err := appArmorPath(path); err != nil || got != want {
			t.Errorf("appArmorPath(%q) = %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"relative", "", "/a\nb", "/a\"b", `/a\b`, "/a\tb", "/a\xffb", "/a\x7f"} {
		if got, err := appArmorPath(path); err == nil {
			t.Errorf("appArmorPath(%q) = %q, and it cannot be said", path, got)
		}
	}
}

func TestFindInterpreters(t *testing.T) {
	found := findInterpreters("")
	names := []string{}
	for _, i := range found {
		names = append(names, i.name)
		if i.path != "" {
			t.Errorf("found %s without PATH", i.path)
		}
	}
	if !reflect.DeepEqual(names, []string{"bash", "python3", "node"}) {
		t.Errorf("missed are %q", names)
	}
	for _, i := range findInterpreters("relative:" + t.TempDir() + ":/usr/bin:/bin") {
		if i.path != "" && !strings.HasPrefix(i.path, "/usr/bin/") && !strings.HasPrefix(i.path, "/bin/") {
			t.Errorf("found %s", i.path)
		}
	}
}

// settings makes a machine up: name, value, name, value ...
func settings(list ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(list); i += 2 {
			if list[i] == name {
				return list[i+1]
			}
		}
		return ""
	}
}
