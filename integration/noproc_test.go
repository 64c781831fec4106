package integration

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

//go:embed testdata/noproc.py
var noProcProgram string

// waysToProc are the names of the ways in noproc.py. Those that only need a path succeed in a sandbox that has a /proc; the others where the
// program may mount, or has inherited a descriptor.
var waysToProc = map[string][]string{
	"path":  {"paths", "below", "list_mounts"},
	"other": {"descriptors", "uncover", "move_away", "mount_new", "open_new", "own_namespaces", "another_process", "change"},
}

// TestNoProc: with processes.proc = false no way leads a program to a procfs, in whichever way it is started. Each way leads to one where the
// layer that holds it is missing.
func TestNoProc(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "the program does what the guard in an interpreter refuses it")
		t := b.t
		needProgram(t, "python3")
		readable := b.path("readable")
		b.file("readable/judged", "x")
		keys := object{
			"workspace": object{"source": "tmpfs"}, "limits": object{"pids": 64},
			"views": object{"judge": object{"bind": []object{{"source": readable, "target": "/judged"}}}}, // in the root, which is covered for it
		}
		b.create("shown", b.policy(keys))
		keys["processes"] = object{"proc": false}
		policy := b.policy(keys)
		b.create("none", policy)
		all := slices.Concat(waysToProc["path"], waysToProc["other"])
		program := append([]string{"--", "python3", "-c", noProcProgram}, all...)
		sound := func(a *answer) {
			b.t.Helper()
			a.exits(0).hides("BROKE")
			for _, name := range all {
				a.prints("MET " + name + " E")
			}
		}
		control := func(name string, run func() string) {
			t.Run("control/"+name, func(t *testing.T) {
				if out := run(); !strings.Contains(out, "BROKE "+name) {
					t.Log(out)
					need(t, "control:"+name, false)
				}
			})
		}
		for _, name := range waysToProc["path"] {
			control(name, func() string { return b.exec("shown", "--", "python3", "-c", noProcProgram, name).stdout })
		}
		b.background("none", "sh", "-c", "echo runs; exec sleep 4789.81") // another exec at the same time
		inherit := call{wrap: []string{"sh", "-c", `exec "$@" 3</proc 4</proc/self/status </proc/self/status`, "sh"}}
		sound(b.execWith(inherit, append([]string{"none"}, program...)...))
		sound(b.exec(append([]string{"--view", "judge", "none"}, program...)...))
		sound(b.exec(append([]string{"--tty", "none"}, program...)...))
		sound(b.call(inherit, append([]string{"run", "-p", policy}, program...)...))
		sound(b.call(inherit, append([]string{"exec", "--stdin", "none"}, program...)...))
		same(t, "answer", "exited", b.result("none", program[1:]...).Outcome)
		for _, name := range waysToProc["other"] {
			control(name, func() string { return noProcOutside(t, name) })
		}
	})
}

// noProcOutside runs the program where it is root of namespaces, with a /proc that it may uncover. In namespaces further down the kernel
// locks the cover, so there it has none.
func noProcOutside(t *testing.T, name string) string {
	t.Helper()
	cover := "mount -t tmpfs none /proc && "
	if name == "own_namespaces" {
		cover = ""
	}
	flags := "-mpf"
	if w.uid != 0 {
		flags = "-rmpf"
	}
	cmd := exec.Command("unshare", flags, "--mount-proc", "sh", "-c", "mount -t tmpfs none /tmp && "+cover+`exec python3 -c "$@"`, "sh", noProcProgram, name)
	proc, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	cmd.ExtraFiles = []*os.File{proc}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return err.Error() + "\n" + string(out)
	}
	return string(out)
}

// TestNoProcOfTheHost: a grant that shows a procfs which the host has mounted elsewhere is refused, for the policy and for one exec.
func TestNoProcOfTheHost(t *testing.T) {
	flavours(t, func(b *box) {
		if w.uid != 0 {
			b.t.Skip("a user mounts no procfs that others see")
		}
		if _, err := exec.LookPath("unshare"); err != nil {
			need(b.t, "unshare", false)
		}
		chroot := b.mkdir("chroot")
		b.mkdir("chroot", "proc")
		mounted := call{wrap: []string{"unshare", "-m", "sh", "-c", `mount -t proc proc "$0/proc" && exec "$@"`, chroot}}
		keys := object{"files": object{"read": []string{chroot}}}
		look := []string{"--", "sh", "-c", "test -e " + chroot + "/proc/version && echo SHOWN; exit 0"}
		b.call(mounted, append([]string{"run", "-p", b.files("", object{"read": []string{filepath.Join(chroot, "proc")}})}, look...)...).exits(0).prints("SHOWN")
		keys["processes"] = object{"proc": false}
		b.call(mounted, append([]string{"run", "-p", b.policy(keys)}, look...)...).exits(125).complains("policy_invalid", chroot+"/proc", "processes.proc = false")
		b.call(mounted, append([]string{"run", "-p", b.policy(keys), "--deny", chroot + "/proc"}, look...)...).exits(0).hides("SHOWN")
		b.create("on", b.policy(object{"processes": object{"proc": false}}))
		b.call(mounted, append([]string{"exec", "--read", chroot, "on"}, look...)...).exits(125).complains("policy_invalid", "processes.proc = false")
		b.call(mounted, append([]string{"exec", "--read", "/proc/cpuinfo", "on"}, look...)...).exits(125).complains("policy_invalid", "processes.proc = false")
	})
}

// TestNoProcEscapes runs every attack in a sandbox without /proc. That each succeeds outside TestEscapes shows.
func TestNoProcEscapes(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		s := newStage(b.t)
		workdir, files := s.Files()
		s.policy = s.box.policy(object{"workdir": workdir, "files": files, "processes": object{"proc": false}})
		list := attacks()
		got := s.inside(list, "")
		for _, a := range list {
			if got.Broke(a.Name) {
				b.t.Errorf("%s succeeded:\n%s", a.Name, got[a.Name])
			}
			allowed := append(strings.Fields(a.Fails), "ENOENT") // what needs /proc
			if slices.ContainsFunc(got.Met(a.Name), func(e string) bool { return !slices.Contains(allowed, e) }) {
				b.t.Errorf("%s: met %q, want of %q", a.Name, got.Met(a.Name), allowed)
			}
		}
	})
}

// TestNoProcWorks: what the launcher itself reads of an exec's /proc it reads without the program having one.
func TestNoProcWorks(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "what is started is no Python")
		t := b.t
		needProgram(t, "python3")
		policy := b.policy(object{
			"workspace": object{"source": "tmpfs"}, "processes": object{"proc": false}, "limits": object{"memory": "64M", "pids": 20, "cpu": "1s"},
		})
		b.create("m", policy)
		r := b.result("m", "python3", "-c", "x = bytearray(200 << 20)")
		same(t, "outcome", "memory_exceeded", r.Outcome)
		r = b.result("m", "python3", "-c", "import os\nwhile True: os.getppid()") // in the kernel, and so seen by looks too
		same(t, "outcome", "cpu_exceeded", r.Outcome)
		r = b.result("m", "python3", "-c", "import subprocess, multiprocessing as m\nsubprocess.run(['true'], check=True)\np = m.Process(target=print); p.start(); p.join()\nx = bytearray(30 << 20)")
		same(t, "exit code", 0, r.ExitCode)
		same(t, "processes", true, r.Usage.Processes >= 3)
		if r.Usage.MaxRSSBytes < 30<<20 {
			t.Errorf("memory used: %d", r.Usage.MaxRSSBytes)
		}
		// The launcher answers chmod by a path that leads somewhere inside, and by no other.
		b.exec("m", "--", "python3", "-c", `
import os
fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
os.chmod("f", 0o4755)
try: os.chmod("/proc/self/fd/%d" % fd, 0o4700)
except FileNotFoundError: print("NOT FOUND")
print(oct(os.fstat(fd).st_mode))
os.unlink("f")`).exits(0).prints("NOT FOUND", "0o100755")
		b.background("m", "sh", "-c", "echo runs; sleep 4789.82; true")
		b.run("ps", "m").exits(0).prints("4789.82")
		out := b.path("out")
		b.run("exec", "--put", policy+":in", "--collect", "f:"+out, "m", "--", "sh", "-c", "test -s in && echo made >f").exits(0)
		same(t, "collected", "made\n", b.read(out))
	})
}
