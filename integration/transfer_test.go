package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// transferBox has a sandbox "box" with the workspace $dir/w at /w, and a directory $dir/secret that nothing shows.
func transferBox(b *box, more object) {
	b.mkdir("w")
	b.mkdir("secret")
	b.file("secret/key", "THE-KEY")
	keys := object{"workspace": object{"source": b.path("w"), "path": "/w"}, "files": object{"tmpfs": []object{{"path": "/tmp"}}}}
	maps.Copy(keys, more)
	b.create("box", b.policy(keys))
}

// carried is the result of an exec with options.
func (b *box) carried(args ...string) result.Result {
	b.t.Helper()
	a := b.run(append([]string{"exec", "--json"}, args...)...)
	var r result.Result
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		b.t.Fatalf("%v: %v", a, err)
	}
	return r
}

func TestPutAndGet(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		transferBox(b, nil)
		b.file("a.txt", "hello")
		b.run("put", "box", b.path("a.txt"), "sub/deep/a.txt").exits(0)
		b.run("exec", "box", "--", "sh", "-c", "cat sub/deep/a.txt; test -O sub/deep/a.txt && test -O sub && echo mine").exits(0).prints("hello", "mine")
		b.ownedByCaller(b.path("w"))
		b.run("get", "box", "sub/deep/a.txt", "-").exits(0).prints("hello")
		b.call(call{stdin: strings.NewReader("typed")}, "put", "box", "-", "in").exits(0)
		b.run("get", "box", "in", b.path("out")).exits(0)
		same(t, "got", "typed", b.read(b.path("out")))

		// A directory, and back.
		b.file("tree/x/y", "one")
		b.file("tree/run.sh", "#!/bin/sh\necho ran\n")
		if err := os.Chmod(b.path("tree/run.sh"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.run("put", "box", b.path("tree"), "tree").exits(0)
		b.run("exec", "box", "./tree/run.sh").exits(0).prints("ran")
		b.run("get", "box", "tree", b.path("back")).exits(0)
		same(t, "got", "one", b.read(b.path("back/x/y")))
		b.run("get", "box", "tree", "-").exits(125).complains("a directory")

		// What was there is replaced, and stays the same file.
		b.run("exec", "box", "--", "sh", "-c", "echo a long line >f; ln f g").exits(0)
		b.run("put", "box", b.path("a.txt"), "f").exits(0)
		b.run("exec", "box", "cat", "g").prints("hello").hides("long")

		// Paths that are refused, by name.
		for _, bad := range []string{"", "/etc/x", "../x", "sub/../../x", "\xff"} {
			b.run("put", "box", b.path("a.txt"), bad).exits(125).complains("path_invalid: put ", "the path ")
			b.run("get", "box", bad, "-").exits(125).complains("path_invalid: get ", "the path ")
		}
		b.run("put", "box", b.path("none"), "x").exits(125).complains("file_unusable", "none")
		b.run("get", "box", "none", "-").exits(125).complains("file_unusable", "none")

		// At most 1 MiB unless said otherwise; a sparse file costs nothing.
		b.file("big", strings.Repeat("x", 1<<20+1))
		b.run("put", "box", b.path("big"), "big").exits(125).complains("file_too_large")
		b.run("put", "--max", "2M", "box", b.path("big"), "big").exits(0)
		b.run("get", "box", "big", b.path("big2")).exits(125).complains("file_too_large")
		if _, err := os.Lstat(b.path("big2")); err == nil {
			t.Error("a part of it was written")
		}
		b.run("get", "--max", "2M", "box", "big", b.path("big2")).exits(0)
		b.run("exec", "box", "--", "sh", "-c", "truncate -s 1T sparse; mkdir d; cp --sparse=always sparse d/s 2>/dev/null || truncate -s 1T d/s").exits(0)
		b.run("get", "box", "sparse", b.path("s")).exits(125).complains("file_too_large")
		b.run("get", "box", "d", b.path("s2")).exits(125).complains("file_too_large")
		b.run("delete", "box").exits(0)
		b.run("put", "box", b.path("a.txt"), "x").exits(125).complains("not_found")
	})
}

// TestTransferIsContained: what a program has made leads no put and no get out of its view, nor makes the launcher wait, nor lends it the
// launcher's rights.
func TestTransferIsContained(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		transferBox(b, nil)
		b.file("a.txt", "hello")
		b.run("exec", "box", "--", "sh", "-c", `
			ln -s `+b.path("secret")+` dir; ln -s `+b.path("secret/key")+` file; ln -s ../../../../etc up; ln -s /etc/hostname abs
			ln -s /proc/self/mem mem; ln -s /proc/self/environ environ; ln -s /proc/1/root root; mkfifo pipe; ln -s . here
			mkdir tree tree/sub; echo ok >tree/f; ln -s f tree/near; ln -s ../f tree/sub/up
			ln -s . tree/dot; ln -s dot/../../secret/key tree/sly; ln -s dot/.. tree/slyer; mkfifo tree/pipe; ln -s /etc/hostname tree/abs`).exits(0)
		if err := os.Chmod(b.path("w/tree/f"), 0o755|os.ModeSetuid); err != nil { // no program inside can
			t.Fatal(err)
		}
		for _, bad := range []string{"dir/key", "file", "up/hostname", "abs", "mem", "environ", "root/etc/hostname"} {
			b.run("get", "box", bad, "-").exits(125).hides("THE-KEY").complains("path_invalid", "leaves the working directory")
			b.run("put", "box", b.path("a.txt"), bad).exits(125).complains("path_invalid", "leaves the working directory")
		}
		same(t, "the secret", "THE-KEY", b.read(b.path("secret/key")))
		b.run("get", "box", "pipe", "-").exits(125).complains("file_unusable")
		b.run("put", "box", b.path("a.txt"), "pipe").exits(125).complains("put_failed")
		b.run("put", "box", b.path("a.txt"), "tree").exits(125).complains("put_failed")
		b.run("put", "box", b.path("a.txt"), "here/below").exits(0) // a link that stays is followed
		b.run("get", "box", "here/below", "-").exits(0).prints("hello")
		// The working directory may be anywhere in the view, but /proc answers nobody.
		b.run("get", "--cwd", "/proc", "box", "version", "-").exits(125).complains("file_unusable", "/proc")
		b.run("get", "--cwd", "/", "box", "proc/self/environ", "-").exits(125)
		b.run("put", "--cwd", "/proc/self", "box", b.path("a.txt"), "mem").exits(125)
		b.run("put", "--cwd", "/usr", "box", b.path("a.txt"), "x").exits(125).complains("put_failed")

		a := b.run("get", "box", "tree", b.path("copy")).exits(0)
		a.complains(`"tree/f": its set-user-id`, `"tree/sly": a link`, `"tree/slyer": a link`, `"tree/pipe": a named pipe`, `"tree/abs": a link`)
		a.hides("tree/near", "sub/up")
		info, err := os.Lstat(b.path("copy/f"))
		if err != nil || info.Mode()&os.ModeSetuid != 0 {
			t.Errorf("the copy is %v, %v", info, err)
		}
		same(t, "through a link", "ok\n", b.read(b.path("copy/sub/up")))
		for _, gone := range []string{"sly", "slyer", "pipe", "abs"} {
			if _, err := os.Lstat(b.path("copy", gone)); err == nil {
				t.Errorf("%s was taken along", gone)
			}
		}

		// What the program may not read is not read for it, nor is what the caller's link of the program's leads to.
		b.file("w/locked", "LOCKED")
		if err := os.Chmod(b.path("w/locked"), 0); err != nil {
			t.Fatal(err)
		}
		b.run("get", "box", "locked", "-").exits(125).hides("LOCKED").complains("permission denied")
		b.run("put", "box", b.path("w/file"), "stolen").exits(125).complains("a link on the way to")
		b.run("get", "box", "tree/f", b.path("w/dir/new")).exits(125).complains("a link on the way to")
		b.run("get", "box", "tree/f", b.path("w/file")).exits(0) // replaced, not followed
		same(t, "the secret", "THE-KEY", b.read(b.path("secret/key")))
	})
}

// swapper runs in a sandbox and exchanges a directory and a link, and a file and a link, as fast as it can.
const swapper = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
outside = sys.argv[1]
os.makedirs("d"); open("d/key", "w").write("harmless"); os.symlink(outside, "l")
open("f", "w").write("harmless"); os.symlink(outside + "/key", "k")
os.makedirs("t/d"); open("t/d/key", "w").write("harmless"); os.symlink(outside, "t/l")
open("ready", "w").close()
while True:
    for a, b in ((b"d", b"l"), (b"f", b"k"), (b"t/d", b"t/l")):
        libc.renameat2(-100, a, -100, b, 2)
`

// TestTransferRaces: a program that swaps links and directories all the time leads no put, get or collect out. The control does the same
// as a harness would that knows no better, on the same directory, and is led out.
func TestTransferRaces(t *testing.T) {
	needProgram(t, "python3")
	flavours(t, func(b *box) {
		t := b.t
		transferBox(b, nil)
		outside := b.path("secret")
		b.file("a.txt", "PUT")
		b.file("w/swap.py", swapper)
		name := strings.TrimSpace(b.run("exec", "--detach", "box", "--", "python3", "swap.py", outside).exits(0).stdout)
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(b.path("w/ready")); err == nil {
				break
			}
		}

		read, wrote := 0, 0
		control := time.Now().Add(20 * time.Second)
		for (read == 0 || wrote == 0) && time.Now().Before(control) {
			if data, _ := os.ReadFile(b.path("w/d/key")); string(data) == "THE-KEY" {
				read++
			}
			if os.WriteFile(b.path("w/d/naive"), []byte("x"), 0o600) == nil {
				if _, err := os.Stat(b.path("secret/naive")); err == nil {
					wrote++
				}
			}
		}
		if read == 0 || wrote == 0 {
			t.Errorf("the control was not led out: it read %d and wrote %d files outside", read, wrote)
		}
		_ = os.Remove(b.path("secret/naive"))

		var jobs sync.WaitGroup
		for i := range 2 {
			jobs.Go(func() {
				for n := range 40 {
					for _, args := range [][]string{
						{"get", "box", "d/key", "-"},
						{"get", "box", "f", "-"},
						{"get", "box", "t", b.path(fmt.Sprintf("copy%d-%d", i, n))},
						{"put", "box", b.path("a.txt"), "d/put"},
						{"put", "box", b.path("a.txt"), "f"},
						{"exec", "--json", "--put", b.path("a.txt") + ":d/put2", "--collect", "t", "--collect", "d/*", "--collect", "f", "box", "true"},
					} {
						b.run(args...).hides("THE-KEY")
					}
				}
			})
		}
		jobs.Wait()
		b.run("kill", "--exec", name, "box", "KILL").exits(0)
		out, _ := exec.Command("grep", "-r", "THE-KEY", b.dir, "--include=key", "-l").Output()
		same(t, "files with the secret", b.path("secret/key"), strings.TrimSpace(string(out)))
		entries, _ := os.ReadDir(outside)
		if len(entries) != 1 {
			t.Errorf("something was put outside: %v", entries)
		}
		same(t, "the secret", "THE-KEY", b.read(filepath.Join(outside, "key")))
	})
}

// TestExecCarries: files in, fresh directories, an answer and files out, of one exec.
func TestExecCarries(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		transferBox(b, nil)
		b.file("in.sh", "#!/bin/sh\ncat data; echo out >made; echo '{\"x\": 1}' >&3; echo $SANDBOXRUN_RESULT; touch /tmp/here ~/there; ls fresh\n")
		if err := os.Chmod(b.path("in.sh"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.file("data", "DATA")
		b.file("w/fresh/old", "")
		r := b.carried("--put", b.path("in.sh")+":run/in.sh", "--put", b.path("data")+":data", "--fresh", "/tmp", "--fresh", "fresh",
			"--collect", "ma*", "--collect", "none", "--answer", "--env", "HOME=/tmp", "box", "run/in.sh")
		same(t, "stdout", "DATA3\n", r.Stdout)
		same(t, "the answer", "{\"x\": 1}\n", r.Answer.Text)
		if len(r.Collected) != 2 || r.Collected[0].Text != "out\n" || r.Collected[1].Error.Code != "file_unusable" {
			t.Errorf("collected: %+v", r.Collected)
		}
		b.run("exec", "box", "ls", "/tmp", "fresh").exits(0).prints("old").hides("here")

		// What was written in a fresh directory is collected from there; it has the program's ids.
		r = b.carried("--fresh", "/tmp", "--cwd", "/tmp", "--collect", "d", "box", "--", "sh", "-c", "mkdir d; echo a >d/a; test -O . && echo mine; chmod 0 d/a; echo b >d/b")
		same(t, "stdout", "mine\n", r.Stdout)
		if len(r.Collected) != 1 || r.Collected[0].Path != "d/b" || len(r.Dropped) != 1 {
			t.Errorf("collected: %+v %+v", r.Collected, r.Dropped)
		}
		// To the host.
		b.run("exec", "--collect", "made:"+b.path("made"), "box", "true").exits(0)
		same(t, "made", "out\n", b.read(b.path("made")))
		b.run("exec", "--collect", "none:"+b.path("none"), "box", "true").exits(125).complains("file_unusable")
		b.run("exec", "--collect", "made", "box", "true").exits(125).complains("no result")

		// Refused before anything runs.
		for flag, bad := range map[string][]string{
			"--fresh": {"", "/", "/proc", "/dev/shm", "/none", "run/in.sh"}, "--collect": {"/etc/hostname", "../x", ""},
		} {
			for _, value := range bad {
				b.run("exec", "--json", flag, value, "box", "--", "touch", "ran").exits(125).prints("not_started")
			}
		}
		b.run("exec", "--put", b.path("data")+":../x", "box", "--", "touch", "ran").exits(125).complains("path_invalid")
		b.run("exec", "--put", b.path("data"), "box", "--", "touch", "ran").exits(125).complains("usage")
		if _, err := os.Lstat(b.path("w/ran")); err == nil {
			t.Error("it ran")
		}
		// Nothing but 0 to 2 where no answer is asked for; and the program of an answer has no other of ours.
		b.run("exec", "box", "--", "sh", "-c", "ls /proc/self/fd | wc -l").prints("4")
		b.run("exec", "--answer", "box", "--", "sh", "-c", "ls /proc/self/fd | wc -l").prints("5")

		r = b.carried("--detach", "--collect", "made", "box", "true")
		b.run("wait", "--json", "box", r.Exec).exits(0).prints(`"collected":[{"path":"made"`)
	})
}

func TestOutputLimitKills(t *testing.T) {
	flavours(t, func(b *box) {
		transferBox(b, object{"limits": object{"output": "64K"}})
		script := "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; echo end"
		r := b.carried("box", "--", "sh", "-c", script)
		b.expect(r, "exited", "null", 0)
		r = b.carried("--on-output-limit", "kill", "box", "--", "sh", "-c", script+"; sleep 60")
		b.expect(r, "output_exceeded", "OUTPUT_EXCEEDED", 137)
		if !r.StdoutTruncated {
			b.t.Error("nothing is missing")
		}
		b.run("exec", "--on-output-limit", "none", "box", "true").exits(125).complains("usage")
	})
}

// TestExport: what comes out is safe to use, whatever the program has made, and a huge sparse file costs what is in it.
func TestExport(t *testing.T) {
	flavours(t, func(b *box) {
		transferBox(b, nil)
		b.run("exec", "box", "--", "python3", "-c", `
import os, socket
os.mkdir("r"); os.chdir("r"); open("good", "w").write("good"); os.mkdir("sub"); os.symlink("good", "in"); os.symlink("/etc", "out"); os.link("good", "hard")
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("sock"); os.mkdir("locked"); open("locked/f", "w"); os.chmod("locked", 0)
with open("sparse", "wb") as f:
    f.write(b"begin"); f.seek(1 << 30); f.write(b"middle"); f.truncate(1 << 40)
open("empty", "w").truncate(1 << 20); open("new\nline", "w").write("n"); open("-rf", "w").write("d"); os.symlink("`+b.path("secret")+`", "../away")`).exits(0)
		a := b.run("export", "box", "/w/r", b.path("copy")).exits(0)
		a.complains(`r/out": a link`, `r/fifo": a named pipe`, `r/sock": a socket`, `r/locked": permission denied`).hides("hard", "in\"")
		same(b.t, "plain", "good", b.read(b.path("copy/in")))
		same(b.t, "odd", "d", b.read(b.path("copy/-rf")))
		var st unix.Stat_t
		b.mustDo(unix.Stat(b.path("copy/sparse"), &st))
		if st.Size != 1<<40 || st.Blocks > 1000 {
			b.t.Errorf("%d bytes in %d blocks", st.Size, st.Blocks)
		}
		f, err := os.Open(b.path("copy/sparse"))
		b.mustDo(err)
		defer f.Close()
		buf := make([]byte, 11)
		for at, want := range map[int64]string{0: "begin\x00\x00\x00\x00\x00\x00", 1 << 30: "middle\x00\x00\x00\x00\x00"} {
			if _, err := f.ReadAt(buf, at); err != nil || string(buf) != want {
				b.t.Errorf("at %d: %q, %v", at, buf, err)
			}
		}
		b.mustDo(unix.Stat(b.path("copy/hard"), &st))
		if st.Nlink != 1 {
			b.t.Errorf("a copy has %d names", st.Nlink)
		}

		b.run("export", "box", "r/sub", b.path("sub.tar")).exits(0)
		b.run("export", "--cwd", "r", "box", "good", b.path("good.tar")).exits(0)
		b.run("export", "box", "r", b.path("all.tar")).exits(125).complains("file_too_large")
		if left, err := filepath.Glob(b.path(".sandboxrun-*")); err != nil || len(left) > 0 {
			b.t.Errorf("left %q, %v", left, err)
		}
		out, err := exec.Command("tar", "-xOf", b.path("good.tar")).Output()
		if err != nil || string(out) != "good" {
			b.t.Errorf("%q, %v", out, err)
		}
		// Neither what is read nor where it is written is led away by a link of the program's.
		b.run("export", "box", "away/key", b.path("x")).exits(125).hides("THE-KEY")
		b.run("export", "box", "/w/away/key", b.path("x")).exits(125).hides("THE-KEY")
		b.run("export", "box", "r/good", b.path("w/away/x")).exits(125)
		if _, err := os.Lstat(b.path("secret/x")); err == nil {
			b.t.Error("a link was followed")
		}
		b.run("exec", "box", "chmod", "700", "r/locked").exits(0)
		b.run("delete", "box").exits(0)
	})
}
