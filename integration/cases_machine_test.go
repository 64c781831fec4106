package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDevices: shared memory, semaphores and terminals work, and none of them is the host's.
func TestDevices(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		canary := fmt.Sprintf("/dev/shm/sandboxrun-canary-%d-%d", os.Getpid(), w.uid)
		if err := os.WriteFile(canary, nil, 0o644); err == nil {
			defer func() { _ = os.Remove(canary) }()
		}
		p := b.files("", object{})
		b.sh(p, `stat -c %a /dev/shm; ls /dev/shm; ls /dev/fd/0 /dev/stdin /dev/stdout /dev/stderr && echo links
			head -c 3 /dev/urandom | wc -c; head -c 2 /dev/zero | od -c; echo x >/dev/full || echo full; cat /dev/null; echo x >/dev/null && echo null
			ls /dev`).exits(0).prints("1777", "links", "full", "null", "3\n", "0000002").hides("canary", "kmsg", "vda", "mem\n")
		b.sh(p, `find /dev -type b; find /dev -type c -perm -1 | head; exit 0`).exits(0)
		b.python(p, `
from concurrent.futures import ProcessPoolExecutor
import multiprocessing as m, os, pty
from multiprocessing import shared_memory as s
if __name__ == "__main__":
    with m.Lock(): pass
    q = m.Queue(); q.put(1); q.get()
    with ProcessPoolExecutor(3) as e: print("pool", sum(e.map(abs, [1, 2, -3])))
    x = s.SharedMemory(create=True, size=1 << 20); x.buf[0] = 7; x.close(); x.unlink(); print("shm")
    for _ in range(5):
        a, b = pty.openpty(); os.write(a, b"in\n"); assert os.read(b, 9) == b"in\n"; print(os.ttyname(b))
`).exits(0).prints("pool 6", "shm", "/dev/pts/4")
		needProgram(t, "script")
		b.sh(p, `script -qec 'tty; stty size' /dev/null`).exits(0).prints("/dev/pts/")
		b.run("run", "-p", p, "--", "bash", "-c", `diff <(echo a) <(echo a) && echo same; cat <<<here; coproc cat; echo x >&${COPROC[1]}; read -r y <&${COPROC[0]}; echo co$y`).
			exits(0).prints("same", "here", "cox")
	})
}

// TestNobodyKnows: a user without a passwd entry, with a foreign home and no locale, has ordinary tools all the same.
func TestNobodyKnows(t *testing.T) {
	needRoot(t)
	needUserns(t)
	needProgram(t, "git")
	b := newBox(t)
	ws := b.mkdir("ws")
	p := b.files(ws, object{"write": []string{ws}})
	for _, uid := range []int{54321, 2147483646, 65534} {
		if err := os.RemoveAll(ws); err != nil {
			t.Fatal(err)
		}
		b.mkdir("ws")
		state := b.mkdir(fmt.Sprintf("state-%d", uid))
		for _, d := range []string{ws, state} {
			if err := os.Chown(d, uid, uid); err != nil {
				t.Fatal(err)
			}
		}
		u := strconv.Itoa(uid)
		wrap := []string{
			"setpriv", "--reuid", u, "--regid", u, "--clear-groups", "env", "-i", "PATH=" + systemPath, "HOME=/home/nobody-here",
			"TMPDIR=/var/folders/none", "XDG_CACHE_HOME=/nope", "SANDBOXRUN_ROOT=" + state,
		}
		a := b.call(call{wrap: wrap}, "run", "-p", p, "--", "sh", "-c", `id -un && id -u && python3 -c '
import getpass, os, pwd, tempfile
print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir)
open(os.path.expanduser("~/.probe"), "w").write("x"); print("HOME", os.path.expanduser("~"))
print(tempfile.mkdtemp()); print("caf\u00e9 \u2192")' && mktemp && git init -q r && cd r && echo a >a && git add a &&
			git -c user.name=n -c user.email=e@x commit -qm m && git log --oneline | wc -l && touch ~/x "${TMPDIR:-/tmp}/y" && locale && echo ALL`)
		a.exits(0).prints("ALL", "HOME /home/", "café →", "\n1\n", u).hides("/var/folders", "dubious", "cannot set", "Cannot set")
		info, err := os.Stat(ws + "/r/a")
		if err != nil {
			t.Fatal(err)
		}
		same(t, "owner of what it wrote", uint32(uid), ownerOf(info))
	}
}

// TestUmaskAndGroups: the caller's umask decides nothing, and root's groups go nowhere.
func TestUmaskAndGroups(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		f := b.file("in/f", "granted")
		keys := object{
			"workdir": "/w/deep/er/ws", "files": object{"tmpfs": []object{{"path": "/tmp"}}},
			"bind": []object{{"source": ws, "target": "/w/deep/er/ws", "writable": true}, {"source": f, "target": "/opt/x/y/f"}},
		}
		p := b.policy(keys)
		for _, umask := range []string{"000", "022", "077", "0777"} {
			wrap := []string{"sh", "-c", `umask "$0"; exec "$@"`, umask}
			a := b.call(call{wrap: wrap}, "run", "-p", p, "--", "sh", "-c",
				`cat /opt/x/y/f && echo ok >f$$ && ls -d /w /w/deep /opt/x >/dev/null && touch /tmp/t && umask && echo fine`)
			a.exits(0).prints("granted", "0022", "fine")
			b.call(call{wrap: wrap}, "create", "-p", p, "box").exits(0)
			b.call(call{wrap: wrap}, "exec", "box", "--", "sh", "-c", "cat /opt/x/y/f; umask").exits(0).prints("granted", "0022")
			b.run("delete", "box").exits(0)
		}
		if w.uid != 0 {
			return
		}
		g := b.file("g/s", "GROUP-ONLY")
		if err := os.Chown(g, 0, 4242); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(g, 0o640); err != nil {
			t.Fatal(err)
		}
		wrap := []string{"setpriv", "--groups", "0,4242,999"}
		for _, user := range []any{1234, "caller", "root"} {
			a := b.call(call{wrap: wrap}, "run", "-p", b.policy(object{"user": user, "files": object{"read": []string{b.path("g")}}}), "--",
				"sh", "-c", "id -G; cat "+g+"; exit 0").exits(0)
			for _, group := range []string{"4242", "999"} {
				if slices.Contains(strings.Fields(a.stdout), group) {
					t.Errorf("user %v is in group %s: %v", user, group, a)
				}
			}
			if user == 1234 {
				a.hides("GROUP-ONLY")
			}
		}
	})
}

// TestConcurrency: one winner of one id, many runs in one workspace, nothing left.
func TestConcurrency(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		b.file("ws/keep", "THE-KEY")
		p := b.files(ws, object{"write": []string{ws}, "deny": []string{ws + "/.env", ws + "/keep"}})
		before := tree(t, ws)
		for round := range 3 {
			answers := b.together(8, func(int) *answer { return b.run("create", "-p", p, "same") })
			won := 0
			for _, a := range answers {
				if a.status == 0 {
					won++
				} else {
					a.exits(125).complains("sandboxrun: id_in_use: ")
				}
			}
			same(t, fmt.Sprintf("round %d: winners", round), 1, won)
			same(t, "the winner works", "ok\n", b.result("same", "echo", "ok").Stdout)
			// And one id deleted by many is deleted, and an error for some at most.
			for _, a := range b.together(4, func(int) *answer { return b.run("delete", "same") }) {
				if a.status != 0 {
					a.exits(125).complains("not_found")
				}
			}
			same(t, "left", 0, len(b.ids()))
		}
		for _, a := range b.together(12, func(i int) *answer { return b.sh(p, fmt.Sprintf("sleep 0.%d; cat keep; echo ran%d", i, i)) }) {
			a.exits(0).prints("ran").hides("THE-KEY")
		}
		same(t, "the workspace", before, tree(t, ws))
		same(t, "left", 0, len(b.ids()))
	})
}

// together calls the launcher n times at once.
func (b *box) together(n int, do func(i int) *answer) []*answer {
	answers := make([]*answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i] = do(i) })
	}
	wg.Wait()
	return answers
}

// TestIDs: an id is no path, no option and no other sandbox's.
func TestIDs(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		b.state = b.path("run", "state")
		b.env = append(b.env, "SANDBOXRUN_ROOT="+b.state)
		b.file("run/sentinel", "s")
		b.file("run/other/f", "o")
		b.create("good", p)
		bad := []string{
			"..", ".", "../x", "../other", "../../x", "a/b", "/abs", "", "..0/..", ".lock", ".x", "-x", "--policy", "a\nb", "a b;rm", "é", "a\x00"[:1] + "%",
			"a*", "~", "$HOME", "good/", "good/../good", "./good", strings.Repeat("x", 129), strings.Repeat("x", 5000),
		}
		before := tree(t, b.path("run", "other"))
		for _, id := range bad {
			for _, args := range [][]string{
				{"create", "-p", p, "--", id},
				{"delete", "--", id},
				{"delete", "-f", "--", id},
				{"exec", "--", id, "true"},
				{"state", "--", id},
				{"ps", "--", id},
				{"kill", "--", id, "TERM"},
			} {
				a := b.run(args...).hides("goroutine")
				if a.status != 125 {
					t.Errorf("id %q: %v", id, a)
				}
			}
		}
		same(t, "beside the state directory", before, tree(t, b.path("run", "other")))
		same(t, "the file there", "s", b.read(b.path("run", "sentinel")))
		same(t, "sandboxes", "good", strings.Join(b.ids(), " "))
		same(t, "the good one", "alive\n", b.result("good", "echo", "alive").Stdout)
		for _, id := range []string{"a.b", "a_b", "a-b", "A-b", "0", "a..b", "delete", strings.Repeat("y", 128)} {
			b.create(id, p)
			b.run("exec", id, "--", "sh", "-c", "echo mine >/tmp/"+id[:1]+"; ls /tmp").exits(0).prints(id[:1])
		}
		b.run("delete", "a.b").exits(0)
		b.exec("a_b", "--", "echo", "still").exits(0).prints("still")
	})
}

// TestCleaningUp: what a program made hard to remove is removed, nothing that links lead to, and the id is free.
func TestCleaningUp(t *testing.T) {
	const mess = `
import os, sys
for d in {os.environ["HOME"], "/tmp", "/var/tmp", "/dev/shm", os.getcwd()}:
    try: os.chdir(d); os.mkdir("t"); os.chdir("t")
    except OSError: continue
    os.symlink(sys.argv[1], "out"); os.mkdir("z"); open("z/f", "w").close(); open("new\nline", "w").close(); os.mkfifo("ff")
    os.link(sys.argv[1] + "/mine", "hard") if os.path.exists(sys.argv[1] + "/mine") else None
    try:
        for i in range(5000): os.mkdir("d" * 60); os.chdir("d" * 60)
    except OSError: pass
    os.chdir(d); os.chmod("t/z", 0); os.chmod("t", 0); print("made in", d)`
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		b.file("victim/keep", "v")
		before := tree(t, b.path("victim"))
		p := b.policy(object{"workspace": object{"source": "tmpfs"}, "files": object{"read": []string{b.path("victim")}}})
		b.create("warm", p)
		b.run("delete", "warm").exits(0)
		base := tree(t, b.state)
		b.create("box", p)
		b.run("exec", "box", "--", "python3", "-c", mess, b.path("victim")).exits(0).prints("tmp\n", "made in /dev/shm", "made in /w")
		if a := b.run("delete", "box").exits(0); a.took > 10*time.Second {
			t.Errorf("delete took %v", a.took)
		}
		same(t, "the state directory", base, tree(t, b.state))
		same(t, "what the links lead to", before, tree(t, b.path("victim")))
		b.create("box", p)
		b.run("delete", "box").exits(0)

		// What a program leaves in the caller's own workspace is the caller's, as it is.
		ws := b.mkdir("ws")
		b.sh(b.files(ws, object{"write": []string{ws}}), "mkdir -p p/q && chmod 000 p/q p; exit 0").exits(0)
		info, err := os.Stat(filepath.Join(ws, "p"))
		if err != nil || info.Mode().Perm() != 0 {
			t.Errorf("the closed directory: %v, %v", info, err)
		}
		_ = exec.Command("chmod", "-R", "u+rwx", ws).Run()
	})
}

// TestNestedNamespaces: a program cannot take the masks off in a user namespace of its own, yet new system calls and
// threads behave as on any kernel.
func TestNestedNamespaces(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "unshare")
		ws := b.mkdir("ws")
		b.file("ws/key", "THE-KEY")
		b.file("ws/d/k", "THE-KEY")
		b.file("ro/f", "read-only")
		p := b.files(ws, object{"read": []string{b.path("ro")}, "write": []string{ws}, "deny": []string{ws + "/key", ws + "/d"}})
		for _, flags := range []string{"-m", "-Um", "-Urm", "-Urmp --fork", "-UrmC", "-Urn", "-U"} {
			a := b.sh(p, `unshare `+flags+` sh -c 'echo INSIDE; umount key; umount d; umount -l .; mount -o remount,rw,bind "$0"; mkdir m; mount --bind . m
				cat key d/k m/key; mount -t proc p m; mount --bind / m; cat m$PWD/key; echo evil >"$0/f"; mount --move key d; ls /sys/class/net' "$1"; exit 0`, b.path("ro"))
			a.exits(0).hides("THE-KEY", "INSIDE")
			same(t, flags+": the read-only file", "read-only", b.read(b.path("ro/f")))
		}
		b.python(p, `
import ctypes, os, subprocess, threading
t = [threading.Thread(target=lambda: None) for _ in range(16)]; [x.start() for x in t]; [x.join() for x in t]; print("threads")
print(subprocess.check_output(["echo", "child"]))
l = ctypes.CDLL(None, use_errno=True)
def call(name, nr, *args): r = l.syscall(nr, *args); print(name, r, ctypes.get_errno() if r < 0 else "ok")
call("clone3", 435, 0, 0); call("unknown", 9999); call("unknown2", 600)
call("unshare-user", 272, 0x10000000); call("io_uring", 425, 1, 0); call("userfaultfd", 323, 0); call("keyctl", 250, 0, -3, 0)
call("bpf", 321, 0, 0, 0); call("perf", 298, 0, 0, 0, 0, 0); call("open_by_handle", 304, 0, 0, 0); call("vsock", 41, 40, 1, 0)
`).exits(0).prints("threads", "child", "unknown -1 38", "unknown2 -1 38", "clone3 -1 38").hides("io_uring 3", " ok")
		b.sh(p, `grep -E "^(NoNewPrivs|Cap|Seccomp:)" /proc/self/status`).exits(0).
			prints("NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "Seccomp:\t2")
	})
}
