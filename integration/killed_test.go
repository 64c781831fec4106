package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestCreateKilled: a create that is killed at any moment leaves nothing that sweep or delete does not remove.
func TestCreateKilled(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		n := 60
		if testing.Short() {
			n = 15
		}
		ws := b.mkdir("ws")
		p := b.policy(object{
			"workdir": ws, "files": object{"write": []string{ws}, "deny": []string{b.file("ws/key", "k")}},
			"network": object{"mode": "allowlist", "ports": []int{9}},
		})
		b.create("warm", p)
		b.learnCgroups("warm")
		b.run("delete", "warm").exits(0)
		before := b.count()
		finished := 0
		for i := range n {
			cmd := b.command(call{}, "create", "-p", p, "--owner", strconv.Itoa(os.Getpid()), "killed")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond)
			_ = cmd.Process.Kill()
			if cmd.Wait() == nil {
				finished++
			}
			switch i % 3 {
			case 0: // what is complete lives on; what is not may take a moment to end
				eventually(t, "it can be deleted", func() bool {
					a := b.run("delete", "killed")
					return a.status == 0 || strings.Contains(a.stderr, "not_found")
				})
			case 1: // what is not complete ends by itself
				b.untilDead("killed")
				b.run("sweep").exits(0)
				if len(b.ids()) > 0 {
					b.run("delete", "killed").exits(0)
				}
			case 2: // the next create makes room for itself
				b.untilDead("killed")
				// A creator that was killed in its last moment leaves one that is written down and about to end.
				eventually(t, "there is one that runs", func() bool {
					return b.alive("killed") || b.run("create", "-p", p, "--owner", strconv.Itoa(os.Getpid()), "killed").status == 0
				})
				b.exec("killed", "--", "true").exits(0)
				b.run("delete", "killed").exits(0)
			}
			if ids := b.ids(); len(ids) > 0 {
				t.Fatalf("after %d: left %q", i, ids)
			}
		}
		t.Logf("%d of %d creates were complete", finished, n)
		b.settles(fmt.Sprintf("%d killed creates", n), before)
	})
}

// alive says whether a sandbox runs.
func (b *box) alive(id string) bool {
	return b.run("exec", id, "--", "true").status == 0
}

// untilDead waits until a sandbox whose creator was killed has either been complete or ended.
func (b *box) untilDead(id string) {
	b.t.Helper()
	eventually(b.t, "the sandbox is complete or dead", func() bool {
		a := b.run("list")
		return !strings.Contains(a.stdout, id+" ") || !strings.Contains(a.stdout, "creating")
	})
}

// TestRunKilled: a run that is killed at any moment takes its program with it, and the next run sweeps up.
func TestRunKilled(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		b.run("run", "-p", p, "--", "true").exits(0)
		before := b.count()
		mark := fmt.Sprintf("48%02d.%d", w.uid%100, os.Getpid())
		for range 20 {
			cmd := b.command(call{}, "run", "-p", p, "--", "sh", "-c", "setsid sleep "+mark+" & sleep "+mark)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			eventually(t, "no program is left", func() bool { return processes("sleep "+mark) == 0 })
		}
		eventually(t, "every process 1 has ended", func() bool { return b.processes() == before.processes })
		// What has just ended may hold its lock for a moment yet, and is then left to the next sweep.
		eventually(t, "all is swept", func() bool {
			b.run("run", "-p", p, "--", "true").exits(0)
			return len(b.ids()) == 0
		})
		b.settles("killed runs", before)
	})
}

// TestKilledSoon: a launcher that is killed in the first milliseconds, at any step of a start, leaves no process.
func TestKilledSoon(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		p := b.policy(object{"files": object{"write": []string{ws}}, "network": object{"ports": []int{9}}, "limits": object{"pids": 50}})
		b.create("box", p)
		before := b.processes()
		for name, args := range map[string][]string{
			"exec": {"exec", "box", "--", "sleep", "100"}, "exec --json": {"exec", "--json", "box", "--", "sleep", "100"},
			"exec --tty": {"exec", "--tty", "box", "--", "sleep", "100"}, "run": {"run", "-p", p, "--", "sleep", "100"},
			"doctor": {"doctor"}, "explain": {"explain", "-p", p, "/usr"},
		} {
			for range 15 {
				cmd := b.command(call{}, args...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(rand.IntN(25_000)) * time.Microsecond)
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			eventually(t, "no process of "+name+" is left", func() bool { return b.processes() <= before })
		}
		b.run("exec", "box", "--", "true").exits(0)
		b.run("sweep")
		trials, err := filepath.Glob(filepath.Join(b.state, ".sandboxrun-doctor-*"))
		b.mustDo(err)
		for _, dir := range trials { // doctor itself leaves them alone for an hour
			b.run("--root", dir, "sweep").exits(0)
		}
	})
}

// TestExecKilled: an exec that is killed takes its program with it, and nothing else of the sandbox.
func TestExecKilled(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.files("", object{}))
		mark := fmt.Sprintf("47%02d.%d", w.uid%100, os.Getpid())
		other := b.command(call{}, "exec", "box", "--", "sh", "-c", "sleep 1.5; echo unharmed")
		var out lockedBuffer
		other.Stdout = &out
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		before := b.processes()
		for range 10 {
			cmd := b.command(call{}, "exec", "box", "--", "sh", "-c", "trap '' TERM HUP; setsid sleep "+mark+" & sleep "+mark)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			eventually(t, "no program is left", func() bool { return processes("sleep "+mark) == 0 })
		}
		same(t, "the exec beside", 0, statusOf(t, other, other.Wait()))
		same(t, "its output", "unharmed\n", out.String())
		eventually(t, "as many processes as before", func() bool { return b.processes() <= before })
		b.exec("box", "--", "true").exits(0)
	})
}

// TestAnotherUser: nobody can see, enter, signal or delete what is another user's, not by naming its state directory.
func TestAnotherUser(t *testing.T) {
	needRoot(t)
	needUserns(t)
	need(t, "testuser", w.other != nil)
	b := newBox(t)
	uid, gid := w.ids()
	as := func(uid, gid int) []string {
		return []string{"setpriv", "--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(gid), "--clear-groups"}
	}
	home := b.mkdir("home")
	if err := os.Chown(home, uid, gid); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(home, "state")
	me, they, third := []string{}, as(uid, gid), as(61234, 61234)
	mine := b.mkdir("mine")
	if err := os.Chmod(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	b.call(call{wrap: me}, "--root", mine, "create", "--owner", strconv.Itoa(os.Getpid()), "secretbox").exits(0)
	b.call(call{wrap: they}, "--root", theirs, "create", "--owner", "none", "theirbox").exits(0)
	defer func() {
		b.call(call{wrap: they}, "--root", theirs, "delete", "theirbox").exits(0)
		b.call(call{}, "--root", mine, "delete", "secretbox").exits(0)
	}()
	for _, c := range []struct {
		who  []string
		root string
		id   string
	}{{they, mine, "secretbox"}, {third, theirs, "theirbox"}, {third, mine, "secretbox"}} {
		for _, args := range [][]string{
			{"list"},
			{"list", "--json"},
			{"state", c.id},
			{"ps", c.id},
			{"exec", c.id, "--", "echo", "INSIDE"},
			{"kill", c.id, "KILL"},
			{"delete", c.id},
			{"delete", "-f", c.id},
			{"sweep"},
			{"create", c.id},
			{"run", "--", "echo", "INSIDE"},
		} {
			a := b.call(call{wrap: c.who}, append([]string{"--root", c.root}, args...)...).hides("INSIDE")
			if strings.Contains(a.stdout, c.id) {
				t.Errorf("it sees %s: %v", c.id, a)
			}
			a.exits(125).complains("sandboxrun: ", c.root)
		}
	}
	// Their own default state does not show others' either, and root does not take theirs for its own.
	b.call(call{wrap: they}, "--root", filepath.Join(home, "state2"), "list").exits(0).hides("secretbox")
	b.call(call{}, "--root", theirs, "delete", "theirbox").exits(125).complains("state_unusable")
	b.call(call{}, "--root", mine, "exec", "secretbox", "--", "echo", "alive").exits(0).prints("alive")
	b.call(call{wrap: they}, "--root", theirs, "exec", "theirbox", "--", "echo", "alive").exits(0).prints("alive")

	// The processes inside cannot be reached by another unprivileged user.
	cmd := b.command(call{wrap: they}, "--root", theirs, "exec", "theirbox", "--", "sleep", "4766.5")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return processes("sleep 4766.5") > 0 })
	out, _ := exec.Command(third[0], append(third[1:], "pkill", "-KILL", "-f", "sleep 4766[.]5")...).CombinedOutput()
	if !strings.Contains(string(out), "not permitted") {
		t.Errorf("a third user's kill: %s", out)
	}
	b.call(call{wrap: they}, "--root", theirs, "kill", "theirbox", "TERM").exits(0)
	same(t, "the exec", 143, statusOf(t, cmd, cmd.Wait()))
}

// TestCallerKilled: what a caller started in its last moments does not outlive it.
func TestCallerKilled(t *testing.T) {
	flavours(t, func(b *box) {
		for i := range 10 {
			script := fmt.Sprintf(`"$0" create orphan-of-none 2>/dev/null & sleep %.3f; kill -9 $$`, float64(i)/100)
			_ = b.command(call{wrap: []string{"bash", "-c", script}}).Run()
			eventually(b.t, "create has ended", func() bool { return processes("create orphan-of-none") == 0 })
			eventually(b.t, "no sandbox runs", func() bool { return !strings.Contains(b.run("list").stdout, "running") })
			b.run("sweep").exits(0)
		}
	})
}
