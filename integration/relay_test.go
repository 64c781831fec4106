package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// echo serves on the host's loopback: what a connection sends comes back.
func echo(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// relays finds the processes that have the lock of a sandbox's relay open.
func (b *box) relays(id string) []string {
	var pids []string
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, _ := os.Readlink(link); to == filepath.Join(b.state, id, "relay.lock") {
			pids = append(pids, strings.Split(link, "/")[2])
		}
	}
	return pids
}

func (b *box) relay(id string) string {
	b.t.Helper()
	pids := b.relays(id)
	if len(pids) != 1 {
		b.t.Fatalf("relays of %s: %v", id, pids)
	}
	return pids[0]
}

// connects is a program that sends a word through a port and prints what comes back.
const connects = `import socket,sys
c=socket.create_connection(("127.0.0.1",int(sys.argv[1])),10); c.sendall(b"there and back"); c.shutdown(1)
r=b""
while True:
    d=c.recv(100)
    if not d: break
    r+=d
print(r.decode())`

// TestRelayProcess: what stands outside has no privilege, a filter, nothing of its caller's, and ends with the sandbox.
func TestRelayProcess(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		port := echo(t)
		p := b.policy(object{"network": object{"mode": "allowlist", "ports": []int{port}}})
		b.file("callers", "something that the caller has open")
		wrap := []string{"sh", "-c", `exec 9<callers; "$@"; exit $?`, "sh"}
		b.call(call{wrap: wrap, env: []string{"SECRET_TOKEN=something-secret"}}, "create", "-p", p, "--owner", strconv.Itoa(os.Getpid()), "box").exits(0)
		b.exec("box", "--", "python3", "-c", connects, strconv.Itoa(port)).exits(0).prints("there and back")
		pid := b.relay("box")
		status := filepath.Join("/proc", pid, "task/*/status")
		threads, _ := filepath.Glob(status)
		if len(threads) == 0 {
			t.Fatal("no thread at", status)
		}
		for _, thread := range threads {
			text := b.read(thread)
			for _, want := range []string{
				"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000",
				"NoNewPrivs:\t1", "Seccomp:\t2",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%s lacks %q:\n%s", thread, want, text)
				}
			}
			if os.Geteuid() == 0 && !strings.Contains(text, "CapBnd:\t0000000000000000") {
				t.Errorf("%s: capabilities could come back:\n%s", thread, text)
			}
		}
		same(t, "environment", "", b.read(filepath.Join("/proc", pid, "environ")))
		cwd, _ := os.Readlink(filepath.Join("/proc", pid, "cwd"))
		same(t, "working directory", "/", cwd)
		fds, _ := filepath.Glob(filepath.Join("/proc", pid, "fd/*"))
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasSuffix(to, "/callers") {
				t.Error("it has a file of its caller's open")
			}
		}
		b.exec("box", "--", "sh", "-c", "exec cat /proc/[0-9]*/cmdline").exits(0).hides("relay")
		b.run("delete", "box").exits(0)
		same(t, "relays", 0, len(b.relays("box")))
		absent(t, filepath.Join("/proc", pid, "fd/0"))
	})
}

// TestRelayEnds: with the owner, with process 1, and when somebody kills it, which is said and lets nothing through.
func TestRelayEnds(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		port := strconv.Itoa(echo(t))
		p := b.policy(object{"network": object{"ports": []string{port}}})
		owner := exec.Command("sleep", "100")
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		b.run("create", "-p", p, "--owner", strconv.Itoa(owner.Process.Pid), "owned").exits(0)
		pid := b.relay("owned")
		_ = owner.Process.Kill()
		_ = owner.Wait()
		eventually(t, "the relay ended with the owner", func() bool { _, err := os.Stat("/proc/" + pid + "/fd/0"); return err != nil })
		b.run("sweep").exits(0).prints("owned")

		b.create("box", p)
		n, _ := strconv.Atoi(b.relay("box"))
		relay, err := os.FindProcess(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := relay.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is gone", func() bool { return len(b.relays("box")) == 0 })
		eventually(t, "its lock is free", func() bool { return strings.Contains(b.run("state", "box").stdout, `"relay":{"status":"stopped"`) })
		b.exec("box", "--", "python3", "-c", connects, port).complains("warning: the sandbox's relay has ended")
		a := b.exec("--env", "X=1", "box", "--", "python3", "-c", connects, port).exits(1)
		a.complains("warning: the sandbox's relay has ended", "ConnectionRefusedError")
		b.run("delete", "box").exits(0)
		same(t, "sandboxes", 0, len(b.ids()))
	})
}

// TestRelayReleases: after hundreds of connections, at once and one after the other, it holds what it held before.
func TestRelayReleases(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		port := echo(t)
		b.create("box", b.policy(object{"network": object{"ports": []int{port}}}))
		pid := b.relay("box")
		descriptors := func() int {
			fds, _ := os.ReadDir(filepath.Join("/proc", pid, "fd"))
			return len(fds)
		}
		const many = `import asyncio,sys
async def one(i):
    r,w=await asyncio.open_connection("127.0.0.1",int(sys.argv[1])); m=b"%05d"%i; w.write(m); d=await r.readexactly(5)
    await asyncio.sleep(0.3)
    w.write(m); d+=await r.readexactly(5); w.close(); return d==m+m
async def main(): print("good", sum(await asyncio.gather(*(one(i) for i in range(512)))))
asyncio.run(main())`
		run := func() {
			b.run("exec", "box", "--", "python3", "-c", many, strconv.Itoa(port)).exits(0).prints("good 512")
		}
		run()
		var before int
		eventually(t, "connections have ended", func() bool { before = descriptors(); return before < 60 })
		for range 3 {
			run()
		}
		eventually(t, fmt.Sprintf("descriptors are again %d", before), func() bool { return descriptors() <= before })
		kib := resident(t, pid)
		t.Logf("%d descriptors, %d KiB", before, kib)
		if kib > 64<<10 {
			t.Errorf("it takes %d KiB of memory", kib)
		}
		// By now garbage has been collected, and process 1 is still watched.
		watched, _ := os.Readlink(filepath.Join("/proc", pid, "fd/4"))
		same(t, "descriptor of process 1", "anon_inode:[pidfd]", watched)
		var st struct{ Network struct{ Allowed int } }
		eventually(t, "each was counted", func() bool {
			err := json.Unmarshal([]byte(b.run("stats", "--json", "box").stdout), &st)
			return err == nil && st.Network.Allowed == 4*512
		})
		b.run("delete", "box").exits(0)
	})
}

func resident(t *testing.T, pid string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestForwardToSocket: a port can lead to a Unix socket outside, by a path longer than a sockaddr holds; and no link that a
// program can make leads anywhere.
func TestForwardToSocket(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		dir := b.mkdir(strings.Repeat("d", 120))
		path := filepath.Join(dir, "s")
		serveSocket(t, path, "from the socket")
		secret := filepath.Join(b.mkdir("secret"), "s")
		serveSocket(t, secret, "NOT FOR YOU")
		ws := b.mkdir("ws")
		p := b.policy(object{
			"files":   object{"write": []string{ws}},
			"network": object{"ports": []string{"5000=unix:" + path, "5001=unix:" + filepath.Join(ws, "s")}},
		})
		const ask = `import socket,sys
try: print(socket.create_connection(("127.0.0.1",int(sys.argv[1])),10).recv(100).decode())
except OSError as e: print(e.__class__.__name__)`
		b.create("box", p)
		b.exec("box", "--", "python3", "-c", ask, "5000").exits(0).prints("from the socket")
		b.run("exec", "box", "--", "ln", "-s", secret, filepath.Join(ws, "s")).exits(0)
		b.exec("box", "--", "python3", "-c", ask, "5001").exits(0).hides("NOT FOR YOU")
		b.run("delete", "box").exits(0)
	})
}

// serveSocket answers whoever connects to a Unix socket.
func serveSocket(t *testing.T, path, text string) {
	t.Helper()
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))) // the path itself may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}()
}
