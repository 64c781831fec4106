package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTricksAboveADeny: whatever a program puts above a denied path keeps no later exec from starting, nor the next sandbox of the
// same policy, and gets nobody at the denied file. The control is the first exec.
func TestTricksAboveADeny(t *testing.T) {
	flavours(t, func(b *box) {
		ws := b.mkdir("ws")
		denied := filepath.Join(ws, "a", "b", "secret")
		policy := b.files("/", object{"write": []string{ws}, "deny": []string{denied}})
		for _, trick := range []string{
			"rm -rf a; ln -s a a", "rm -rf a; mkfifo a", "rm -rf a; echo >a", "chmod 0 a/b", "chmod 0 a", "rm -rf a/b; ln -s /etc a/b",
			"rm -rf a/b; ln -s . a/b", "rm -rf a; ln -s ../../../../.. a",
		} {
			for _, there := range []bool{false, true} {
				removeAll(ws) // follows no link that the trick has left
				b.mkdir("ws", "a", "b")
				if there {
					b.file("ws/a/b/secret", "THE-SECRET")
				}
				b.create("one", policy)
				for _, id := range []string{"one", "two"} {
					b.run("exec", "one", "--", "sh", "-c", "cd $1 && { "+trick+"; } 2>/dev/null; exit 0", "sh", ws).exits(0)
					if id == "two" {
						b.create(id, policy)
					}
					b.exec(id, "--", "true").exits(0)
					b.exec(id, "--", "sh", "-c", `cd "$1"; chmod 755 a a/b; cat a/b/secret; exit 0`, "sh", ws).exits(0).hides("THE-SECRET")
				}
				b.run("delete", "one").exits(0)
				b.run("delete", "two").exits(0)
			}
		}
	})
}

// TestMovesStayInTheGrant: a program puts a link in the place of a directory above a grant that has a denied path in it. What has
// the denied name where the link leads is nobody's business.
func TestMovesStayInTheGrant(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws, victim := b.mkdir("ws"), b.file("victim/sub/secret", "the host's")
		sub := b.mkdir("ws", "x", "sub")
		policy := b.policy(object{
			"workspace": object{"source": ws}, "files": object{"deny": []string{filepath.Join(sub, "secret")}},
			"bind": []object{{"source": sub, "target": "/s", "writable": true}},
		})
		b.create("box", policy)
		const swap = `cd "$1"; mv x y; ln -s "$2" x; exit 0`
		b.run("exec", "box", "--", "sh", "-c", swap, "sh", ws, b.path("victim")).exits(0)
		b.exec("box", "--", "true").exits(0)
		same(t, "the host's file", "the host's", b.read(victim))
		// What appears in the grant itself is still moved: the control.
		b.run("exec", "box", "--", "sh", "-c", "echo planted >/s/secret").exits(0).complains("moved to")
	})
}

// TestSetIDFilesStayTheirOwn: a shared mapping changes a file without the kernel taking its set-id bit away. The control is a file
// without the bit.
func TestSetIDFilesStayTheirOwn(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		ws := b.mkdir("ws")
		modes := map[string]os.FileMode{
			"setuid": 0o755 | os.ModeSetuid, "setgid": 0o755 | os.ModeSetgid, "a/b/deep": 0o755 | os.ModeSetuid, "shut/hidden": 0o755 | os.ModeSetuid,
			"plain": 0o755,
		}
		for name, mode := range modes {
			b.mustDo(os.Chmod(b.file("ws/"+name, strings.Repeat("x", 64)), mode))
		}
		b.mustDo(os.Chmod(filepath.Join(ws, "shut"), 0))
		const program = `
import mmap, os, sys
os.chdir(sys.argv[1])
for d in ("shut", "a"):
    try: os.chmod(d, 0o700) if d == "shut" else os.rename("a", "moved")
    except OSError: pass
for name in ("setuid", "setgid", "a/b/deep", "moved/b/deep", "shut/hidden", "plain"):
    try:
        f = os.open(name, os.O_RDWR)
        m = mmap.mmap(f, 64)
        m[0:4] = b"EVIL"
        m.flush()
    except OSError: pass`
		b.python(b.files("/", object{"write": []string{ws}}), program, ws).exits(0)
		b.mustDo(os.Chmod(filepath.Join(ws, "shut"), 0o700))
		b.mustDo(filepath.WalkDir(ws, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			evil := strings.HasPrefix(b.read(p), "EVIL")
			if err == nil && evil != (filepath.Base(p) == "plain") {
				t.Errorf("%s: changed is %v, mode is %v", p, evil, info.Mode())
			}
			return err
		}))
	})
}

// TestNamedPipes: a named pipe in a read-only grant is no way to write. The control is the same pipe in a writable one.
func TestNamedPipes(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		dir := b.mkdir("dir", "deep")
		pipe := filepath.Join(dir, "pipe")
		b.mustDo(syscall.Mkfifo(pipe, 0o666), os.Chmod(pipe, 0o666))
		for how, want := range map[string]string{"read": "", "write": "written"} {
			reader := exec.Command("timeout", "3", "cat", pipe)
			var got strings.Builder
			reader.Stdout = &got
			b.mustDo(reader.Start())
			time.Sleep(100 * time.Millisecond)
			a := b.sh(b.files("/", object{how: []string{b.path("dir")}}), `timeout 1 sh -c "printf written >$1"; exit 0`, pipe)
			_ = reader.Wait() // timeout's status
			same(t, "what came through the pipe with "+how, want, got.String())
			if how == "read" {
				a.complains("named pipe")
			}
		}
	})
}
