package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// shared makes a directory of a project that a group shares.
func (b *box) sharedTree(name string) string {
	b.t.Helper()
	dir := b.mkdir(name)
	if err := os.Chmod(dir, 0o775|os.ModeSetgid); err != nil {
		b.t.Fatal(err)
	}
	return dir
}

// modes lists what is in a directory, with modes and groups.
func modes(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$0" && find . -name .git -prune -o -printf '%P %y %m %g\n' | sort`, dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestSetGroupTree: ordinary work in a tree with set-group-id directories leaves what it leaves outside.
func TestSetGroupTree(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		const work = `set -e; umask 022; mkdir a; echo x >a/f; chmod 755 a; cp -a a b; mkdir -p deep/er; chmod -R g+w deep; install -d -m 2770 inst
			tar cf t.tar a && mkdir u && tar xf t.tar -C u; mkdir plain; chmod 00700 plain; cd a; mkdir c; chmod 2711 c; chmod 2701 ../inst/.
			ln -s ../deep link; chmod 2775 link; rm ../t.tar`
		outside, inside := b.sharedTree("outside"), b.sharedTree("inside")
		cmd := exec.Command("sh", "-c", work)
		cmd.Dir = outside
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		p := b.files(inside, object{"write": []string{inside}})
		b.sh(p, work).exits(0)
		same(t, "the tree", modes(t, outside), modes(t, inside))
		if !strings.Contains(modes(t, inside), "inst d 2701") {
			t.Errorf("no directory has the bit: %s", modes(t, inside))
		}
		// In each way of starting a program.
		b.create("box", p)
		for i, form := range [][]string{{"exec"}, {"exec", "--json"}, {"exec", "--detach"}} {
			dir := filepath.Join(inside, "way"+string(rune('0'+i)))
			args := append(form, "box", "sh", "-c", "mkdir "+dir+" && chmod 2750 "+dir)
			b.run(args...).exits(0)
			eventually(t, "it has its mode", func() bool {
				info, err := os.Stat(dir)
				return err == nil && info.Mode() == os.ModeDir|os.ModeSetgid|0o750
			})
		}
		b.run("delete", "box").exits(0)
	})
}

// TestAskedModes: a file gets a mode without the two bits, by whatever name, and a directory keeps that of its group. What is not the
// program's to change is refused as by the kernel.
func TestAskedModes(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws, ro := b.mkdir("ws"), b.mkdir("ro")
		denied := b.mkdir("ws", "denied", "inner")
		before := modes(t, ro)
		p := b.policy(object{"workdir": ws, "files": object{"write": []string{ws}, "read": []string{ro}, "deny": []string{filepath.Dir(denied)}}})
		b.python(p, `
import ctypes, os, signal, sys, threading, time
ro, libc = sys.argv[1], ctypes.CDLL(None, use_errno=True)
def refused(what, f):
    try: f(); print("DONE", what)
    except OSError as e: print("refused", what, e.errno)
def done(what, f, name, want):
    try:
        os.chmod(name, 0o700); f(); is_ = os.stat(name).st_mode & 0o7777
        print("done" if is_ == want else "NOT", what, oct(is_), oct(want))
    except OSError as e: print("NOT", what, e)
def raw(number, *args):
    if libc.syscall(number, *args) < 0: raise OSError(ctypes.get_errno(), "")
open("f", "w").close(); os.mkdir("d"); os.mkfifo("p"); os.symlink("f", "lf"); os.symlink(os.getcwd() + "/f", "absolute"); os.symlink("/etc", "letc")
os.symlink("/", "lroot"); os.symlink("/../../../..", "lup")
fd = os.open("f", os.O_RDWR); dfd = os.open("d", os.O_RDONLY); here = os.open(".", os.O_RDONLY); memory = os.memfd_create("m")
for bits in (0o2755, 0o2750, 0o2644, 0o6755, 0o4755, 0o7711):
    less, kept = bits & 0o1777, bits & 0o3777
    os.chmod("d", 0o755)
    for what, f in {
        "file": lambda: os.chmod("f", bits), "by descriptor": lambda: os.fchmod(fd, bits), "by link": lambda: os.chmod("lf", bits),
        "by an absolute link": lambda: os.chmod("absolute", bits), "by path": lambda: os.chmod(os.getcwd() + "/d/../f", bits),
        "below a descriptor": lambda: os.chmod("f", bits, dir_fd=here), "by /proc": lambda: os.chmod("/proc/self/fd/%d" % fd, bits),
        "by /dev": lambda: os.chmod("/dev/fd/%d" % fd, bits), "up": lambda: os.chmod("../" + os.path.basename(os.getcwd()) + "/f", bits),
    }.items(): done(what, f, "f", less)
    done("pipe", lambda: os.chmod("p", bits), "p", less)
    done("memory", lambda: os.fchmod(memory, bits), "/proc/self/fd/%d" % memory, less)
    done("directory", lambda: os.chmod("d", bits), "d", kept); done("its descriptor", lambda: os.fchmod(dfd, bits), "d", kept)
    for what, name in {"read-only": ro, "system": "/etc", "link": "letc", "root": "lroot", "up": "lup", "proc": "/proc/self",
            "denied": "denied", "in denied": "denied/inner", "nothing": "nothing", "long": "x" * 5000, "empty": ""}.items():
        refused(what, lambda: os.chmod(name, bits))
    refused("closed", lambda: os.fchmod(99, bits)); refused("no memory", lambda: raw(268 if os.uname().machine == "x86_64" else 53, -100, 8, bits))
    if os.uname().machine == "x86_64": refused("no number", lambda: raw(91, -1, bits))
os.mkdir("shut"); open("shut/f", "w").close(); os.chmod("shut", 0o600); refused("below a directory that is shut", lambda: os.chmod("shut/f", 0o4755)); os.chmod("shut", 0o700)
os.chdir("d"); done("dot", lambda: os.chmod(".", 0o2711), ".", 0o2711); os.rename("../d", "../e"); open("g", "w").close()
done("in what was moved", lambda: os.chmod("g", 0o4711), "g", 0o711); os.rename("../e", "../d"); os.chdir("..")
t = threading.Thread(target=lambda: done("in a thread", lambda: os.chmod("d", 0o2751), "d", 0o2751)); t.start(); t.join()
# A caller that is killed while it waits.
for i in range(20):
    pid = os.fork()
    if pid == 0:
        while True: os.chmod("d", 0o2755)
    time.sleep(0.002); os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
done("afterwards", lambda: os.chmod("d", 0o2775), "d", 0o2775)
`, ro).exits(0).hides("DONE", "NOT").prints("done in a thread", "done afterwards")
		same(t, "the read-only grant", before, modes(t, ro))
		noSetID(t, ws)
		// The short way, whose answers another process gives.
		b.create("box", p)
		b.run("exec", "--cwd", ws, "box", "/bin/sh", "-c", "chmod 4751 f; chmod 6751 p; chmod 2751 d").exits(0)
		for name, want := range map[string]os.FileMode{"f": 0o751, "p": 0o751 | os.ModeNamedPipe, "d": 0o751 | os.ModeDir | os.ModeSetgid} {
			if info, err := os.Stat(filepath.Join(ws, name)); err != nil || info.Mode() != want {
				t.Errorf("%s has mode %v, not %v: %v", name, info.Mode(), want, err)
			}
		}
		b.run("delete", "box").exits(0)
	})
}

// noSetID: no file has one of the two bits.
func noSetID(t *testing.T, dir string) {
	t.Helper()
	_ = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && info.Mode()&(os.ModeSetgid|os.ModeSetuid) != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
}

// modeRace changes names, links, descriptors and the memory of names while it sets modes with the two bits.
const modeRace = `
import ctypes, os, sys, threading, time
ws, ro = sys.argv[1], sys.argv[2]
os.chdir(ws); libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("swap"); os.mkdir("x"); open("y", "w").close(); open("own", "w").close(); os.symlink(ro + "/victim", "l")
stop = time.time() + 1.5
def often(f):
    def loop():
        while time.time() < stop:
            try: f()
            except OSError: pass
    threading.Thread(target=loop).start()
def names():
    for a in ("x", "y", "l"):
        os.rename(a, "swap/n"); os.rename("swap/n", a)
often(names)
memory = ctypes.create_string_buffer(b"own\0" + b"\0" * 200)
def text(s): ctypes.memmove(memory, s + b"\0", len(s) + 1)
often(lambda: [text(s) for s in (b"own", (ro + "/victim").encode(), b"x", b"l")])
file, victim = os.open("own", os.O_RDONLY), os.open(ro + "/victim", os.O_RDONLY)
number = os.dup(file)
often(lambda: (os.dup2(file, number), os.dup2(victim, number)))
done = 0
while time.time() < stop:
    for bits in (0o4755, 0o2755, 0o6711):
        for f in (lambda: os.chmod("swap/n", bits), lambda: os.fchmod(number, bits), lambda: libc.chmod(memory, bits)):
            try: f(); done += 1
            except OSError: pass
print("tries", done > 100)
`

// TestAskedModesRace: nobody wins a race for a mode, of a file of the program's or of one that it may only read. Outside the same
// program sets all of them.
func TestAskedModesRace(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		stage := func(name string) (ws, ro string) {
			ws, ro = b.mkdir(name), b.mkdir(name+"-ro")
			b.file(name+"-ro/victim", "")
			if err := os.Chmod(filepath.Join(ro, "victim"), 0o640); err != nil {
				t.Fatal(err)
			}
			return ws, ro
		}
		ws, ro := stage("inside")
		before := modes(t, ro)
		p := b.policy(object{"workdir": ws, "files": object{"write": []string{ws}, "read": []string{ro}}})
		b.python(p, modeRace, ws, ro).exits(0).prints("tries True")
		same(t, "the file that may only be read", before, modes(t, ro))
		noSetID(t, ws)
		if info, err := os.Stat(filepath.Join(ws, "own")); err != nil || info.Mode()&0o700 != 0o700 {
			t.Errorf("the program could not set its own file's mode: %v %v", info.Mode(), err)
		}

		ws, ro = stage("outside")
		if out, err := exec.Command("python3", "-c", modeRace, ws, ro).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, name := range []string{filepath.Join(ws, "own"), filepath.Join(ro, "victim")} {
			if info, err := os.Stat(name); err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) == 0 {
				t.Errorf("outside %s was not changed: %v %v", name, info.Mode(), err)
			}
		}
	})
}

// TestSetGroupOfAnother: a root launcher does no more for its program than the kernel would.
func TestSetGroupOfAnother(t *testing.T) {
	needRoot(t)
	needUserns(t)
	b := newBox(t)
	ws := b.sharedTree("ws")
	for name, owner := range map[string][2]int{"own": {4321, 4321}, "root": {0, 0}, "third": {61234, 4321}, "group": {4321, 61234}} {
		dir := b.mkdir("ws", name)
		if err := os.Chown(dir, owner[0], owner[1]); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := b.policy(object{"workdir": ws, "user": 4321, "files": object{"write": []string{ws}}})
	b.sh(p, "for d in own root third group; do chmod 2750 $d; done")
	for name, want := range map[string]uint32{"own": 0o2750, "root": 0o755, "third": 0o755, "group": 0o750} {
		var st syscall.Stat_t
		if err := syscall.Stat(b.path("ws", name), &st); err != nil {
			t.Fatal(err)
		}
		same(t, "the mode of "+name, want, st.Mode&0o7777)
	}
}
