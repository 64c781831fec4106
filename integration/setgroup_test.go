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

// TestSetGroupFiles: a file gets no such bit, by whatever name and however fast names change; nor does a directory that is not the
// program's to change.
func TestSetGroupFiles(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws, ro := b.sharedTree("ws"), b.sharedTree("ro")
		denied := b.mkdir("ws", "denied", "inner")
		before := modes(t, ro)
		p := b.policy(object{"workdir": ws, "files": object{"write": []string{ws}, "read": []string{ro}, "deny": []string{filepath.Dir(denied)}}})
		b.python(p, `
import os, sys, threading, time, signal
ro = sys.argv[1]
def refused(what, f):
    try: f(); print("DONE", what)
    except OSError as e: print("refused", what, e.errno)
def done(what, f):
    try: f(); print("done", what)
    except OSError as e: print("NOT", what, e)
open("f", "w").close(); os.mkdir("d"); os.symlink("f", "lf"); os.symlink("/etc", "letc"); os.symlink("/", "lroot"); os.symlink("/../../../..", "lup")
fd = os.open("f", os.O_RDWR); dfd = os.open("d", os.O_RDONLY); here = os.open(".", os.O_RDONLY)
for bits in (0o2755, 0o2750, 0o2644, 0o6755, 0o4755):
    refused("file", lambda: os.chmod("f", bits)); refused("by descriptor", lambda: os.fchmod(fd, bits))
    refused("by link", lambda: os.chmod("lf", bits)); refused("by path", lambda: os.chmod(os.getcwd() + "/d/../f", bits))
    refused("below a descriptor", lambda: os.chmod("f", bits, dir_fd=here))
    refused("read-only", lambda: os.chmod(ro, bits)); refused("system", lambda: os.chmod("/etc", bits)); refused("link", lambda: os.chmod("letc", bits))
    refused("root", lambda: os.chmod("lroot", bits)); refused("root", lambda: os.chmod("lup", bits)); refused("proc", lambda: os.chmod("/proc/self", bits))
    refused("denied", lambda: os.chmod("denied", bits)); refused("in denied", lambda: os.chmod("denied/inner", bits))
    refused("nothing", lambda: os.chmod("nothing", bits)); refused("closed", lambda: os.fchmod(99, bits))
refused("too long", lambda: os.chmod("x" * 5000, 0o2755))
done("directory", lambda: os.chmod("d", 0o2755)); done("by descriptor", lambda: os.fchmod(dfd, 0o2750)); done("below a descriptor", lambda: os.chmod("d", 0o2755, dir_fd=here))
os.chdir("d"); done("dot", lambda: os.chmod(".", 0o2711)); done("up", lambda: os.chmod("../d", 0o2755)); os.chdir("..")
threading.Thread(target=lambda: done("in a thread", lambda: os.chmod("d", 0o2751))).start()
# Names that change while the launcher resolves them.
os.mkdir("swap"); os.mkdir("x"); open("y", "w").close(); stop = time.time() + 1
def swap():
    while time.time() < stop:
        for a in ("x", "y"):
            os.rename(a, "swap/n"); os.rename("swap/n", a)
threading.Thread(target=swap).start()
n = 0
while time.time() < stop:
    try: os.chmod("swap/n", 0o2755); n += 1
    except OSError: pass
# A caller that is killed while it waits.
for i in range(20):
    pid = os.fork()
    if pid == 0:
        while True: os.chmod("d", 0o2755)
    time.sleep(0.002); os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
done("afterwards", lambda: os.chmod("d", 0o2775))
`, ro).exits(0).hides("DONE", "NOT").prints("done in a thread", "done afterwards")
		same(t, "the read-only grant", before, modes(t, ro))
		_ = filepath.Walk(ws, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() && info.Mode()&(os.ModeSetgid|os.ModeSetuid) != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return nil
		})
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
