package integration

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/spec"
)

// sabotage leaves one layer out, in a build that can do so, and says which checks have to notice.
type sabotage struct {
	layer   string
	notices []string // each of these must, and no other may
	user    []string // so must these, where the launcher is not root
	root    bool     // the layer is there only where it is
	limit   string   // the layer is there only where this limit
	by      []string // is held by one of these

	processes object // the section of the policy without which the layer is not there
	kernel    [2]int // since which it is noticed
}

func sabotages() []sabotage {
	network := []string{"net_tcp_outside_blocked", "net_udp_outside_blocked", "net_abstract_outside_blocked", "forwarded_ports_open", "namespaces_own"}
	return []sabotage{
		{layer: "network", notices: network},
		{layer: "relay", notices: []string{"forwarded_ports_open"}},
		{layer: "secret", notices: []string{"secret_absent"}},
		{layer: "other name of a secret", notices: []string{"secret_absent"}},
		{layer: "other name above a secret", notices: []string{"secret_absent"}},
		{layer: "other name of a mask", notices: []string{"deny_unreadable"}},
		{layer: "probe path", notices: []string{"probe_paths_absent"}},
		{layer: "mask", notices: []string{"deny_unreadable"}},
		{layer: "hidden modules", notices: []string{"modules_absent"}},
		{layer: "grant", notices: []string{"grants_readable"}},
		{layer: "read-only", notices: []string{"readonly_not_writable"}},
		{layer: "writable", notices: []string{"workspace_writable"}},
		{layer: "bounding", notices: []string{"no_capability"}},
		{layer: "securebits", notices: []string{"no_capability"}},
		// Root's masks belong to nobody who is mapped where the program would have its capabilities.
		{layer: "capset", notices: []string{"no_capability"}, user: []string{"deny_unreadable"}},
		{layer: "program id", notices: []string{"program_id", "foreign_files_kept"}, root: true},
		{layer: "idmap", notices: []string{"workspace_writable"}, root: true},
		{layer: "no_new_privs", notices: []string{"no_new_privs", "seccomp_filter", "refused_calls"}},
		{layer: "filter", notices: []string{"seccomp_filter", "refused_calls"}},
		{layer: "rules", notices: []string{"refused_calls"}},
		{layer: "once", notices: []string{"refused_calls"}, processes: object{"spawn": false}},
		{layer: "execution", notices: []string{"refused_calls"}, processes: object{"execute": []string{"/usr/bin/python3"}}, kernel: [2]int{6, 14}},
		{layer: "uts", notices: []string{"namespaces_own"}},
		{layer: "mnt", notices: []string{"namespaces_own"}},
		{layer: "ipc", notices: []string{"namespaces_own"}},
		{layer: "cgroup", notices: []string{"namespaces_own"}},
		{layer: "pid", notices: []string{"namespaces_own", "host_processes_hidden"}},
		{layer: "proc", notices: []string{"host_processes_hidden"}},
		{layer: "proc cover", notices: []string{"proc_absent", "proc_hidden"}, processes: object{"proc": false}},
		{layer: "proc masks", notices: []string{"proc_hidden"}},
		{layer: "proc read-only", notices: []string{"readonly_not_writable"}},
		{layer: "descriptors", notices: []string{"descriptors"}},
		{layer: "environment", notices: []string{"environment"}},
		{layer: "rlimits", notices: []string{"limits_read_back"}},
		{layer: "core limit", notices: []string{"limits_read_back"}},
		{layer: "control groups", notices: []string{"limits_read_back"}, limit: "memory", by: []string{spec.ByCgroup1}},
		{layer: "processors", notices: []string{"limits_read_back"}, limit: "cpus", by: []string{spec.ByAffinity}},
	}
}

// sabotaged is a build that leaves a layer out where SANDBOXRUN_SABOTAGE says so.
var sabotaged = sync.OnceValues(func() (string, error) {
	path := filepath.Join(w.shared, "sandboxrun-sabotage")
	if _, err := os.Stat(path); err == nil { // the process that started this one has built it
		return path, nil
	}
	cmd := exec.Command("go", "build", "-tags", "netgo osusergo urfave_cli_no_docs runc_nocriu sabotage",
		"-ldflags", "-linkmode external -extldflags -static", "-o", path, "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &buildError{err, string(out)}
	}
	return path, os.Chmod(path, 0o755)
})

type buildError struct {
	err error
	out string
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.out }

// sabotagedBinary needs the compiler, unless the process that started this one has had it.
func sabotagedBinary(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil && os.Getenv(envShared) == "" {
		need(t, "go", false)
	}
	binary, err := sabotaged()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// TestSabotage takes the layers away one by one. Each time the start has to be refused, by the checks that lean on that layer.
func TestSabotage(t *testing.T) {
	binary := sabotagedBinary(t)
	flavours(t, func(b *box) {
		b.file("in/answers", "42")
		b.file("in/table", "1,2")
		b.file("in/hidden.py", "")
		whole := object{
			"files": object{
				"read": []string{b.path("in")}, "deny": []string{b.path("in", "answers")}, "write": []string{b.mkdir("out")},
				"secrets": []string{b.file("private/secret", "key")}, "hide_modules": []string{"hidden"},
			},
			"network": object{"ports": []int{9}},
			"limits":  object{"nofile": 100, "memory": "64M", "pids": 30, "cpus": 1},
		}
		policy := b.policy(whole)
		product := w.binary
		w.binary = binary
		defer func() { w.binary = product }()
		b.create("whole", policy)
		held := heldBy(b, "whole")
		b.run("delete", "whole").exits(0)
		for _, s := range sabotages() {
			b.t.Run(s.layer, func(t *testing.T) {
				if s.limit != "" && !slices.Contains(s.by, held[s.limit]) {
					t.Skip("here that layer holds nothing")
				}
				if s.root && w.uid != 0 {
					t.Skip("the launcher is not root")
				}
				if k, err := procfs.KernelVersion(); err != nil || k.Major < s.kernel[0] || k.Major == s.kernel[0] && k.Minor < s.kernel[1] {
					t.Skip("this kernel does not say what could be executed")
				}
				policy := policy
				if s.processes != nil {
					with := maps.Clone(whole)
					with["processes"] = s.processes
					policy = b.policy(with)
				}
				notices := s.notices
				if w.uid != 0 {
					notices = slices.Concat(notices, s.user)
				}
				a := b.call(call{env: []string{"SANDBOXRUN_SABOTAGE=" + s.layer}}, "create", "--policy", policy, "x")
				a.t = t
				a.exits(125).complains("sandboxrun: isolation_check_failed: ")
				for _, c := range hooks.Checks() {
					same(t, c.Name+" notices", slices.Contains(notices, c.Name), strings.Contains(a.stderr, " "+c.Name+": "))
				}
				if t.Failed() {
					t.Log(a)
				}
				same(t, "sandboxes left", 0, len(b.ids()))
			})
		}
	})
}

// heldBy says by what each limit of a sandbox is held.
func heldBy(b *box, id string) map[string]string {
	b.t.Helper()
	var state container.Description
	if err := json.Unmarshal([]byte(b.run("state", id).exits(0).stdout), &state); err != nil {
		b.t.Fatal(err)
	}
	held := map[string]string{}
	for _, l := range state.Limits {
		held[l.Name] = l.EnforcedBy
	}
	return held
}

// TestEveryCheckIsSabotaged keeps a check out that nothing can break.
func TestEveryCheckIsSabotaged(t *testing.T) {
	for _, c := range hooks.Checks() {
		if !slices.ContainsFunc(sabotages(), func(s sabotage) bool { return slices.Contains(s.notices, c.Name) }) {
			t.Errorf("no sabotage breaks %s", c.Name)
		}
	}
}

// TestProductCannotBeSabotaged looks for what only builds for tests have, and shows that these have it.
func TestProductCannotBeSabotaged(t *testing.T) {
	product := w.binary
	binary := sabotagedBinary(t)
	for path, has := range map[string]bool{w.binary: false, binary: true} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"SANDBOXRUN_SABOTAGE", "fx_without", "refusal of broken checks"} {
			same(t, path+" holds "+word, has, bytes.Contains(data, []byte(word)))
		}
	}
	b := newBox(t)
	broken := call{env: []string{"SANDBOXRUN_SABOTAGE=refusal of broken checks,filter,capset,bounding"}}
	const look = `grep -E '^(Seccomp|CapBnd):' /proc/self/status`
	b.call(broken, "run", "--", "sh", "-c", look).exits(0).prints("Seccomp:\t2", "CapBnd:\t0000000000000000")
	w.binary = binary
	defer func() { w.binary = product }()
	b.call(broken, "run", "--", "sh", "-c", look).exits(0).prints("Seccomp:\t0").hides("CapBnd:\t0000000000000000")
}
