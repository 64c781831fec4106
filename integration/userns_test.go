package integration

import (
	_ "embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/spec"
)

// TestUsernsEscapes runs every attack in a sandbox with processes.userns, and again from namespaces of the program's own. That each
// succeeds outside TestEscapes shows.
func TestUsernsEscapes(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		list := attacks()
		for name, nested := range map[string]bool{"in the sandbox": false, "in namespaces of its own": true} {
			t.Run(name, func(t *testing.T) {
				s := newStage(t)
				workdir, files := s.Files()
				s.policy = s.box.policy(object{"workdir": workdir, "files": files, "processes": object{"userns": true}})
				s.Nested = nested
				got := s.inside(list, "")
				for _, a := range list {
					// Those that may succeed must: else they were not made where they should be.
					if want := a.Granted || a.Own && nested; want != got.Broke(a.Name) {
						t.Errorf("%s: succeeded: %v, want %v:\n%s", a.Name, !want, want, got[a.Name])
					}
					allowed := append(strings.Fields(a.Fails), "ENOSYS", "EACCES", "ENOTSUP") // what AllowNamespaces answers
					met := got.Met(a.Name)
					if !nested && slices.ContainsFunc(met, func(e string) bool { return !slices.Contains(allowed, e) }) {
						t.Errorf("%s: met %q, want of %q", a.Name, met, allowed)
					}
				}
			})
		}
	})
}

// mountByDescriptor mounts as runc and crun do, which name what they mount on by a descriptor.
const mountByDescriptor = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def mount(target): return 0 if libc.mount(b"none", target.encode(), b"tmpfs", 0, b"size=64k") == 0 else ctypes.get_errno()
os.makedirs("/tmp/t/sub", exist_ok=True); os.chdir("/tmp/t")
d, f = os.open("/tmp/t", os.O_PATH), os.open("/etc/passwd", os.O_PATH)
for name in ["/proc/self/fd/%d/sub" % d, "/proc/thread-self/fd/%d" % d, "/dev/fd/%d" % os.open("/tmp", os.O_PATH), "/proc/self/root/tmp"]:
    before = os.stat(name).st_dev
    assert mount(name) == 0, name
    path = os.readlink(name) if "/sub" not in name and "root" not in name else {True: "/tmp/t/sub", False: "/tmp"}["/sub" in name]
    assert os.stat(path).st_dev != before, path
assert mount("/proc/self/cwd/") == 0
assert mount("/proc/self/fd/%d" % f) == 20 and mount("/proc/self/fd/99") == 2 and mount("/proc/self/fd/x") == 2 and mount("/proc/self/../1/root") == 2
`

//go:embed testdata/userns.py
var usernsProgram string

// TestUserns: what bubblewrap and unshare do works inside with processes.userns, and undoes nothing of the sandbox. Without the key it fails.
func TestUserns(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		denied := b.file("work/sub/denied", "THE-SECRET")
		readonly, lower := b.file("readonly/f", "read-only"), b.mkdir("lower")
		b.mustDo(copyProgram("/usr/bin/true", filepath.Join(lower, "setuid")), os.Chown(filepath.Join(lower, "setuid"), w.uid, w.gid),
			os.Chmod(filepath.Join(lower, "setuid"), 0o755|fs.ModeSetuid))
		whole := func(userns bool) string {
			return b.policy(object{
				"workdir": b.path("work"), "processes": object{"userns": userns}, "limits": object{"pids": 64},
				"files": object{"write": []string{b.path("work")}, "read": []string{b.path("readonly"), lower}, "deny": []string{denied}},
			})
		}
		b.create("on", whole(true))
		b.create("off", whole(false))
		for _, program := range [][]string{
			{"unshare", "-Urmpf", "--net", "--ipc", "--uts", "--cgroup", "sh", "-c", "test $(id -u) = 0 && hostname x && mount -t tmpfs -o size=1M none /tmp && touch /tmp/f && umount /tmp"},
			{"unshare", "-Urmpf", "python3", "-c", mountByDescriptor},
			{"bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-all", "/bin/true"},
			{
				"bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--ro-bind", "/proc", "/proc", "--tmpfs", "/tmp", "--bind", b.path("work"), b.path("work"), "--unshare-all", "--hostname", "x",
				"sh", "-c", "test $(hostname) = x && echo made >" + b.path("work", "made") + " && touch /tmp/f",
			},
		} {
			if _, err := exec.LookPath(program[0]); err != nil {
				need(t, program[0], false)
			}
			b.exec(append([]string{"on", "--"}, program...)...).exits(0)
			if a := b.exec(append([]string{"off", "--"}, program...)...); a.status == 0 {
				t.Errorf("without the key: %s", a)
			}
		}
		same(t, "made in the inner sandbox", "made\n", b.read(b.path("work", "made")))
		if a := b.exec("on", "--", "bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--unshare-all", "/bin/true"); a.status == 0 {
			t.Errorf("a new /proc: %s", a)
		}
		for name, args := range map[string][]string{
			"masks": {denied}, "writable": {readonly}, "kinds": nil, "race": nil, "many": nil, "dropped": nil, "devices": nil, "setuid": {lower, b.path("work")},
		} {
			t.Run(name, func(t *testing.T) {
				ours := *b
				ours.t = t
				ours.exec(append([]string{"on", "--", "python3", "-c", usernsProgram, "inside", name}, args...)...).exits(0).prints("CONTROL").hides("BROKE", "CONTROL mounted False")
			})
		}
		t.Run("control", func(t *testing.T) { // outside a set-user-id file is copied
			cmd := exec.Command("unshare", "-m", "python3", "-c", usernsProgram, "outside", "setuid", lower, b.mkdir("outside"))
			if w.uid != 0 {
				cmd = exec.Command("python3", "-c", usernsProgram, "inside", "setuid", lower, b.mkdir("outside"))
			}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "BROKE 0o104755") {
				t.Logf("%v %s", err, out)
				need(t, "control:overlayfs", false)
			}
		})
		// What is in PID namespaces of its own ends with the exec, and counts.
		b.exec("on", "--", "unshare", "-Urpf", "sh", "-c", "setsid sleep 4789.77 & setsid unshare -Urpf sleep 4789.77 & sleep 0.2").exits(0)
		same(t, "processes left", 0, processes("4789.77"))
		bomb := "for i in $(seq 200); do sleep 5 & done; exit 0"
		for _, inner := range [][]string{{"sh", "-c", bomb}, {"unshare", "-Urpf", "sh", "-c", bomb}} {
			r := b.run(append([]string{"exec", "--json", "on", "--"}, inner...)...)
			if !strings.Contains(r.stdout, `"pids_exceeded"`) && !strings.Contains(r.stdout, "fork") {
				t.Errorf("200 processes under a limit of 64: %s", r)
			}
		}
		b.run("state", "on").exits(0).prints(`"what":"processes.userns"`)
	})
}

// TestUsernsRefused: the key is refused with keys that it would make void, and where the launcher cannot count memory.
func TestUsernsRefused(t *testing.T) {
	flavours(t, func(b *box) {
		for _, other := range []object{{"spawn": false}, {"native": false}, {"execute": []string{"/usr/bin/true"}}, {"guard": "python"}} {
			other["userns"] = true
			b.run("run", "-p", b.policy(object{"processes": other}), "--", "true").exits(125).complains("policy_invalid", "processes.userns = true and processes.")
		}
		b.run("run", "-p", b.policy(object{"user": "root", "processes": object{"userns": true}}), "--", "true").exits(125).complains("policy_invalid", `user = "root"`)
		p := b.policy(object{"processes": object{"userns": true}, "limits": object{"memory": "64M"}})
		a := b.run("create", "-p", p, "m")
		if a.status == 0 {
			if by := heldBy(b, "m")["memory"]; by == spec.ByWatcher {
				b.t.Errorf("memory is enforced by %s", by)
			}
			return
		}
		a.exits(125).complains("limit_unenforceable", "processes.userns")
		b.create("n", b.policy(object{"processes": object{"userns": true}}))
		b.run("exec", "--memory", "64M", "n", "--", "true").exits(125).complains("limit_unenforceable", "processes.userns")
	})
}
