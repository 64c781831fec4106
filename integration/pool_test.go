package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/journal"
)

// aPool is a pool that lives until the test ends.
type aPool struct {
	cmd  *exec.Cmd
	name string
	end  func()
}

// pool starts a pool whose command waits.
func (b *box) pool(c call, args ...string) *aPool {
	b.t.Helper()
	line := append(append([]string{"pool"}, args...), "--", "/bin/sh", "-c", "echo $SANDBOXRUN_POOL; read end")
	cmd := b.command(c, line...)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	b.mustDo(cmd.Start())
	end := func() { in.Close(); _ = cmd.Wait() }
	b.t.Cleanup(end)
	name, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.t.Fatal("the pool's command was not run: ", err)
	}
	return &aPool{cmd, strings.TrimSpace(name), end}
}

// in is a call in the pool's command.
func (p *aPool) in(c call) call {
	c.env = append(slices.Clone(c.env), "SANDBOXRUN_POOL="+p.name)
	return c
}

// ready lists the directories of ready sandboxes.
func (b *box) ready() []string {
	list, _ := filepath.Glob(filepath.Join(b.state, ".ready-*"))
	return list
}

// fromPool says whether a sandbox came from a pool.
func (b *box) fromPool(id string) bool {
	b.t.Helper()
	var state struct {
		Pool *journal.Pooled `json:"pool"`
		PID  int             `json:"pid"`
	}
	if err := json.Unmarshal([]byte(b.run("state", id).exits(0).stdout), &state); err != nil {
		b.t.Fatal(err)
	}
	return state.Pool != nil
}

// full waits until so many are ready: their process 1 holds what it is to hold of them.
func (b *box) full(n int) {
	b.t.Helper()
	eventually(b.t, "the pool is full", func() bool {
		ready := b.ready()
		held := 0
		locks, _ := filepath.Glob("/proc/*/fd/4")
		for _, fd := range locks {
			lock, err := os.Readlink(fd)
			if err == nil && slices.Contains(ready, filepath.Dir(lock)) && exists(filepath.Dir(fd)+"/6") {
				held++
			}
		}
		return held == n && len(ready) == n
	})
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// TestPool: run and create take sandboxes of a pool. Each is new, belongs to who took it, says where it comes from, and is as isolated as
// any other. In the end nothing is left.
func TestPool(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		policy := b.policy(object{"files": object{"write": []string{ws}, "deny": []string{b.file("ws/key", "k")}}, "limits": object{"wall": "60s", "pids": 64}})
		p := b.pool(call{}, "--policy", policy, "--size", "2")
		same(t, "ready", 2, len(b.ready()))
		same(t, "listed", 0, len(b.ids()))
		owner := exec.Command("/bin/sleep", "1000")
		b.mustDo(owner.Start())
		defer func() { _ = owner.Process.Kill(); _ = owner.Wait() }()
		made := map[string]bool{}
		for i := range 3 {
			b.full(2)
			id := fmt.Sprint("box", i)
			record := b.mkdir("record", id)
			b.call(p.in(call{}), "create", "--policy", policy, "--record", record, "--owner", fmt.Sprint(owner.Process.Pid), id).exits(0)
			same(t, "from the pool", true, b.fromPool(id))
			b.run("exec", id, "--", "sh", "-c", "test ! -e /tmp/used && touch /tmp/used && ! cat "+ws+"/key && touch "+ws+"/new").exits(0)
			made[b.run("exec", id, "--", "readlink", "/proc/self/ns/uts").exits(0).stdout] = true
			text := b.read(filepath.Join(record, "record.jsonl"))
			if !strings.Contains(text, `"pool":{"built":"`) || !strings.Contains(text, `"sandbox":"`+id+`"`) {
				t.Errorf("the record does not say where the sandbox comes from: %.300s", text)
			}
			if events := b.run("events", "--json", id).exits(0).stdout; !strings.Contains(events, `"claimed":"`) {
				t.Errorf("nor do the events: %.300s", events)
			}
		}
		b.run("delete", "box2").exits(0)
		b.run("verify", b.path("record", "box2")).exits(0)
		same(t, "different sandboxes", 3, len(made))
		for _, run := range [][]string{
			{"--json", "--", "sh", "-c", "pwd; id -u; test ! -e /tmp/used && touch /tmp/used; exit 3"}, // answered before Go starts
			{"--json", "--", "sh", "-c", "kill -9 $$"},                                                 // judged by Go
			{"--timeout", "0.1", "--json", "--", "sleep", "60"},
			{"--memory", "256M", "--json", "--", "true"}, // done by Go
			{"--json", "--", "not-there"},                // which the short way has claimed a sandbox for
			{"--", "cat"},
		} {
			args := append([]string{"run", "--policy", policy}, run...)
			plain := b.call(call{dir: ws, stdin: strings.NewReader("typed")}, args...)
			for _, way := range []string{"", longWay} {
				b.full(2)
				time.Sleep(20 * time.Millisecond) // it has just been told that it is ready
				a := b.call(p.in(call{dir: ws, stdin: strings.NewReader("typed"), env: []string{way}}), append([]string{"run"}, args[1:]...)...)
				same(t, fmt.Sprint("status of ", run, way), plain.status, a.status)
				same(t, fmt.Sprint("result of ", run, way), withoutNumbers(plain.stdout), withoutNumbers(a.stdout))
				eventually(t, "it has left nothing", func() bool { return len(b.ids()) == 2 }) // the pool removes it after the answer; box0 and box1 stay
			}
		}
		b.full(2)
		same(t, "used ids", "id_in_use", codeOf(b.call(p.in(call{}), "create", "--policy", policy, "box0")))
		same(t, "and still ready", 2, len(b.ready()))
		_ = owner.Process.Kill()
		_ = owner.Wait()
		eventually(t, "they end with their owner, and are removed", func() bool { return len(b.ids()) == 0 })
		b.mustDo(p.cmd.Process.Signal(unix.SIGTERM))
		eventually(t, "the ready ones end with the pool", func() bool { return names(b.state) == ".base .lock" })
	})
}

// TestPoolEnds: a pool that ends has removed what the last run has left, although that was not awaited. The control is a run that goes on.
func TestPoolEnds(t *testing.T) {
	flavours(t, func(b *box) {
		policy := b.policy(object{"limits": object{"pids": 64, "memory": "256M"}})
		for range 5 {
			b.run("pool", "--policy", policy, "--size", "1", "--", w.binary, "run", "--policy", policy, "--", "true").exits(0)
			same(b.t, "it has left", ".base .lock", names(b.state))
		}
		b.run("pool", "--policy", policy, "--size", "1", "--", "/bin/sh", "-c", w.binary+" run --policy "+policy+" -- sleep 3 >/dev/null 2>&1 & sleep 1").exits(0)
		same(b.t, "running", 1, len(b.ids()))
		eventually(b.t, "it ends, and removes itself", func() bool { return names(b.state) == ".base .lock" })
	})
}

// codeOf is the code of the error that a command has printed.
func codeOf(a *answer) string {
	_, text, _ := strings.Cut(a.stderr, "sandboxrun: ")
	code, _, _ := strings.Cut(text, ":")
	return code
}

// withoutNumbers is a result without what differs from run to run.
func withoutNumbers(result string) string {
	var r map[string]any
	if json.Unmarshal([]byte(result), &r) != nil {
		return result
	}
	delete(r, "usage")
	delete(r, "sandbox")
	text, _ := json.Marshal(r)
	return string(text)
}

// TestPoolRefuses: where anything that the policy depends on is another, a sandbox is made as always. The control is the same command
// before and after.
func TestPoolRefuses(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.file("grants/in/f", "f")
		b.file("other/in/f", "other")
		grant := b.link("grant", b.path("grants"))
		env := []string{"WHERE=" + grant, "SERVICE=http://127.0.0.1:1"}
		text := "version = 1\n[files]\nread = [\"$WHERE/in\"]\ndeny = [\"$WHERE/in/later\"]\n[env]\nallow = [\"SERVICE\"]\n"
		policy := b.file("p.toml", text)
		p := b.pool(call{env: env}, "--policy", policy, "--size", "1")
		again := call{env: env}
		n, why := 0, ""
		create := func(c call, args ...string) bool {
			t.Helper()
			n++
			id := fmt.Sprint("s", n)
			a := b.call(p.in(c), append(append([]string{"--log-level", "info", "create", "--policy", policy, "--owner", "none"}, args...), id)...).exits(0)
			from := b.fromPool(id)
			why = a.stderr
			b.run("delete", id).exits(0)
			return from
		}
		control := func(after string) {
			t.Helper()
			eventually(t, "it gives again after: "+after, func() bool { return create(again) })
		}
		control("nothing")
		rows := map[string]struct {
			call   call
			args   []string
			change func() (undo func())
		}{
			"a grant of the command line":  {call: again, args: []string{"--read", b.path("other")}},
			"a variable in a path":         {call: call{env: []string{"WHERE=" + b.path("other"), "SERVICE=http://127.0.0.1:1"}}},
			"a forwarded address":          {call: call{env: []string{"WHERE=" + grant, "SERVICE=http://127.0.0.1:2"}}},
			"a limit of open files":        {call: call{env: env, wrap: []string{"/bin/sh", "-c", `ulimit -n 512; exec "$@"`, "sh"}}},
			"the policy's text":            {call: again, change: b.changes(policy, text+"[limits]\nwall = \"9s\"\n")},
			"a link on the way to a grant": {call: again, change: b.relinks(grant, b.path("other"), b.path("grants"))},
			"a denied path that comes":     {call: again, change: b.makes(b.path("grants", "in", "later"))},
			"a grant's mode":               {call: again, change: b.chmods(b.path("grants", "in"), 0o711, 0o755)},
			"a second name of a grant":     {call: again, change: b.replaces(b.path("grants", "in"))},
			"a processor less":             {call: call{env: env, wrap: []string{"taskset", "-c", "1"}}},
			"no new privileges":            {call: call{env: env, wrap: []string{"setpriv", "--no-new-privs"}}},
			"a mount namespace":            {call: call{env: env, wrap: []string{"unshare", "-m"}}},
		}
		for what, row := range rows {
			if len(row.call.wrap) > 0 {
				if _, err := exec.LookPath(row.call.wrap[0]); err != nil {
					continue
				}
			}
			if what == "a mount namespace" && w.uid != 0 {
				continue // only root can make one
			}
			eventually(t, "the pool has one: "+what, func() bool {
				b.full(1)
				time.Sleep(50 * time.Millisecond) // it has just been told that it is ready
				if row.change != nil {
					defer row.change()()
				}
				from := create(row.call, row.args...)
				if strings.Contains(why, "no sandbox is ready") {
					return false
				}
				if from {
					t.Errorf("%s: it came from the pool", what)
				}
				return true
			})
			control(what)
		}
		// What is left out changes nothing.
		again = call{env: append(env, "OTHER=x")}
		control("another variable")
	})
}

func (b *box) changes(file, to string) func() func() {
	return func() func() {
		was := b.read(file)
		b.mustDo(os.WriteFile(file, []byte(to), 0o644))
		return func() { b.mustDo(os.WriteFile(file, []byte(was), 0o644)) }
	}
}

func (b *box) relinks(link, to, back string) func() func() {
	set := func(to string) { b.mustDo(os.Remove(link), os.Symlink(to, link)) }
	return func() func() { set(to); return func() { set(back) } }
}

func (b *box) makes(file string) func() func() {
	return func() func() {
		b.mustDo(os.WriteFile(file, nil, 0o644))
		return func() { b.mustDo(os.Remove(file)) }
	}
}

func (b *box) chmods(path string, to, back os.FileMode) func() func() {
	return func() func() { b.mustDo(os.Chmod(path, to)); return func() { b.mustDo(os.Chmod(path, back)) } }
}

// replaces puts another directory at a path, and back.
func (b *box) replaces(path string) func() func() {
	return func() func() {
		b.mustDo(os.Rename(path, path+".was"), os.Mkdir(path, 0o755))
		return func() { b.mustDo(os.Remove(path), os.Rename(path+".was", path)) }
	}
}

// TestPoolIsTheCallers: no program in a sandbox and no other user gets a sandbox of a pool, or at its socket.
func TestPoolIsTheCallers(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		policy := b.policy(object{"files": object{"base": "host", "read": []string{b.state, b.dir}}, "network": object{"mode": "host"}})
		p := b.pool(call{}, "--policy", b.policy(object{}), "--size", "1")
		socket := filepath.Join(b.state, ".pool-"+p.name, "socket")
		const look = `find "$1" "$2" -name "*pool*" 2>/dev/null; grep -c pool- /proc/net/unix; test -e "$3" && echo there; exit 0`
		refusedOrHidden := b.run("run", "--policy", policy, "--", "sh", "-c", look, "sh", b.state, b.dir, socket)
		if refusedOrHidden.status == 0 && (strings.Contains(refusedOrHidden.stdout, "there") || strings.Contains(refusedOrHidden.stdout, "/socket")) {
			t.Errorf("a program sees the pool: %s", refusedOrHidden.stdout)
		}
		if _, err := os.Stat(socket); err != nil { // the control
			t.Error(err)
		}
		if info, err := os.Stat(filepath.Dir(socket)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("others may look for the socket: %v %v", info, err)
		}
		if w.uid == 0 {
			uid, gid := w.ids()
			b.mustDo(os.Chmod(filepath.Dir(socket), 0o777), os.Chmod(socket, 0o777), os.Chmod(b.state, 0o755))
			defer func() { b.mustDo(os.Chmod(b.state, 0o700)) }()
			answer, err := askPool(t, socket, uid, gid)
			if err == nil && strings.HasPrefix(answer, "ok") {
				t.Errorf("another user got a sandbox: %q", answer)
			}
		}
		answer, err := askPool(t, socket, w.uid, os.Getgid())
		if err != nil || !strings.HasPrefix(answer, "no\x00") || !strings.Contains(answer, "binary") {
			t.Errorf("another program got a sandbox: %q %v", answer, err)
		}
	})
}

// askPool asks for a sandbox, from a process of a user.
func askPool(t *testing.T, socket string, uid, gid int) (string, error) {
	t.Helper()
	const script = `import os, socket, sys
os.chdir(os.path.dirname(sys.argv[1])) # the whole path may be too long
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(5); s.connect("socket")
s.send(b"run\0x\0\0\0\0\0\0"); sys.stdout.write(s.recv(9999).decode())`
	needProgram(t, "python3")
	cmd := exec.Command("python3", "-c", script, socket)
	if os.Getuid() == 0 && uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestPoolKilled: what was taken lives on when the pool is killed, and what was ready does not. What a claimer that is killed has not got
// is removed.
func TestPoolKilled(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		policy := b.policy(object{"network": object{"mode": "allowlist", "ports": []int{9}}, "limits": object{"pids": 64}})
		b.create("warm", policy)
		b.learnCgroups("warm")
		b.run("delete", "warm").exits(0)
		before := b.count()
		p := b.pool(call{}, "--policy", policy, "--size", "2")
		for i := range 12 {
			cmd := b.command(p.in(call{}), "create", "--policy", policy, "--owner", fmt.Sprint(os.Getpid()), "killed")
			b.mustDo(cmd.Start())
			time.Sleep(time.Duration(i) * 2 * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			eventually(t, "whatever there is can be deleted", func() bool {
				a := b.run("delete", "killed")
				return a.status == 0 || strings.Contains(a.stderr, "not_found")
			})
		}
		for i := range 8 {
			cmd := b.command(p.in(call{}), "run", "--policy", policy, "--", "sleep", "100")
			b.mustDo(cmd.Start())
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		b.full(2)
		b.call(p.in(call{}), "create", "--policy", policy, "--owner", fmt.Sprint(os.Getpid()), "kept").exits(0)
		same(t, "from the pool", true, b.fromPool("kept"))
		b.mustDo(p.cmd.Process.Kill())
		b.run("exec", "kept", "--", "true").exits(0)
		eventually(t, "what was ready is swept", func() bool {
			b.run("sweep")
			return names(b.state) == ".base .lock kept"
		})
		b.call(p.in(call{}), "run", "--policy", policy, "--", "true").exits(0) // the ordinary way
		b.run("delete", "kept").exits(0)
		p.end()
		b.settles("after a pool was killed", before)
	})
}
