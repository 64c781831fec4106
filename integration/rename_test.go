package integration

import (
	"os"
	"strings"
	"testing"
)

// TestRenameIntoPinned: in a tree with a denied file everything else can be renamed and linked as outside, and the directories
// above the denied file stay where they are, under every name and by every call.
func TestRenameIntoPinned(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		secret := b.file("ws/a/b/secret", "KEY")
		b.mkdir("ws", "other")
		p := b.policy(object{
			"workdir": ws, "files": object{"write": []string{ws}, "deny": []string{secret}},
			"bind": []object{{"source": b.path("ws", "a"), "target": "/again", "writable": true}},
		})
		b.python(p, `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def must(what, f):
    try: f(); print("done", what)
    except OSError as e: print("FAILED", what, e)
def mustnot(what, f):
    try: f(); print("FAILED", what)
    except OSError as e: print("refused", what)
def touch(p): open(p, "w").close()
def exchange(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2) < 0: raise OSError(ctypes.get_errno(), "exchange")
touch("f"); must("rename into a", lambda: os.rename("f", "a/f"))
must("rename into b", lambda: os.rename("a/f", "a/b/f"))
must("link into b", lambda: os.link("a/b/f", "a/g"))
os.mkdir("d"); must("rename a directory into b", lambda: os.rename("d", "a/b/d"))
must("rename a directory out of b", lambda: os.rename("a/b/d", "other/d"))
must("rename out of b", lambda: os.rename("a/b/f", "other/f"))
os.mkdir("empty")
for d in ("a", "a/b", "/again/b"):
    mustnot("rename " + d, lambda: os.rename(d, "moved"))
    mustnot("exchange " + d, lambda: exchange(d, "empty"))
    mustnot("exchange for " + d, lambda: exchange("empty", d))
    mustnot("remove " + d, lambda: os.rmdir(d))
mustnot("rename over it", lambda: os.rename("empty", "a/b"))
for s in ("a/b/secret", "/again/b/secret"):
    mustnot("read " + s, lambda: open(s).read())
    mustnot("link " + s, lambda: os.link(s, "h"))
    mustnot("rename " + s, lambda: os.rename(s, "h"))
    mustnot("remove " + s, lambda: os.remove(s))
print(len(os.listdir("/proc/1/fd") if os.access("/proc/1/fd", os.R_OK) else []))
`).exits(0).hides("FAILED", "KEY")
		same(t, "the secret", "KEY", b.read(secret))
		// The next sandbox of the same policy.
		b.sh(p, "cat a/b/secret /again/b/secret").hides("KEY")
		// Nothing of the place of the mount points can be reached.
		a := b.sh(p, "ls -a / | grep -c pins; ls -d /proc/0 2>&1; ls -ld /proc/1/cwd >/dev/null; echo end").exits(0).prints("end")
		same(t, "the place shows", false, strings.Contains(a.stdout, "/proc/0\n") && !strings.Contains(a.stdout, "No such"))
		if _, err := os.Stat(b.path("ws", "other", "d")); err != nil {
			t.Error(err)
		}
	})
}
