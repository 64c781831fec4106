package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree describes every entry of a directory, to compare it before and after.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) && p != dir {
			return nil // it has been described; what is in it cannot be
		} else if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		link, _ := os.Readlink(p)
		size := info.Size()
		if d.IsDir() {
			size = 0 // a matter of the file system
		}
		fmt.Fprintf(&b, "%q %v %d %q\n", rel, info.Mode(), size, link)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestNestedGrants: each grant keeps its own mode whatever is nested in what, and in whatever order a policy lists them.
func TestNestedGrants(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.path("base/project")
		b.file("base/project/src/a", "source")
		b.file("base/project/state/vendor/v", "vendored")
		b.file("base/project/state/vendor/open/o", "opened")
		b.file("base/project/state/secret/k", "KEY")
		b.file("base/project/state/secret/deep/er/k", "KEY")
		b.file("base/other/o", "other")
		b.mkdir("base/project/cache")
		lists := object{
			"read": []string{p, p + "/state/vendor"}, "write": []string{p + "/state", p + "/state/vendor/open"},
			"deny":  []string{p + "/state/secret", b.path("base/other")},
			"tmpfs": []object{{"path": p + "/cache"}, {"path": "/tmp"}},
		}
		script := `cd "$1"; try() { { echo new >"$1"; } 2>/dev/null && echo "wrote $1" || echo "kept $1"; }
			try state/f; try src/a; try src/new; try state/vendor/v; try state/vendor/open/n; try cache/t; try new
			cat src/a state/vendor/v state/vendor/open/o state/secret/k state/secret/deep/er/k 2>/dev/null
			ls "$1/.." /tmp; echo end`
		for round := range 4 {
			for key, list := range lists {
				if l, ok := list.([]string); ok {
					rand.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
					lists[key] = l
				} else {
					slices.Reverse(list.([]object))
				}
			}
			a := b.sh(b.files(p+"/state", lists), script, p).exits(0)
			a.prints("source", "vendored", "opened", "end",
				"wrote state/f", "wrote state/vendor/open/n", "wrote cache/t", "kept src/a", "kept src/new", "kept state/vendor/v", "kept new\n")
			a.hides("KEY", "other\n")
			same(t, fmt.Sprintf("round %d: written", round), "new\n", b.read(p+"/state/f"))
			same(t, "a read-only file in a writable grant", "vendored", b.read(p+"/state/vendor/v"))
			absent(t, p+"/src/new")
			absent(t, p+"/cache/t")
			_ = os.Remove(p + "/state/f")
		}
	})
}

// TestLinks: a grant or a deny that is named through links of any shape means what they lead to.
func TestLinks(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		b.file("dot/bashrc", "orig")
		b.file("real/f", "granted by link")
		b.file("ws/hooks/pre", "orig")
		b.file("ws/plain", "orig")
		shapes := map[string]string{ // link → target, of what is denied
			"ws/absolute":   b.path("dot/bashrc"),
			"ws/relative":   "../dot/bashrc",
			"ws/chain":      "absolute",
			"ws/.git/hooks": "../hooks",
			"ws/updown":     "../ws/./hooks/../plain",
			"ws/dangling":   "/nonexistent/place/.env",
		}
		var deny []string
		for link, target := range shapes {
			deny = append(deny, b.link(link, target))
		}
		b.link("one", "two")
		b.link("two", b.path("three"))
		b.link("three", "real")
		a := b.sh(b.files(ws, object{"write": []string{ws}, "read": []string{b.path("one")}, "deny": deny}),
			`for f in absolute relative chain .git/hooks/pre hooks/pre updown plain dangling; do { echo evil >$f; } 2>/dev/null; cat $f 2>/dev/null; done
			cat "$1/f"; echo ok >ok; ls -l dangling`, b.path("one")).exits(0)
		a.prints("granted by link", "---------- ").hides("orig", "/nonexistent/place/.env") // the link itself is masked
		if text, err := os.Readlink(b.path("ws/dangling")); err != nil || text != "/nonexistent/place/.env" {
			t.Errorf("outside the link leads to %q: %v", text, err)
		}
		for _, f := range []string{"dot/bashrc", "ws/hooks/pre", "ws/plain"} {
			same(t, f, "orig", b.read(b.path(f)))
		}
		same(t, "the rest of the workspace", "ok\n", b.read(ws+"/ok"))
		for link, target := range shapes {
			got, _ := os.Readlink(b.path(link))
			same(t, link+" is still a link", target, got)
		}

		// An interpreter that is found through a version alias, as venvs do.
		b.file("py/cpython-3.12.5/bin/python3", "#!/bin/sh\nexec echo interpreted\n")
		if err := os.Chmod(b.path("py/cpython-3.12.5/bin/python3"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.link("py/cpython-3.12", "cpython-3.12.5")
		b.link("venv/bin/python", b.path("py/cpython-3.12/bin/python3"))
		b.run("run", "-p", b.files("", object{"read": []string{b.path("venv"), b.path("py/cpython-3.12")}}), "--",
			b.path("venv/bin/python")).exits(0).prints("interpreted")
	})
}

// TestDenyOfNothing: a deny of what does not exist leaves no trace on the host or inside, and still holds.
func TestDenyOfNothing(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "git")
		ws := b.mkdir("ws")
		b.file("ws/a", "1")
		b.file("ws/afile", "file")
		setup := b.sh(b.files(ws, object{"write": []string{ws}}),
			`git init -q . && git add -A && git -c user.name=n -c user.email=e@x commit -qm m`).exits(0)
		setup.complains("")
		before := tree(t, ws)
		deny := []string{ws + "/.env", ws + "/.git/config.worktree", ws + "/no/such/parent/.aws", ws + "/afile/hooks", b.path("nope/deep/.ssh")}
		policy := b.files(ws, object{"write": []string{ws}, "deny": deny})
		a := b.sh(policy, `git status --porcelain; ls -A; cat .env`).exits(1)
		a.complains("No such file").hides(".env\n", "??", "no\n")
		same(t, "the workspace after looking", before, tree(t, ws))

		b.sh(policy, `echo KEY >.env; mkdir -p no/such/parent && echo KEY >no/such/parent/.aws; echo KEY >.git/config.worktree; exit 0`)
		for _, d := range deny {
			absent(t, d)
		}
		absent(t, b.path("nope"))

		// One that appears while the sandbox is there, made by somebody outside, is hidden at the next exec.
		b.create("box", policy)
		b.file("ws/.env", "KEY")
		b.run("exec", "box", "--", "sh", "-c", "cat .env; echo CHANGED >.env; exit 0").hides("KEY")
		same(t, "the file that appeared", "KEY", b.read(ws+"/.env"))
	})
}

// TestSingleFile: one writable file without its directory: writes land, a rename over it fails and loses nothing.
func TestSingleFile(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		f := b.file("cfg/app.json", "old")
		b.create("box", b.policy(object{"bind": []object{{"source": f, "target": "/w/app.json", "writable": true}}}))
		b.run("exec", "box", "--", "sh", "-c", "printf changed >/w/app.json").exits(0)
		same(t, "written in place", "changed", b.read(f))
		for _, how := range []string{
			"echo half >/tmp/t && mv -f /tmp/t /w/app.json", "rm -f /w/app.json", "echo half >/w/app.json.tmp && mv /w/app.json.tmp /w/app.json",
			"ln -f /etc/hosts /w/app.json",
		} {
			if r := b.result("box", "sh", "-c", how); r.ExitCode == 0 {
				t.Errorf("%s reports success", how)
			}
		}
		same(t, "after renames that failed", "changed", b.read(f))
		same(t, "beside it", 1, len(strings.Split(strings.TrimSpace(tree(t, b.path("cfg"))), "\n"))-1)
		if err := os.Rename(b.file("cfg/new", "whole"), f); err != nil {
			t.Fatal(err)
		}
		if got := b.result("box", "cat", "/w/app.json").Stdout; got != "changed" && got != "whole" {
			t.Errorf("after a rename on the host the file reads %q", got)
		}
	})
}

// TestOddNames: no character of a name means anything.
func TestOddNames(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		names := []string{
			"a b", "new\nline", "uni-é-日本", "-dash", "co:lon", "com,ma=x", `qu'o"te`, "star*[x]?", `back\slash`, "#hash", "$HOME", "trail ",
			"~", "..dots", "%s", "{a,b}", ";rm", "tab\t", "\x7f", strings.Repeat("n", 255), strings.Repeat("é", 127),
		}
		var write, deny []string
		for _, n := range names {
			write = append(write, b.mkdir("odd", n))
			deny = append(deny, b.file(filepath.Join("odd", n, "deny"), "KEY"))
		}
		p := b.files(write[1], object{"write": write, "deny": deny})
		a := b.sh(p, `pwd; for d in "$@"; do echo 1 >"$d/w"; cat "$d/deny" 2>/dev/null; done; exit 0`, write...).exits(0)
		a.prints(write[1]).hides("KEY")
		for _, d := range write {
			same(t, fmt.Sprintf("%q", d), "1\n", b.read(d+"/w"))
		}
		entries, _ := os.ReadDir(b.path("odd"))
		same(t, "directories", len(names), len(entries))
	})
}

// TestLargePolicy: thousands of rules, and arguments up to what the kernel takes.
func TestLargePolicy(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws, deny := b.mkdir("ws"), []string{}
		for i := range 2000 {
			deny = append(deny, b.file(fmt.Sprintf("ws/f%d", i), "KEY"))
		}
		b.file("ws/open", "seen")
		p := b.files(ws, object{"write": []string{ws}, "deny": deny})
		a := b.sh(p, `cat f* open 2>/dev/null; exit 0`).exits(0).prints("seen").hides("KEY")
		if a.took.Seconds() > 20 {
			t.Errorf("2000 denies took %v", a.took)
		}
		big := strings.Repeat("a", 120_000)
		args := slices.Repeat([]string{big}, 10)
		b.sh(b.files(ws, object{"write": []string{ws}}), `echo ${#1} $# ${#10}`, args...).exits(0).prints("120000 10 120000")
		// Arguments and variables together beyond the kernel's limit: an error that says so.
		over := slices.Repeat([]string{strings.Repeat("b", 130_000)}, 15)
		set := object{}
		for i := range 10 {
			set[fmt.Sprintf("BIG%d", i)] = strings.Repeat("c", 60_000)
		}
		a = b.sh(b.policy(object{"env": object{"set": set}}), `echo $#`, over...)
		a.exits(125).complains("sandboxrun: arguments_too_long: ", "hint: ")
	})
}

// TestMissingPaths: what is missing is named, nothing runs, nothing is left, and it cannot be taken for the program's error.
func TestMissingPaths(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		gone := b.path("no-such-thing")
		for what, p := range map[string]object{
			"read": {"files": object{"read": []string{gone}}}, "write": {"files": object{"write": []string{gone}}},
			"bind":      {"bind": []object{{"source": gone, "target": "/x"}}},
			"workspace": {"workspace": object{"source": gone}}, "rootfs": {"files": object{"base": object{"rootfs": gone}}},
			"workdir": {"workdir": gone}, "through a file": {"files": object{"read": []string{b.file("plain", "") + "/no-such-thing"}}},
		} {
			p := b.policy(p)
			b.sh(p, "touch "+ws+"/ran").exits(125).complains("sandboxrun: grant_missing: ", "no-such-thing").hides("goroutine")
			b.run("create", "-p", p, "box").exits(125)
			same(t, what+": sandboxes left", 0, len(b.ids()))
		}
		absent(t, ws+"/ran")
		p := b.files(ws, object{"write": []string{ws}})
		b.create("box", p)
		del := b.mkdir("del")
		wrap := []string{"sh", "-c", `cd "$0" && rmdir "$0" && exec "$@"`, del}
		b.call(call{wrap: wrap}, "run", "-p", p, "--", "pwd").exits(0).prints(ws)
		b.mkdir("del")
		b.call(call{wrap: wrap}, "exec", "box", "--", "pwd").exits(0).prints(ws)
	})
}

// TestLockedFlags: a grant from a file system whose flags a user namespace may not drop.
func TestLockedFlags(t *testing.T) {
	needRoot(t)
	needUserns(t)
	needProgram(t, "unshare")
	b := newBox(t)
	uid, gid := w.ids()
	b.mkdir("m")
	script := b.file("in.sh", `set -e
mount -t tmpfs -o "$FLAGS",mode=755 none m; mkdir m/w; echo data >m/f; printf '#!/bin/sh\necho RAN\n' >m/x; chmod 755 m/x
chown -R "$UIDGID" m; exec setpriv --reuid "${UIDGID%:*}" --regid "${UIDGID#*:}" --clear-groups env HOME=/ SANDBOXRUN_ROOT="$PWD/m/w/state" "$@"`)
	p := b.files(b.path("m/w"), object{"read": []string{b.path("m")}, "write": []string{b.path("m/w")}})
	for _, flags := range []string{"nosuid,nodev,noexec", "noexec", "nosuid,nodev", "nodev,noatime"} {
		for _, ids := range []string{fmt.Sprintf("%d:%d", uid, gid), "0:0"} {
			wrap := []string{"unshare", "-m", "--propagation", "private", "sh", script}
			a := b.call(call{wrap: wrap, env: []string{"FLAGS=" + flags, "UIDGID=" + ids}}, "run", "-p", p, "--", "sh", "-c",
				`cat ../f; { echo no >../g; } 2>/dev/null || echo refused; echo yes >g && echo wrote; ../x; grep " $1 " /proc/self/mountinfo; exit 0`, "sh", b.path("m"))
			a.exits(0).prints("data", "refused", "wrote")
			if strings.Contains(flags, "noexec") == strings.Contains(a.stdout, "RAN") {
				t.Errorf("%s as %s: %v", flags, ids, a)
			}
			for flag := range strings.SplitSeq(flags, ",") {
				a.prints(flag)
			}
		}
	}
}

// TestResolvConf: /etc/resolv.conf may be a link into /run, to something or to nothing.
func TestResolvConf(t *testing.T) {
	needRoot(t)
	needUserns(t)
	needProgram(t, "unshare")
	b := newBox(t)
	if err := os.CopyFS(b.path("etc"), os.DirFS("/etc/ssl/certs/..")); err != nil {
		t.Log(err) // dangling links in it do not matter here
	}
	b.mkdir("etc")
	script := b.file("in.sh", `set -e
mount -t tmpfs -o mode=755 none /run; rm -f etc/resolv.conf; ln -s "$LINK" etc/resolv.conf; mount --bind etc /etc
[ -z "$STUB" ] || { mkdir -p /run/stub; echo "nameserver 192.0.2.53" >/run/stub/resolv.conf; }; exec "$@"`)
	for _, link := range []string{"/run/stub/resolv.conf", "../run/stub/resolv.conf", "resolv.conf", "/run/stub"} {
		for _, stub := range []string{"", "yes"} {
			for _, mode := range []string{"isolated", "host"} {
				a := b.call(
					call{wrap: []string{"unshare", "-m", "--propagation", "private", "sh", script}, env: []string{"LINK=" + link, "STUB=" + stub}},
					"run", "-p", b.policy(object{"network": object{"mode": mode}}), "--", "sh", "-c", "echo START; cat /etc/resolv.conf; exit 0")
				a.exits(0).prints("START")
				if shown := strings.Contains(a.stdout, "192.0.2.53"); shown != (mode == "host" && stub != "" && strings.HasSuffix(link, "stub/resolv.conf")) {
					t.Errorf("link to %s, mode %s: %v", link, mode, a)
				}
			}
		}
	}
}
