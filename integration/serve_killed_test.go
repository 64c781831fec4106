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
