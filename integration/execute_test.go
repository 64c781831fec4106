package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/procfs"
)

// executions are ways to execute what processes.execute does not name. Each prints BROKE where it succeeds, or meets one of the errors.
var executions = []struct{ name, program, meets string }{
	{"another program", `run("/usr/bin/echo")`, "EACCES"},
	{"another program by PATH", `subprocess.run(["echo", "BROKE"])`, "EACCES"},
	{"through a descriptor", `os.execve(os.open("/usr/bin/echo", os.O_RDONLY), echo, {})`, "EACCES"},
	{"through /proc", `fd = os.open("/usr/bin/echo", os.O_RDONLY); os.execv("/proc/self/fd/%d" % fd, echo)`, "EACCES"},
	{"by a link named as one that may", `os.symlink("/usr/bin/echo", "python3"); run("./python3")`, "EACCES"},
	{"in a thread", `t = threading.Thread(target=lambda: attempt(lambda: run("/usr/bin/echo"))); t.start(); t.join()`, "EACCES"},
	{"a file of its own", `shutil.copy("/usr/bin/echo", "own"); run("./own")`, "EACCES"},
	{"a file of its own in /tmp", `shutil.copy("/usr/bin/echo", "/tmp/own"); run("/tmp/own")`, "EACCES"},
	{"a file of its own in a grant", `shutil.copy("/usr/bin/echo", "$WORK/own-echo"); run("$WORK/own-echo")`, "EACCES"},
	{"a file of its own in another directory in memory", `shutil.copy("/usr/bin/echo", "/y/own"); run("/y/own")`, "EACCES"},
	{"a file of its own by another name of a grant", `
shutil.copy("/usr/bin/echo", "$WORK/sub/other")
out = subprocess.run([loader, "/again/other", "BROKE"], capture_output=True, text=True); print(out.stdout, "failed to map" in out.stderr and "MET EPERM")`, "EPERM"},
	{"a script of its own", `open("s", "w").write("#!" + sys.executable + "\nprint('BROKE')"); os.chmod("s", 0o755); run("./s")`, "EACCES"},
	{"a file without a name", `
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o755); os.write(fd, open("/usr/bin/echo", "rb").read())
ro = os.open("/proc/self/fd/%d" % fd, os.O_RDONLY); os.close(fd); os.execve(ro, echo, {})`, "EACCES"},
	{"memory", `fd = os.memfd_create("x", 0); os.write(fd, open("/usr/bin/echo", "rb").read()); os.execve(fd, echo, {})`, "ENOSYS"},
	{"memory that says it is executable", `fd = os.memfd_create("x", 0x10); os.write(fd, open("/usr/bin/echo", "rb").read()); os.execve(fd, echo, {})`, "ENOSYS"},
	{"memory that says it is not", `
fd = os.memfd_create("x", 0x8); os.write(fd, open("/usr/bin/echo", "rb").read())
attempt(lambda: os.fchmod(fd, 0o755)); os.execve(fd, echo, {})`, "EPERM EACCES EINVAL"},
	{"a file of its own by the loader", `
shutil.copy("/usr/bin/echo", "own")
out = subprocess.run([loader, "./own", "BROKE"], capture_output=True, text=True); print(out.stdout, "failed to map" in out.stderr and "MET EPERM")`, "EPERM"},
	{"code of its own by mmap", `
shutil.copy("/usr/bin/echo", "own")
mmap.mmap(os.open("own", os.O_RDONLY), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC); print("BROKE")`, "EPERM"},
}

const executeProgram = `
import errno, mmap, os, shutil, subprocess, sys, threading
echo = ["echo", "BROKE"]
loader = [l.split()[-1] for l in open("/proc/self/maps") if "/ld-" in l or "/ld." in l][0]
def run(path): subprocess.run([path, "BROKE"])
def attempt(f):
    try: f()
    except OSError as e: print("MET", errno.errorcode[e.errno], flush=True)
attempt(lambda: exec(sys.argv[1], globals()))
`

// TestExecute: a program executes the files of processes.execute and what the kernel executes for them, and nothing else. Without the
// key each way works.
func TestExecute(t *testing.T) {
	if v, err := procfs.Landlock(); err != nil || v < 2 {
		need(t, "landlock", false)
	}
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		work := b.mkdir("work")
		script := b.file("bin/script", "#!/bin/sh\necho ran $(python3 -c 'print(6 * 7)')\n")
		b.mustDo(os.Chmod(script, 0o755))
		view := object{"source": "tmpfs", "lifetime": "exec"}
		files := object{"read": []string{filepath.Dir(script)}, "write": []string{work}, "tmpfs": []object{{"path": "/tmp"}, {"path": "/y"}}}
		b.mkdir("work/sub")
		again := []object{{"source": filepath.Join(work, "sub"), "target": "/again"}}
		b.create("all", b.policy(object{"workspace": view, "files": files, "bind": again}))
		policy := b.policy(object{"workspace": view, "files": files, "bind": again, "processes": object{"execute": []string{"/usr/bin/python3", script}}})
		b.create("some", policy)
		for _, e := range executions {
			b.t.Run(e.name, func(t *testing.T) {
				ours := *b
				ours.t = t
				program := strings.ReplaceAll(e.program, "$WORK", work)
				control := ours.run("exec", "all", "--", "python3", "-c", executeProgram, program)
				got := ours.run("exec", "some", "--", "python3", "-c", executeProgram, program).exits(0).hides("BROKE")
				met := false
				for code := range strings.FieldsSeq(e.meets) {
					met = met || strings.Contains(got.stdout, "MET "+code)
				}
				if !met {
					t.Errorf("it did not meet %s:\n%s", e.meets, got.stdout)
				}
				if e.name != "memory that says it is not" { // that holds in every sandbox
					control.prints("BROKE")
				}
			})
		}
		b.mustDo(os.MkdirAll(filepath.Join(work, "fresh"), 0o755))
		for id, broke := range map[string]bool{"all": true, "some": false} { // a directory of one exec
			a := b.run("exec", id, "--fresh", filepath.Join(work, "fresh"), "--", "python3", "-c", executeProgram, strings.ReplaceAll(`
shutil.copy("/usr/bin/echo", "$WORK/fresh/own")
subprocess.run([loader, "$WORK/fresh/own", "BROKE"]).returncode and print("MET")`, "$WORK", work))
			same(b.t, "it ran", broke, strings.Contains(a.stdout, "BROKE"))
		}
		b.run("exec", "some", "--", script).exits(0).prints("ran 42")
		b.run("exec", "some", "--", "true").exits(126).complains("program_not_executable", "processes.execute")
		b.run("exec", "some", "--", "python3", "-c", `
import os # files move across directories as always
os.mkdir("a"); os.mkdir("b"); open("a/f", "w").close(); os.rename("a/f", "b/f"); os.link("b/f", "a/g"); print(os.listdir("a"), os.listdir("b"))`).
			exits(0).prints("['g'] ['f']")
		b.run("explain", "-p", policy, "/usr/bin/true").exits(0).prints("cannot be executed, because processes.execute names other files")

		// What a program could change is refused: also by another name of it.
		own := b.file("work/own", "#!/bin/sh\n")
		b.mustDo(os.Chmod(own, 0o755))
		linked := b.path("bin/linked")
		b.mustDo(os.Link(own, linked))
		loose := b.file("bin/loose", "#!"+own+"\n")
		b.mustDo(os.Chmod(loose, 0o755))
		above := []object{{"source": filepath.Dir(work), "target": "/above"}}
		b.run("run", "-p", b.policy(object{"files": files, "bind": above, "processes": object{"execute": []string{"/usr/bin/true"}}}), "--", "true").
			exits(125).complains("policy_invalid", "could be mapped as code")
		for file, says := range map[string]string{
			own: "is in a grant that programs can write", linked: "is a hard link of it", loose: "is in a grant that programs can write", work: "no file that can be executed",
			b.path("bin/none"): "not inside",
		} {
			p := b.policy(object{"files": files, "processes": object{"execute": []string{file}}})
			b.run("run", "-p", p, "--", "true").exits(125).complains("policy_invalid", says)
		}
	})
}
