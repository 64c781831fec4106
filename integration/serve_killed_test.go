package integration

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeKilled: a server that is killed takes its sandboxes with it, at whatever moment.
func TestServeKilled(t *testing.T) {
	flavours(t, func(b *box) {
		before := b.census0(b.policy(tmpfsPolicy()))
		for i := range 12 {
			s := b.stdio()
			if i%3 > 0 {
				s.create("box")
				s.ask("exec", object{"sandbox": "box", "argv": []string{"sleep", "300"}, "put": object{"f": "x"}, "collect": []string{"f"}, "fresh": []string{"/tmp"}})
			} else {
				s.ask("create", object{"id": "box", "policy": tmpfsPolicy()})
			}
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
			s.in.Close()
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if b.run("sweep").exits(0); len(b.ids()) == 0 {
					break
				}
			}
			same(b.t, "sandboxes left", "", strings.Join(b.ids(), " "))
		}
		b.settles("killed servers", before)
	})
}

// killedClient makes a sandbox and runs a program in it; without an argument it starts a server, else it uses that at the socket.
const killedClient = `
import json, os, socket, subprocess, sys
if len(sys.argv) > 1:
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    out, into = s.makefile("wb"), s.makefile("rb")
else:
    p = subprocess.Popen([os.environ["BIN"], "serve", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, into = p.stdin, p.stdout
def ask(n, method, params):
    out.write(json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params}).encode() + b"\n")
    out.flush()
ask(1, "create", {"id": "box", "policy": {"version": 1, "workspace": {"source": "tmpfs", "path": "/w"}}})
print("asked", flush=True)
into.readline()
for n in range(2, 100):
    ask(n, "exec", {"sandbox": "box", "argv": ["sleep", "300"], "put": {"f": "x"}, "collect": ["f"], "stream": n % 2 == 0})
sys.stdin.read()
`

// TestClientKilled: a client that is killed, at whatever moment, leaves nothing, whether the server was its own or is others' too.
func TestClientKilled(t *testing.T) {
	needProgram(t, "python3")
	flavours(t, func(b *box) {
		before := b.census0(b.policy(tmpfsPolicy()))
		path, stop := b.socket()
		for i := range 10 {
			args := []string{"python3", "-c", killedClient}
			if i%2 == 0 {
				args = append(args, path)
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(b.env, "BIN="+w.binary)
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.t.Fatal(err)
			}
			_, _ = out.Read(make([]byte, 8))
			time.Sleep(time.Duration(i*i) * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if len(b.ids()) == 0 {
					break
				}
			}
			same(b.t, "sandboxes left", "", strings.Join(b.ids(), " "))
		}
		stop()
		b.settles("killed clients", before)
	})
}

// TestServeIsForItsUser: the socket is of mode 0600, and who can open it all the same is asked for by the kernel.
func TestServeIsForItsUser(t *testing.T) {
	needRoot(t)
	b := newBox(t)
	path, stop := b.socket()
	defer stop()
	if err := os.Chmod(path, 0o666); err != nil { // by mistake
		t.Fatal(err)
	}
	script := `import socket,sys
s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"list"}\n')
print(s.recv(100))`
	as := func(uid uint32) string {
		cmd := exec.Command("python3", "-c", script, path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := as(0); !strings.Contains(out, "sandboxes") {
		t.Errorf("root: %s", out)
	}
	if out := as(12345); strings.Contains(out, "sandboxes") {
		t.Errorf("another user: %s", out)
	}
}
