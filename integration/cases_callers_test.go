package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestGrantedDevice: a device that the policy grants can be used, or the policy is refused by its name.
func TestGrantedDevice(t *testing.T) {
	flavours(t, func(b *box) {
		const device = "/dev/fuse"
		_, err := os.Stat(device)
		need(b.t, "fuse", err == nil)
		for _, files := range []object{{"write": []string{device}}, {"read": []string{device}}} {
			b.sh(b.files("", files), "true").exits(125).complains(device)
		}
		for _, target := range []string{device, "/work/dev"} {
			p := b.policy(object{"bind": []object{{"source": device, "target": target, "writable": true}}})
			b.sh(p, "true").exits(125).complains(device)
		}
		b.sh(b.files("", object{"write": []string{"/dev/none-of-that"}}), "true").exits(125).complains("none-of-that")
	})
}

// TestTargetsBelowReadGrants: what the host does not have below a read grant is no mount point, and none is made there.
func TestTargetsBelowReadGrants(t *testing.T) {
	flavours(t, func(b *box) {
		ro, src := b.mkdir("ro"), b.mkdir("src")
		b.file("src/x", "DATA")
		bind := func(target string) []object { return []object{{"source": src, "target": target}} }
		for name, keys := range map[string]object{
			ro + "/new/deep":        {"files": object{"read": []string{ro}}, "bind": bind(ro + "/new/deep")},
			ro + "/scratch":         {"files": object{"read": []string{ro}, "tmpfs": []object{{"path": ro + "/scratch"}}}},
			"/usr/local/none/there": {"bind": bind("/usr/local/none/there")},
		} {
			a := b.sh(b.policy(keys), `echo DATA >"$1/x"; cat "$1/x"`, name)
			if a.status == 0 {
				a.prints("DATA")
			} else {
				a.exits(125).complains(name)
			}
		}
		left, _ := os.ReadDir(ro)
		same(b.t, "files in the grant", 0, len(left))
		if _, err := os.Lstat("/usr/local/none"); err == nil {
			b.t.Error("/usr/local/none was made")
		}
		b.sh(b.policy(object{"bind": bind("/no/such/place")}), "cat /no/such/place/x").exits(0).prints("DATA")
	})
}

// TestRootOfOneProgram: a root with one static program in it, and links, has all that a program expects, and stays as it is.
func TestRootOfOneProgram(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "cc")
		root := b.mkdir("root")
		b.mkdir("root/bin")
		source := b.file("p.c", `#include <stdio.h>
int main(int n, char **v) { for (int i = 1; i < n; i++) { FILE *f = fopen(v[i], i == 1 ? "w" : "r"); printf("%s=%s\n", v[i], f ? "ok" : "no"); } }
`)
		out, err := exec.Command("cc", "-static", "-o", b.path("root/bin/p"), source).CombinedOutput()
		need(t, "static libc", err == nil || !strings.Contains(string(out), "cannot find -lc"))
		b.mustDo(err)
		b.file("root/data/real", "x")
		b.link("root/data/absolute", "/data/real")
		b.link("root/bin/relative", "../data/real")
		before := namesIn(t, root)
		files := []string{"/tmp/made", "/data/absolute", "/bin/relative", "/proc/self/status", "/dev/null", "/dev/urandom", "/etc/hosts", "/etc/resolv.conf"}
		p := b.files("", object{"base": object{"rootfs": root}})
		a := b.run(append([]string{"run", "-p", p, "--", "/bin/p"}, files...)...).exits(0)
		a.prints(strings.Join(files, "=ok\n") + "=ok\n")
		same(t, "the root", before, namesIn(t, root))
		b.link("root/etc/resolv.conf", "/run/nowhere/resolv.conf")
		b.run("run", "-p", p, "--", "/bin/p", "/tmp/made", "/etc/resolv.conf").exits(0).prints("/etc/resolv.conf=ok")
	})
}

// namesIn is what a tree holds, by names.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		names = append(names, p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, "\n")
}

// TestDirectoryByALink: run without a policy, from a directory that the shell knows by a link.
func TestDirectoryByALink(t *testing.T) {
	flavours(t, func(b *box) {
		real := b.mkdir("real")
		b.file("real/f", "found\n")
		link := b.link("link", real)
		a := b.call(call{wrap: []string{"sh", "-c", `cd "$0" && exec "$@"`, link}}, "run", "--", "sh", "-c",
			`[ "$(pwd)" = "$PWD" ] && cat f "$1/f" "$2/f" && echo made >made`, "sh", link, real).exits(0)
		same(b.t, "output", strings.Repeat("found\n", 3), a.stdout)
		same(b.t, "what was written", "made\n", b.read(real+"/made"))
	})
}

// TestCallersWithCapabilities: what an unprivileged caller was given by its service manager does no harm, and does not get inside.
func TestCallersWithCapabilities(t *testing.T) {
	needRoot(t)
	need(t, "testuser", w.other != nil)
	b := newBox(t)
	uid, _ := strconv.Atoi(w.other.Uid)
	gid, _ := strconv.Atoi(w.other.Gid)
	b.become(uid, gid)
	as := b.as[:len(b.as)-1] // without --
	for _, more := range []string{
		"--inh-caps +net_raw --ambient-caps +net_raw", "--nnp --inh-caps +net_admin,+sys_nice --ambient-caps +net_admin,+sys_nice",
		"--securebits +noroot,+noroot_locked", "--bounding-set -all",
	} {
		b.as = append(slices.Clip(as), strings.Fields(more)...)
		a := b.run("run", "-p", b.files("", object{}), "--", "grep", "^Cap", "/proc/self/status")
		if a.status != 0 || strings.Count(a.stdout, "\t0000000000000000\n") != 5 {
			t.Errorf("%s: %v", more, a)
		}
	}
}

// TestSSHConfiguration: ssh refuses configuration that does not seem to be root's, which is another id inside.
func TestSSHConfiguration(t *testing.T) {
	needRoot(t)
	needProgram(t, "ssh")
	b := newBox(t)
	b.mkdir("ssh")
	b.file("ssh/ssh_config", "Include /etc/ssh/ssh_config.d/*.conf\n")
	b.file("ssh/ssh_config.d/more.conf", "Host other\n")
	mount := []string{"unshare", "-m", "--propagation", "private", "sh", "-c", `mount --bind "$0" /etc/ssh && exec "$@"`, b.path("ssh")}
	for _, base := range []string{"system", "host"} {
		p := b.policy(object{"files": object{"base": base}, "network": object{"mode": "allowlist", "allowed_hosts": []string{"example.test:22"}}})
		b.call(call{wrap: mount}, "run", "-p", p, "--", "ssh", "-G", "example.test").exits(0).prints("hostname example.test")
	}
}

// TestRootInAChroot hears that this is the reason: the kernel makes no user namespace there.
func TestRootInAChroot(t *testing.T) {
	needRoot(t)
	b := newBox(t)
	root := b.mkdir("root")
	wrap := []string{"unshare", "-m", "--propagation", "private", "sh", "-c", `mount --rbind / "$0" && exec chroot "$0" "$@"`, root}
	b.call(call{wrap: wrap}, "run", "-p", b.files("", object{}), "--", "echo", "ran").exits(125).hides("ran").complains("chroot")
}

// TestDataBases: several sandboxes write one file at the same time, with the locks of SQLite's log; a lock of a program's is one outside too.
func TestDataBases(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		ws := b.mkdir("ws")
		p := b.files(ws, object{"write": []string{ws}})
		b.python(p, `import sqlite3
c = sqlite3.connect("a.db"); c.execute("pragma journal_mode=wal"); c.execute("create table t(x)"); c.commit()`).exits(0)
		const insert = `import sqlite3
c = sqlite3.connect("a.db", timeout=30)
for i in range(20):
    with c: c.execute("insert into t values(1)")`
		for _, a := range b.together(3, func(int) *answer { return b.python(p, insert) }) {
			a.exits(0)
		}
		b.python(p, `import sqlite3; print(*sqlite3.connect("a.db").execute("select count(*), (select * from pragma_integrity_check) from t").fetchone())`).exits(0).prints("60 ok")
		needProgram(t, "flock")
		holder := b.command(call{}, "run", "-p", p, "--", "flock", "lock", "sh", "-c", "touch held; sleep 60")
		b.mustDo(holder.Start())
		eventually(t, "the lock is held", func() bool { _, err := os.Stat(ws + "/held"); return err == nil })
		if exec.Command("flock", "-n", ws+"/lock", "true").Run() == nil {
			t.Error("a lock that is held inside can be had outside")
		}
		b.mustDo(holder.Process.Signal(os.Interrupt))
		_ = holder.Wait()
	})
}

// TestNodeCluster: node's workers share the sockets of their parent, which passes them by a Unix socket. They end when all have answered: a
// worker that ends first takes connections along that it has been given, outside too.
func TestNodeCluster(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "node")
		b.run("run", "-p", b.files("", object{}), "--timeout", "50s", "--", "node", "-e", `
const c = require("cluster"), http = require("http"), n = 3
c.setupPrimary({exec: "/tmp/worker.js", execArgv: []})
require("fs").writeFileSync("/tmp/worker.js", "const http = require('http'); process.on('message', () => process.exit(0));" +
  "http.createServer((q, r) => r.end('x')).listen(8123, '127.0.0.1', () => http.get('http://127.0.0.1:8123', r => { r.resume(); r.on('end', () => process.send(1)) }))")
let answers = 0, ends = 0
for (let i = 0; i < n; i++) c.fork().on("message", () => { if (++answers == n) for (const w of Object.values(c.workers)) w.send(0) })
c.on("exit", (w, status) => { if (status != 0) process.exit(1); if (++ends == n) console.log("all have answered") })`).exits(0).prints("all have answered")
	})
}
