package integration

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlainExecIsExec: the plain form of exec, which is answered in C before Go starts, does what the long way does.
func TestPlainExecIsExec(t *testing.T) {
	commands := map[string][]string{
		"status":          {"sh", "-c", "exit 7"},
		"largest status":  {"sh", "-c", "exit 255"},
		"signal":          {"sh", "-c", "kill -9 $$"},
		"both streams":    {"sh", "-c", "echo out; echo err >&2"},
		"double dash":     {"--", "echo", "--", "x"},
		"environment":     {"sh", "-c", "env | sort"},
		"directory":       {"pwd"},
		"limits":          {"sh", "-c", "ulimit -a; umask"},
		"identity":        {"sh", "-c", "id; grep -E '^(Cap|NoNewPrivs|Seccomp|Sig(Blk|Ign))' /proc/self/status"},
		"descriptors":     {"sh", "-c", "ls /proc/self/fd | wc -l; readlink /proc/self/fd/0"},
		"no input":        {"cat"},
		"mounts":          {"sh", "-c", "cut -d' ' -f5,6 /proc/self/mountinfo"},
		"processes":       {"sh", "-c", "cat /proc/[0-9]*/comm"},
		"much output":     {"sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"},
		"a child stays":   {"sh", "-c", "sleep 300 & echo done"},
		"denied":          {"sh", "-c", "cat key; echo $?"},
		"absolute path":   {"/usr/bin/printf", "%s|", "a b", ""},
		"not there":       {"no-such-program"},
		"no such path":    {"/no/such/program"},
		"not executable":  {"/etc/passwd"},
		"a directory":     {"/usr"},
		"relative path":   {"./script"},
		"a script":        {"SCRIPT"},
		"missing loader":  {"BAD"},
		"relative loader": {"RELATIVE"},
		"empty name":      {""},
	}
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		b.file("ws/key", "THE-KEY")
		scripts := map[string]string{"script": "#!/bin/sh\necho ran\n", "bad": "#!/no/loader\n", "relative": "#!sh\n"}
		for name, text := range scripts {
			if err := os.Chmod(b.file("ws/"+name, text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		b.env = append(b.env, "LC_TEST=a=b", "SECRET=s", "SET=caller", "XA1Z=x", "LC_DENIED=x")
		b.create("box", b.policy(object{
			"version": 1, "workdir": ws,
			"files": object{"write": []string{ws}, "deny": []string{ws + "/key"}},
			"env":   object{"allow": []string{"LC_*", "SET", "XA*Z"}, "deny": []string{"*_DEN*D", "SET"}, "set": object{"SET": "policy", "PATH": "/usr/bin:/bin"}},
		}))
		paths := strings.NewReplacer("SCRIPT", filepath.Join(ws, "script"), "BAD", filepath.Join(ws, "bad"), "RELATIVE", filepath.Join(ws, "relative"))
		for _, command := range commands {
			args := []string{"box"}
			for _, a := range command {
				args = append(args, paths.Replace(a))
			}
			b.exec(args...)
			b.exec(append([]string{"--json"}, args...)...)
		}
	})
}

// TestPlainExecIsTaken: it is really the short way that the other test compares, and not where there is more to do.
func TestPlainExecIsTaken(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		key := b.file("ws/key", "THE-KEY")
		b.create("box", b.files(ws, object{"write": []string{ws}, "deny": []string{key}}))
		b.create("limited", b.policy(object{
			"version": 1, "workdir": ws, "files": object{"write": []string{ws}},
			"limits": object{"wall": "60s", "memory": "256M", "pids": 64, "nofile": 100, "file": "1G", "cpus": 1},
		}))
		b.create("noproc", b.policy(object{"version": 1, "processes": object{"proc": false}}))
		b.create("disk", b.policy(object{
			"version": 1, "workdir": ws, "files": object{"write": []string{ws}}, "limits": object{"disk": "1G"},
		}))
		for _, tt := range []struct {
			what, box string
			long      bool
			env       []string
		}{
			{"without limits", "box", false, nil},
			{"with limits that the kernel or the clock holds", "limited", false, nil},
			{"without /proc", "noproc", false, nil},
			{"with a limit that Go looks after", "disk", true, nil},
			{"turned off", "box", true, []string{longWay}},
		} {
			if long := b.threads(tt.env, tt.box) > mostThreads; long != tt.long {
				t.Errorf("%s: the long way is taken: %v, want %v", tt.what, long, tt.long)
			}
		}
		if err := os.Rename(b.file("ws/new", "THE-KEY"), key); err != nil { // and the kernel drops the mask
			t.Fatal(err)
		}
		b.run("exec", "box", "cat", "key").hides("THE-KEY")
		if b.threads(nil, "box") <= mostThreads {
			t.Error("the short way is taken although a mask was dropped")
		}
	})
}

// mostThreads is what a launcher that is written in C has: itself, and who looks at what the program uses.
const mostThreads = 2

// threads counts the threads of a launcher while its program runs.
func (b *box) threads(env []string, id string) int {
	b.t.Helper()
	cmd := b.command(call{env: env}, "exec", id, "sh", "-c", "echo runs; exec sleep 300")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "runs\n" {
		b.t.Fatalf("the program says %q: %v", line, err)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	return len(tasks)
}
