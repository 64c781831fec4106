package container

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/check"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

func outcomes(list []hooks.Result) map[string]hooks.Outcome {
	m := map[string]hooks.Outcome{}
	for _, r := range list {
		m[r.Name] = r.Result
	}
	return m
}

// What a policy asks for is proven, and what it does not ask for, or cannot be seen outside, is not called good.
func TestChecksAtStart(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"in/answers", "in/hidden.py", "in/table", "out/file", "secret"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return quote(filepath.Join(dir, name)) }
	for more, untested := range map[string][]string{"": {"forwarded_ports_open", "proc_absent"}, "\nprocesses.proc = false": {"forwarded_ports_open"}} {
		sb := sandboxOf(t, "files.read = ["+at("in")+"]\nfiles.write = ["+at("out")+", "+at("in/table")+"]\nfiles.deny = ["+at("in/answers")+"]\n"+
			"files.secrets = ["+at("secret")+"]\nfiles.hide_modules = [\"hidden\"]\nlimits.nofile = 50"+more)
		for name, got := range outcomes(sb.state.Checks) {
			want := hooks.Held
			if slices.Contains(untested, name) {
				want = hooks.NotTested
			}
			if got != want {
				t.Errorf("%q: %s: %s", more, name, got)
			}
		}
		if len(sb.state.Checks) != len(hooks.Checks()) {
			t.Errorf("%d of %d checks", len(sb.state.Checks), len(hooks.Checks()))
		}
	}

	sb := sandboxOf(t, "network.mode = \"host\"\nfiles.deny = ["+at("nothing")+"]\nfiles.read = ["+quote(dir)+"]\nfiles.secrets = [\"/no/such\"]")
	got := outcomes(sb.state.Checks)
	for _, name := range []string{
		"net_tcp_outside_blocked", "net_udp_outside_blocked", "net_abstract_outside_blocked", "secret_absent", "deny_unreadable",
	} {
		if got[name] != hooks.NotTested {
			t.Errorf("%s: %s", name, got[name])
		}
	}
	if got["namespaces_own"] != hooks.Held {
		t.Error("the other namespaces are its own")
	}
}

// The checks write to nothing that the host sees, and are no exec.
func TestChecksLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("whole"), 0o644); err != nil {
		t.Fatal(err)
	}
	look := func() (list [2]unix.Stat_t) {
		for i, path := range []string{dir, file} {
			if err := unix.Stat(path, &list[i]); err != nil {
				t.Fatal(err)
			}
			list[i].Atim = unix.Timespec{}
		}
		return list
	}
	before := look()
	sb := sandboxOf(t, "files.write = ["+quote(dir)+"]")
	if after := look(); after != before {
		t.Errorf("%+v, was %+v", after, before)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if r := run(t, sb, sh("true")); r.Exec != "e000001" {
		t.Errorf("the first exec is %s", r.Exec)
	}
}

// Limits that leave hardly any room for a program leave too little for some checks. That is said, and breaks nothing.
func TestChecksWithoutSpace(t *testing.T) {
	for _, limits := range []string{"limits.nofile = 3", "limits.pids = 1", "limits.file = \"1\"", "limits.memory = \"300K\""} {
		sb := sandboxOf(t, limits)
		if broken := hooks.BrokenOf(sb.state.Checks); len(broken) > 0 {
			t.Errorf("%s: %v", limits, broken)
		}
	}
}

func TestForwardedPorts(t *testing.T) {
	p, err := policy.Load(policy.Default(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	plan := planFor(t, p, policy.Limits{})
	plan.Checks.Forwards = []uint16{7077}
	sb := sandboxFor(t, p)
	if e := sb.state.Launch; e.OwnID { // that plan has another
		plan.Checks.ID = [2]uint32{uint32(e.UID), uint32(e.GID)}
	}
	filter, err := sb.loadFilter()
	if err != nil {
		t.Fatal(err)
	}
	_, err = check.New(plan.Checks, plan.View, sb.store.path).Run(sb.checked(filter))
	var e *Error
	if !errors.As(err, &e) || e.Code != fault.IsolationCheckFailed {
		t.Errorf("nothing listens yet: %v", err)
	}
	files, err := forkexec.Listen(sb.init, []forkexec.Endpoint{{Addr: netip.MustParseAddrPort("127.0.0.1:7077")}})
	if err != nil {
		t.Fatal(err)
	}
	defer files[0].Close()
	results, err := check.New(plan.Checks, plan.View, sb.store.path).Run(sb.checked(filter))
	if err != nil || !slices.ContainsFunc(results, func(r hooks.Result) bool { return r.Name == "forwarded_ports_open" && r.Result == hooks.Held }) {
		t.Error(results, err)
	}
}
