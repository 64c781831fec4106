package integration

import (
	"os"
	"testing"
	"time"
)

// TestDenyOfALoop: a denied link that leads to itself can be read by nobody. It must not keep every program from starting.
func TestDenyOfALoop(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "a mask is mounted through the link, which the kernel cannot follow; the whole exec is given up")
		loop := b.link("ws/loop", "loop")
		b.sh(b.files(b.path("ws"), object{"write": []string{b.path("ws")}, "deny": []string{loop}}), "echo started").exits(0).prints("started")
	})
}

// TestDenyOfALinkThatAppears: a program makes a denied path, that did not exist, a link. The next program starts all
// the same, and what the link leads to is not covered.
func TestDenyOfALinkThatAppears(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "a mask for what has appeared is mounted through links: on what they lead to, or not at all")
		t := b.t
		for _, target := range []string{"/no/such/place", "../shown/f", "/etc/passwd", ".env"} {
			b := newBox(t)
			ws := b.mkdir("ws")
			b.file("shown/f", "shown")
			b.create("box", b.files(ws, object{"write": []string{ws}, "read": []string{b.path("shown")}, "deny": []string{ws + "/.env"}}))
			first := b.command(call{}, "exec", "box", "--", "sh", "-c", `ln -s "$0" .env; sleep 30`, target)
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the link is there", func() bool { _, err := os.Readlink(ws + "/.env"); return err == nil })
			a := b.exec("box", "--", "sh", "-c", `cat "$0"; test -s /etc/passwd && echo passwd`, b.path("shown/f"))
			if a.status != 0 {
				t.Logf("link to %s", target)
			}
			a.exits(0).prints("shown", "passwd")
			_ = b.run("kill", "box", "KILL")
			_ = first.Wait()
		}
	})
}

// TestDenyAfterAMove: a program may not move a denied file out from under its rule, for this run or a later one. What
// can be moved is every directory between the writable grant and the denied file.
func TestDenyAfterAMove(t *testing.T) {
	moves := map[string]string{
		"parent":             `mv sub/dir sub/elsewhere`,
		"grandparent":        `mv sub elsewhere`,
		"exchange":           `mkdir -p other/dir && mv sub tmp && mv other sub && mv tmp other`,
		"parent of a parent": `mkdir new && mv sub new/`,
		"hard link":          `ln sub/dir/key plain`,
		"directory itself":   `mv closed opened`,
	}
	flavours(t, func(b *box) {
		because(b.t, "a mask keeps the file from being moved, not the directories above it: the next sandbox finds it elsewhere")
		t := b.t
		for what, move := range moves {
			t.Run(what, func(t *testing.T) {
				const look = "find . -type f -exec cat {} +; exit 0"
				prepare := func() (*box, string) {
					b := newBox(t)
					ws := b.mkdir("ws")
					b.file("ws/sub/dir/key", "THE-KEY")
					b.file("ws/closed/key", "THE-KEY")
					return b, b.files(ws, object{"write": []string{ws}, "deny": []string{ws + "/sub/dir/key", ws + "/closed"}})
				}
				b, p := prepare()
				b.sh(p, move+"; exit 0")
				b.sh(p, look).exits(0).hides("THE-KEY")

				b, p = prepare()
				b.create("box", p)
				b.run("exec", "box", "--", "sh", "-c", move+"; exit 0")
				b.exec("box", "--", "sh", "-c", look).exits(0).hides("THE-KEY")
			})
		}
	})
}

// TestDenyBesideTheHost: what the host does to a denied file while the sandbox is there does not show it.
func TestDenyBesideTheHost(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "the kernel drops a mount whose file is replaced or removed outside; only denies that were absent at create are looked at again")
		t := b.t
		ws := b.mkdir("ws")
		key := b.file("ws/key", "THE-KEY")
		b.create("box", b.files(ws, object{"write": []string{ws}, "deny": []string{key}}))
		look := func(when string) {
			t.Helper()
			a := b.exec("box", "--", "sh", "-c", "cat key; echo looked").exits(0).prints("looked").hides("THE-KEY")
			if t.Failed() {
				t.Logf("%s: %v", when, a)
			}
		}
		look("before")
		// An editor saves by a rename over the file: the mount on the old one is gone with it.
		if err := os.Rename(b.file("ws/key.new", "THE-KEY, saved"), key); err != nil {
			t.Fatal(err)
		}
		look("after a save by rename")
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		b.file("ws/key", "THE-KEY, made again")
		look("after it was removed and made again")
	})
}

// TestHiddenBelowAShutDirectory: a directory above a grant that the launcher cannot search in the sandbox keeps no mask from being made.
func TestHiddenBelowAShutDirectory(t *testing.T) {
	flavours(t, func(b *box) {
		shut, grant := b.mkdir("shut"), b.mkdir("shut/grant")
		b.file("shut/grant/key", "THE-KEY")
		b.file("shut/grant/hidden.py", "THE-MODULE")
		b.file("shut/grant/free", "free")
		if os.Geteuid() == 0 {
			for _, p := range []string{shut, grant} {
				b.mustDo(os.Chown(p, 65533, 65533))
			}
		}
		b.mustDo(os.Chmod(shut, 0o700))
		policy := b.files(grant, object{"read": []string{grant}, "deny": []string{grant + "/key"}, "hide_modules": []string{"hidden"}})
		b.sh(policy, "cat free; cat key hidden.py; cat $(echo *); true").exits(0).prints("free").hides("THE-KEY", "THE-MODULE").complains("key: Permission denied")
	})
}

// TestDenyInAShutDirectory: a denied file lies in a directory that the launcher cannot search in the sandbox, but that its owner or others
// can. It is hidden with the directory, and stays so when the directory is opened meanwhile.
func TestDenyInAShutDirectory(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "nothing can be mounted in such a directory: the sandbox does not start, or the file is bare when somebody opens the directory")
		t := b.t
		for _, mode := range []os.FileMode{0o700, 0o601, 0o001, 0} {
			for _, grant := range []string{"read", "write"} {
				b := newBox(t)
				ws := b.mkdir("ws")
				b.file("ws/d/key", "THE-KEY")
				b.file("ws/free", "free")
				if os.Geteuid() == 0 {
					if err := os.Chown(ws+"/d", 65533, 65533); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Chmod(ws+"/d", mode); err != nil {
					t.Fatal(err)
				}
				b.create("box", b.files(ws, object{grant: []string{ws}, "deny": []string{ws + "/d/key"}}))
				look := []string{"box", "--", "sh", "-c", "cat free; chmod 777 d; cat d/key; exit 0"}
				b.exec(look...).exits(0).prints("free").hides("THE-KEY")
				if err := os.Chmod(ws+"/d", 0o755); err != nil {
					t.Fatal(err)
				}
				b.exec(look...).exits(0).prints("free").hides("THE-KEY")
				b.run("delete", "box").exits(0)
			}
		}
	})
}
