package integration

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/doctor"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// report is what doctor --json prints.
type report struct {
	Enforceable bool          `json:"enforceable"`
	Checks      []doctor.Row  `json:"checks"`
	Error       *result.Error `json:"error"`
	UID         int           `json:"uid"`
}

func (b *box) doctor(c call) (*answer, report) {
	b.t.Helper()
	a := b.call(c, "doctor", "--json").hides("goroutine")
	var r report
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		b.t.Fatalf("%v: %v", a, err)
	}
	return a, r
}

func (r report) check(t *testing.T, name string) doctor.Row {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q in %+v", name, r.Checks)
	return doctor.Row{}
}

// TestDoctor: where sandboxes work the doctor says so, and each of its rows has what a row must have.
func TestDoctor(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		a, r := b.doctor(call{})
		a.exits(0)
		if !r.Enforceable || r.Error != nil || a.stderr != "" {
			t.Errorf("not enforceable: %v", a)
		}
		seen := map[string]bool{}
		for _, c := range r.Checks {
			well := c.Status == doctor.OK
			if seen[c.Name] || c.Value == "" || well != (c.Cost == "") || well != (c.Fix == "") || c.Required && c.Status == doctor.Missing {
				t.Errorf("odd row: %+v", c)
			}
			seen[c.Name] = true
		}
		same(t, "sandbox", doctor.OK, r.check(t, "sandbox").Status)
		same(t, "ports", doctor.OK, r.check(t, "ports_below_1024").Status)
		if w.uid != 0 {
			return
		}
		// The rungs are those that a sandbox with limits is given.
		b.create("box", b.policy(object{"enforce": "best_effort", "limits": object{"memory": "256M", "pids": 64, "cpus": 1}}))
		var state struct {
			Limits []struct {
				Name string `json:"limit"`
				By   string `json:"enforced_by"`
			} `json:"limits"`
		}
		if err := json.Unmarshal([]byte(b.run("state", "box").stdout), &state); err != nil || len(state.Limits) != 3 {
			t.Fatalf("state: %v, %+v", err, state)
		}
		for _, l := range state.Limits {
			if got := r.check(t, "limits_"+l.Name).Value; !strings.HasPrefix(got, l.By) {
				t.Errorf("limits.%s is held by %s, and the doctor says %q", l.Name, l.By, got)
			}
		}
	})
}

// TestDoctorLeavesNothing: neither files nor mounts, groups or processes; also where it is ended halfway.
func TestDoctorLeavesNothing(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		look := func() string {
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil {
				t.Fatal(err)
			}
			groups, _ := exec.Command("find", "/sys/fs/cgroup", "-name", "sandboxrun-probe-*").Output()
			return tree(t, b.dir) + string(mounts) + string(groups)
		}
		before := look()
		b.run("doctor").exits(0)
		same(t, "without a state directory", before, look())
		b.state = b.mkdir("kept")
		if err := os.Chmod(b.state, 0o700); err != nil {
			t.Fatal(err)
		}
		b.env = append(b.env, "SANDBOXRUN_ROOT="+b.state)
		before = look()
		b.run("doctor").exits(0)
		same(t, "with one", before, look())
		for _, after := range []time.Duration{5, 20, 50, 100, 150} {
			cmd := b.command(call{}, "doctor")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after * time.Millisecond)
			_ = cmd.Process.Signal(unix.SIGTERM)
			_ = cmd.Wait()
			same(t, "ended after "+(after*time.Millisecond).String(), before, look())
		}
	})
}

// refusal is a machine that forbids a step. The first four are the ways in which machines are known to forbid user
// namespaces.
type refusal struct {
	name string
	wrap []string // what makes it around a command
	code string
	row  string // of the doctor
	says string // the fix
}

func inNamespace(script string) []string {
	return []string{"unshare", "-Urm", "sh", "-c", script + ` && exec "$@"`, "sh"}
}

// TestRefusals: where a machine forbids a step nothing runs, whatever the policy would do without; the error names the step
// and its fix, and the doctor says the same.
func TestRefusals(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "unshare")
		docker := []string{testBinaryPath(b.t), "-test.run=^TestUnderDocker$", "--"}
		for _, r := range []refusal{
			{
				"max_user_namespaces", inNamespace("echo 0 >/proc/sys/user/max_user_namespaces"),
				"userns_denied", "user_namespace", "sysctl -w user.max_user_namespaces=",
			},
			{"docker", docker, "userns_denied", "user_namespace", "--security-opt seccomp=unconfined"},
			{
				"nested", inNamespace("echo 1 >/proc/sys/user/max_user_namespaces"),
				"userns_denied", "nested_user_namespace", "sysctl -w user.max_user_namespaces=",
			},
			{
				"max_net_namespaces", inNamespace("echo 0 >/proc/sys/user/max_net_namespaces"),
				"netns_denied", "network_namespace", "sysctl -w user.max_net_namespaces=",
			},
			{
				"max_mnt_namespaces", inNamespace("echo 0 >/proc/sys/user/max_mnt_namespaces"),
				"namespaces_denied", "namespaces", "user.max_mnt_namespaces=",
			},
			{"covered proc", inNamespace("mount -t tmpfs none /proc/irq"), "proc_denied", "proc", "systempaths=unconfined"},
		} {
			b.t.Run(r.name, func(t *testing.T) { r.holds(t, b) })
		}
	})
}

// TestRefusalsOfTheMachine is the same for settings of the whole machine, which only one that is thrown away can be made
// to have: scripts/guest-test.
func TestRefusalsOfTheMachine(t *testing.T) {
	refusals := []refusal{
		{
			name: "kernel/unprivileged_userns_clone", code: "userns_denied", row: "user_namespace",
			says: "sudo sysctl -w kernel.unprivileged_userns_clone=1",
		},
		{
			name: "user/max_user_namespaces", code: "userns_denied", row: "user_namespace",
			says: "sudo sysctl -w user.max_user_namespaces=",
		},
	}
	if w.uid != 0 { // the process that root has started for the setting that is in force
		for _, r := range refusals {
			if value, err := os.ReadFile("/proc/sys/" + r.name); err == nil && string(value) == "0\n" {
				r.holds(t, newBox(t))
				return
			}
		}
		t.Fatal("nothing is refused")
	}
	needRoot(t)
	need(t, "throwaway", os.Getenv(envThrowaway) != "")
	need(t, "testuser", w.other != nil)
	for _, r := range refusals {
		t.Run(strings.ReplaceAll(r.name, "/", "."), func(t *testing.T) {
			before, err := os.ReadFile("/proc/sys/" + r.name)
			need(t, r.name, err == nil)
			if err := os.WriteFile("/proc/sys/"+r.name, []byte("0"), 0o644); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.WriteFile("/proc/sys/"+r.name, before, 0o644) }()
			again(t)
		})
	}
}

func (r refusal) holds(t *testing.T, b *box) {
	t.Helper()
	c := call{wrap: r.wrap, env: []string{envShared + "=" + w.shared}}
	ws := b.mkdir("ws-" + strings.NewReplacer(" ", "-", "/", "-").Replace(r.name))
	strict := b.files(ws, object{"write": []string{ws}})
	best := b.policy(object{"enforce": "best_effort", "workdir": ws, "files": object{"write": []string{ws}}})
	if err := os.Chmod(ws, 0o777); err != nil {
		t.Fatal(err)
	}
	var message string
	for _, policy := range []string{strict, best} {
		a := b.call(c, "run", "--json", "-p", policy, "--", "touch", ws+"/ran").exits(125).hides("goroutine")
		absent(t, ws+"/ran")
		var res result.Result
		if err := json.Unmarshal([]byte(a.stdout), &res); err != nil || res.Error == nil {
			t.Fatalf("no error as JSON: %v, %v", err, a)
		}
		same(t, "code", r.code, res.Error.Code)
		if !strings.Contains(res.Error.Hint, r.says) {
			t.Errorf("the hint does not say %q: %v", r.says, a)
		}
		if policy == strict {
			message = res.Error.Message
			continue
		}
		if !strings.HasPrefix(res.Error.Message, message+`; enforce = "best_effort" has no next best for what is missing: `+
			strings.ReplaceAll(r.row, "_", " ")) {
			t.Errorf("best_effort does not say what is missing: %v", a)
		}
	}
	a, rep := b.doctor(c)
	a.exits(1)
	row := rep.check(t, r.row)
	switch {
	case rep.Enforceable || rep.Error == nil:
		t.Errorf("the doctor finds nothing: %v", a)
	case rep.Error.Message != message || rep.Error.Code != r.code || !strings.Contains(rep.Error.Hint, r.says):
		t.Errorf("run says %q, and the doctor %+v", message, rep.Error)
	case row.Status != doctor.Missing || !row.Required || !strings.HasPrefix(row.Value, message) ||
		!strings.Contains(row.Fix, r.says) || !strings.HasSuffix(rep.Error.Hint, row.Fix):
		t.Errorf("run says %q, and the row is %+v", message, row)
	}
	b.call(c, "doctor").exits(1).prints("cannot be enforced", row.Fix).complains("sandboxrun: "+r.code+": "+message, "hint: ")
}

// testBinaryPath is this test binary where everybody can execute it.
func testBinaryPath(t *testing.T) string {
	t.Helper()
	if w.uid != 0 {
		return os.Args[0]
	}
	path, err := testBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnderDocker is no test: in a process of its own it loads the filter that Docker gives containers by default, with
// the capabilities that it gives them, and becomes the command behind "--".
func TestUnderDocker(t *testing.T) {
	if flag.NArg() == 0 {
		t.Skip("TestRefusals runs it")
	}
	filter, err := dockerFilter()
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath(flag.Arg(0))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		t.Fatal(e)
	}
	t.Fatal(syscall.Exec(path, flag.Args(), os.Environ())) // this thread's filter is then the whole process'
}

// dockerFilter is moby's default profile for a container with the capabilities that it has by default.
func dockerFilter() ([]unix.SockFilter, error) {
	caps := []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID",
		"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
	}
	profile, err := seccomp.GetDefaultProfile(&specs.Spec{
		Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}},
	})
	if err != nil {
		return nil, err
	}
	return forkexec.CompileSeccomp(profile, runtime.GOARCH)
}
