package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// The caller of the launcher has limits and settings of its own. The launcher works all the same, or says what is in its way, and
// programs get what the caller has.

// limited calls the launcher below prlimit(1).
func (b *box) limited(limit string, args ...string) *answer {
	b.t.Helper()
	return b.call(call{wrap: []string{"prlimit", limit, "--"}}, args...)
}

// TestCallerLimits: hard limits that are too small for the launcher itself are named, by one line with a hint. Smaller soft ones
// are no trouble.
func TestCallerLimits(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		privileged := strings.TrimSpace(capabilities(t)) != "" // it may raise hard limits too
		for _, c := range []struct{ limit, name string }{
			{"--as=300000000:300000000", "ulimit -v"},
			{"--as=700000000:700000000", "ulimit -v"},
			{"--data=50000000:50000000", "ulimit -d"},
			{"--fsize=0:0", "ulimit -f"},
			{"--fsize=2000:2000", "ulimit -f"},
			{"--nofile=9:9", "ulimit -n"},
			{"--nofile=14:14", "ulimit -n"},
		} {
			a := b.limited(c.limit, "run", "--policy", p, "echo", "ran")
			if privileged && a.status == 0 {
				continue
			}
			a.says("limit_reached", c.name)
			same(t, c.limit+": lines", 2, strings.Count(a.stderr, "\n"))
		}
		for _, limit := range []string{
			"--as=1000000000:1000000000", "--as=300000000:unlimited", "--data=50000000:unlimited", "--fsize=0:unlimited",
			"--stack=65536:unlimited", "--stack=200000:200000", "--stack=unlimited", "--stack=4000000000:unlimited", "--cpu=1:unlimited",
			"--memlock=0:0", "--core=0:0", "--msgqueue=0:0",
		} {
			if a := b.limited(limit, "run", "--policy", p, "echo", "ran"); a.status != 0 || a.stdout != "ran\n" || a.stderr != "" {
				t.Errorf("%s: %v", limit, a)
			}
		}
	})
}

func capabilities(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "grep CapEff: /proc/self/status | tr -d 'CapEff:\\t0'").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestProgramsHaveTheCallersLimits: what the launcher raises for itself programs do not get, in whichever way they are started.
func TestProgramsHaveTheCallersLimits(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		b.create("box", p)
		const show = "ulimit -Sv; ulimit -Ss; ulimit -Sf; ulimit -St; ulimit -Sn; ulimit -Sd; ulimit -Hs"
		const want = "1500000\n3333\n77\n999\n123\n800000\n4444\n"
		set := []string{
			"prlimit", "--as=1536000000:unlimited", "--stack=3412992:4550656", "--fsize=39424:unlimited", "--cpu=999:unlimited", "--nofile=123:200",
			"--data=819200000:unlimited", "--",
		}
		for _, way := range []string{"on", "off"} {
			a := b.call(call{wrap: set, env: []string{"SANDBOXRUN_PLAIN_EXEC=" + way}}, "exec", "box", "sh", "-c", show).exits(0)
			same(t, "limits, plain exec "+way, want, a.stdout)
		}
		same(t, "limits, run", want, b.call(call{wrap: set}, "run", "--policy", p, "sh", "-c", show).exits(0).stdout)
		name := strings.TrimSpace(b.call(call{wrap: set}, "exec", "--detach", "box", "sh", "-c", show).exits(0).stdout)
		b.run("wait", "box", name).exits(0)
		same(t, "limits, detached", want, b.run("logs", "box", name).exits(0).stdout)
	})
}

// TestCallerOddities: settings that callers inherit from elsewhere.
func TestCallerOddities(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		for _, script := range []string{
			`umask 777; exec "$@"`, `exec 0<&-; exec "$@"`, `exec 2>&-; exec "$@"`, `mkdir gone; cd gone; rmdir ../gone; exec "$@"`,
			`exec nice -n 19 "$@"`, `exec taskset -c 0 "$@"`, `exec setpriv --nnp "$@"`, `exec env -i "$@"`,
			`exec env --ignore-signal=CHLD "$@"`, `exec env --block-signal "$@"`, `exec chrt --idle 0 "$@"`,
		} {
			a := b.call(call{wrap: []string{"sh", "-c", script, "sh"}}, "--root", b.state, "run", "--policy", p, "echo", "ran")
			if a.status != 0 || a.stdout != "ran\n" || a.stderr != "" {
				t.Errorf("%s: %v", script, a)
			}
		}
	})
}

// TestHiddenProcesses: the host's /proc shows a user no other's processes, and so not the one that called the launcher.
func TestHiddenProcesses(t *testing.T) {
	needRoot(t)
	needUserns(t)
	need(t, "testuser", w.other != nil)
	b := newBox(t)
	p := b.files("", object{})
	uid, gid := w.ids()
	own := b.mkdir("home")
	if err := os.Chown(own, uid, gid); err != nil {
		t.Fatal(err)
	}
	for _, option := range []string{"1", "2", "4"} {
		// Its caller is root's shell.
		script := fmt.Sprintf(`mount -t proc -o hidepid=%s proc /proc || { echo UNSUPPORTED; exit; }
			as() { setpriv --reuid %d --regid %d --clear-groups "$0" --root %s/state "$@"; }
			as create -p %s box && as exec box echo inside && as ps box && as list && as delete box && as run -p %s echo ran`, option, uid, gid, own, p, p)
		cmd := exec.Command("unshare", "-m", "sh", "-c", script, w.binary)
		cmd.Env = b.env
		out, err := cmd.CombinedOutput()
		text := string(out)
		need(t, "hidepid", !strings.Contains(text, "UNSUPPORTED"))
		if err != nil || !strings.Contains(text, "inside\n") || !strings.Contains(text, "running") || !strings.HasSuffix(text, "ran\n") {
			t.Errorf("hidepid=%s: %v\n%s", option, err, text)
		}
	}
}

// TestRootWithoutCapabilities: root that lacks what making a sandbox takes hears which capability it is.
func TestRootWithoutCapabilities(t *testing.T) {
	needRoot(t)
	needUserns(t)
	b := newBox(t)
	p := b.files("", object{})
	for _, name := range []string{"setgid", "setuid", "chown", "sys_chroot", "sys_admin", "setfcap"} {
		a := b.call(call{wrap: []string{"setpriv", "--bounding-set", "-" + name}}, "run", "--policy", p, "echo", "ran")
		a.exits(125).hides("ran").complains("CAP_" + strings.ToUpper(name))
	}
	for _, name := range []string{
		"dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setpcap", "net_admin", "net_bind_service", "sys_ptrace",
		"sys_resource", "mknod",
	} {
		a := b.call(call{wrap: []string{"setpriv", "--bounding-set", "-" + name}}, "run", "--policy", p, "echo", "ran")
		if a.status != 0 || a.stdout != "ran\n" {
			t.Errorf("without %s: %v", name, a)
		}
	}
	a := b.call(call{wrap: []string{"setpriv", "--bounding-set", "-all"}}, "run", "--policy", p, "echo", "ran")
	a.exits(125).hides("ran").complains("CAP_SETFCAP", "hint: ")
}

// TestGrantReplaced: a workspace that somebody replaces on the host is not the one that the sandbox shows.
func TestGrantReplaced(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		b.create("box", b.files(ws, object{"write": []string{ws}}))
		ways := []string{"on", "off"}
		try := func() []*answer {
			var list []*answer
			for _, way := range ways {
				list = append(list, b.call(call{env: []string{"SANDBOXRUN_PLAIN_EXEC=" + way}}, "exec", "box", "sh", "-c", "echo x >f; echo PROGRAM"))
			}
			return append(list, b.run("exec", "--detach", "box", "sh", "-c", "echo x >f"))
		}
		for _, a := range try() {
			a.exits(0)
		}
		if err := os.Rename(ws, ws+".old"); err != nil {
			t.Fatal(err)
		}
		for _, a := range try() { // it is gone
			a.exits(125).hides("PROGRAM").complains("grant_replaced", strconv.Quote(ws))
		}
		b.mkdir("ws")
		for _, a := range try() { // another one is there
			a.exits(125).hides("PROGRAM").complains("grant_replaced", "hint: delete the sandbox")
		}
		absent(t, b.path("ws", "f"))
		if err := os.Remove(ws); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(ws+".old", ws); err != nil {
			t.Fatal(err)
		}
		for _, a := range try() {
			a.exits(0)
		}
		b.run("delete", "box").exits(0)
	})
}

// TestRunWithoutPolicy: the current directory is handed over only where that can be meant.
func TestRunWithoutPolicy(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		home := b.mkdir("homes", "u")
		project := b.mkdir("homes", "u", "project")
		env := []string{"HOME=" + home}
		a := b.call(call{env: env, dir: project}, "run", "echo", "ran").exits(0).prints("ran")
		same(t, "said of a project", "", a.stderr)
		b.call(call{env: env, dir: home}, "run", "echo", "ran").exits(0).complains("warning", "your home directory")
		b.call(call{env: env, dir: b.path("homes")}, "run", "echo", "ran").exits(0).complains("warning", "holds your home directory")
		for _, dir := range []string{"/", "/etc", "/usr", "/home", "/var", "/run"} {
			b.call(call{env: env, dir: dir}, "run", "echo", "ran").exits(125).hides("ran").complains(dir, "cannot be a workspace", "hint: ")
		}
	})
}
