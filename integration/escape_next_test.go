package integration

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/escape_next.py
var nextProgram string

// TestNothingForTheNextExec: an exec leaves what it can, and the next one, in the same sandbox, finds nothing of it but files.
// The control is the first exec itself, which finds it all.
func TestNothingForTheNextExec(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		work := b.mkdir("work")
		policy := b.files(work, object{"write": []string{work}, "deny": []string{filepath.Join(work, "later")}})
		b.create("one", policy)
		b.create("two", policy)
		first := b.run("exec", "one", "--", "python3", "-c", nextProgram, "leave").exits(0)
		first.prints("FOUND process\n", "FOUND shared memory\n", "FOUND semaphores\n", "FOUND message queue\n", "FOUND socket\n", "FOUND lock\n",
			"FOUND denied\n", "FOUND mailbox\n")
		first.complains("warning: ")
		beat := b.read(filepath.Join(work, "beat"))
		time.Sleep(100 * time.Millisecond)
		same(t, "the daemon that was left has written", beat, b.read(filepath.Join(work, "beat")))
		same(t, "daemons left", 0, processes("escape-next-daemon"))
		for _, id := range []string{"one", "two"} {
			b.exec(id, "--", "python3", "-c", nextProgram, "look").exits(0).prints("DONE").hides("FOUND")
		}
		moved, _ := filepath.Glob(filepath.Join(work, "later.denied-one-*"))
		same(t, "files moved away from the denied path", 1, len(moved))
		// What it can leave are files, and these are of no special kind.
		b.mustDo(filepath.WalkDir(work, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.Type()&(os.ModeDevice|os.ModeSetuid|os.ModeSetgid|os.ModeSocket) != 0 && d.Name() != "whiteout" {
				t.Errorf("it left %s: %v", p, d.Type())
			}
			return err
		}))
	})
}

// TestExhaustion: a program that takes all that it can get meets its limits, and neither the next exec of its sandbox nor
// another sandbox suffers. The control has no such limit, and gets what it asks for.
func TestExhaustion(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		tmpfs := object{"path": "/tmp", "size": "2M", "inodes": 100}
		b.create("free", b.policy(object{}))
		b.create("held", b.policy(object{
			"files": object{"tmpfs": []object{tmpfs}}, "limits": object{"pids": 24, "memory": "48M", "nofile": 64, "wall": "20s", "output": "1M"},
		}))
		for _, greed := range []struct{ name, program string }{
			{"processes", `
for _ in range(64):
    if os.fork() == 0: time.sleep(60)`},
			{"processes that make processes", `
for _ in range(7):
    if os.fork() == 0: continue
time.sleep(3)`},
			{"threads", `
for _ in range(64): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
`},
			{"memory", `
a = []
for _ in range(12): a.append(b"x" * (10 << 20)); time.sleep(0.01)`},
			{"descriptors", `
a = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]`},
			{"files in memory", `
for i in range(300): open("/tmp/f%d" % i, "w").close()`},
			{"room in memory", `
f = open("/tmp/big", "wb"); [f.write(bytes(1 << 20)) for _ in range(8)]; f.flush()`},
		} {
			program := "import os, sys, threading, time\n" + greed.program + "\nprint('GOT IT ALL', flush=True); os._exit(0)"
			line := []string{"--", "python3", "-c", program}
			b.run(append([]string{"exec", "free"}, line...)...).exits(0).prints("GOT IT ALL")
			a := b.run(append([]string{"exec", "held"}, line...)...)
			if strings.Contains(a.stdout, "GOT IT ALL") && !strings.HasPrefix(greed.name, "processes that") {
				t.Errorf("it got %s: %v", greed.name, a)
			}
			for _, id := range []string{"held", "free"} {
				b.exec(id, "--", "sh", "-c", "echo fine | cat").exits(0).prints("fine")
			}
		}
		b.run("delete", "held").exits(0)
		b.run("delete", "free").exits(0)
	})
}
