package integration

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// redirection is something that a program does to what it may write, so that a later sandbox of its policy shows $HOME, or
// what the policy hides. In texts $W is the writable directory, $H a home directory that is not granted.
type redirection struct {
	name   string
	make   string // what is there at first, by a shell in $W
	policy object
	wreck  string // what the first program does
	look   string // what the second one looks at
	leaves string // a path that must be there still
	shows  bool   // done outside it has the next sandbox show what is hidden; else the policy is refused
}

func redirections() []redirection {
	write := func(more object) object {
		files := object{"write": []string{"$W"}}
		maps.Copy(files, more)
		return object{"files": files}
	}
	return []redirection{
		{name: "a bind", make: "mkdir c", wreck: "rm -rf $W/c; ln -s $H $W/c", look: "/cache", leaves: "$W/c", policy: object{
			"workspace": object{"source": "$W"}, "bind": []object{{"source": "$W/c", "target": "/cache", "writable": true}},
		}},
		{name: "a directory above a bind", make: "mkdir -p c/d", wreck: "mv $W/c $W/x; ln -s $H $W/c", look: "/cache", leaves: "$W/c/d", policy: object{
			"workspace": object{"source": "$W", "path": "/w"}, "bind": []object{{"source": "$W/c/d", "target": "/cache"}},
		}},
		{name: "a file", make: "echo x > f", wreck: "rm $W/f; ln -s $H/key $W/f", look: "/etc/f", leaves: "$W/f", policy: object{
			"workspace": object{"source": "$W"}, "bind": []object{{"source": "$W/f", "target": "/etc/f"}},
		}},
		{name: "a read grant", make: "mkdir -p a/b", wreck: "mv $W/a $W/x; mkdir $W/a; ln -s $H $W/a/b", look: "$H", leaves: "$W/a/b", policy: write(object{"read": []string{"$W/a/b"}})},
		{name: "a write grant", make: "mkdir -p a/b", wreck: "rm -r $W/a/b; ln -s $H $W/a/b", look: "$H", policy: object{"files": object{"write": []string{"$W", "$W/a/b"}}}},
		{name: "a chain of links", make: "mkdir a; ln -s $W/a $W.link", wreck: "rm -rf $W/a; ln -s $H $W/a", look: "/cache", policy: object{
			"workspace": object{"source": "$W"}, "bind": []object{{"source": "$W.link", "target": "/cache"}},
		}},
		{name: "by another name of the directory", make: "mkdir a", wreck: "cd /other || cd $W; rm -rf a; ln -s $H a", look: "/cache", leaves: "$W/a", policy: object{
			"bind": []object{{"source": "$W", "target": "/other", "writable": true}, {"source": "$W/a", "target": "/cache"}},
		}},
		{name: "a root file system", make: "mkdir -p r/usr r/bin", wreck: "rm -r $W/r; ln -s $H $W/r", look: "/", policy: object{"files": object{"write": []string{"$W"}, "base": object{"rootfs": "$W/r"}}}},
		{name: "a target", make: "mkdir a x; echo THE-KEY > x/key", wreck: "rmdir $W/a; ln -s /usr $W/a", look: "$W/x", policy: write(object{"tmpfs": []object{{"path": "$W/x"}, {"path": "$W/a"}}}), leaves: "$W/a"},
		{name: "the directory above a tmpfs", shows: true, make: "mkdir -p a/t; echo THE-KEY > a/t/key", wreck: "mv $W/a $W/x; mkdir -p $W/a/t", look: "$W/x", leaves: "$W/a/t/key", policy: write(object{"tmpfs": []object{{"path": "$W/a/t"}}})},
		{name: "the directory above a carve-out above a deny", make: "mkdir -p a/b/c; echo THE-KEY > a/b/c/key", wreck: "mv $W/a $W/x", look: "$W/x", leaves: "$W/a/b/c/key", policy: write(object{
			"read": []string{"$W/a/b"}, "deny": []string{"$W/a/b/c/key"},
		})},
		{name: "the link of a deny", shows: true, make: "mkdir s .git; echo THE-KEY > s/key; ln -s ../s .git/hooks", wreck: "cd $W; rm .git/hooks; ln -s / .git/hooks; mv .git x; mkdir .git; ln -s / .git/hooks", look: "$W", leaves: "$W/.git/hooks", policy: write(object{
			"deny": []string{"$W/.git/hooks"},
		})},
		{name: "a link on the way of a deny", shows: true, make: "mkdir s t; echo THE-KEY > s/key; ln -s s l", wreck: "cd $W; rm l; ln -sfn t l; mv l x", look: "$W", leaves: "$W/l/key", policy: write(object{"deny": []string{"$W/l/key"}})},
	}
}

// TestRedirections: what a program does in its writable directory does not lead a later sandbox of its policy elsewhere. As a
// control the same is done without a sandbox, and the path then leads there.
func TestRedirections(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "the launcher follows links that a program has made, and directories can be moved from under what is mounted in them")
		for _, c := range redirections() {
			b.t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
				b := newBox(t)
				home, work := b.mkdir("home"), b.mkdir("work")
				b.file("home/key", "THE-KEY")
				words := strings.NewReplacer("$W", work, "$H", home)
				policy := words.Replace(b.read(b.policy(c.policy)))
				p := b.file("policy.json", policy)
				outside := func(script string) {
					t.Helper()
					cmd := exec.Command("sh", "-c", words.Replace(script))
					cmd.Dir = work
					out, err := cmd.CombinedOutput()
					t.Logf("outside: %q: %s%v", script, out, err)
				}
				outside(c.make)
				b.sh(p, words.Replace(c.wreck)+"; exit 0")
				if c.leaves != "" {
					if _, err := os.Lstat(words.Replace(c.leaves)); err != nil {
						t.Errorf("moved: %v", err)
					}
				}
				b.sh(p, words.Replace("grep -r THE-KEY "+c.look+" 2>/dev/null; echo x > "+c.look+"/written")).hides("THE-KEY")
				if _, err := os.Lstat(filepath.Join(home, "written")); err == nil {
					t.Error("it wrote there")
				}
				outside(c.wreck) // the control: it works without a sandbox
				a := b.sh(p, words.Replace("grep -r THE-KEY "+c.look+" 2>/dev/null"))
				if c.shows {
					a.prints("THE-KEY")
				} else {
					a.exits(125).hides("THE-KEY").complains("sandboxrun: ")
				}
			})
		}
	})
}

// TestRedirectedPolicyIsRefused says what to name instead.
func TestRedirectedPolicyIsRefused(t *testing.T) {
	flavours(t, func(b *box) {
		work, home := b.mkdir("work"), b.mkdir("home")
		b.link("work/l", home)
		for _, keys := range []object{
			{"files": object{"write": []string{work}, "read": []string{work + "/l"}}},
			{"files": object{"write": []string{work}, "base": object{"rootfs": work + "/l"}}},
			{"workspace": object{"source": work + "/l"}, "files": object{"write": []string{work}}},
			{"workspace": object{"source": work}, "bind": []object{{"source": work + "/l", "target": "/m"}}},
			{"workspace": object{"source": work}, "network": object{"ports": []string{"7000=unix:" + work + "/l/s"}}},
			{"workspace": object{"source": work}, "bind": []object{{"source": "/usr/share", "target": work + "/l/x"}}},
		} {
			b.run("run", "-p", b.policy(keys), "--", "true").exits(125).complains("policy_invalid", work+"/l", "symbolic link", "hint: ", home)
		}
	})
}

// TestPlantedLinks: at a denied name where nothing was a program leaves a link, and dies with its launcher. The next sandbox
// starts, and nobody reads anything by that name.
func TestPlantedLinks(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "a deny hides what its path leads to: the system, the workspace, the working directory")
		for _, to := range []string{
			"/", "..", ".", "/usr", "/bin/sh", "/lib64", "/etc", "/etc/passwd", "/proc/self", "/dev/null", ".env", "$W", "$W/sub", "$W/..", "$R", "$R/f", "/nowhere",
		} {
			b := newBox(b.t)
			work, read := b.mkdir("work"), b.mkdir("read")
			b.mkdir("work/sub")
			b.file("read/f", "shown")
			to = strings.NewReplacer("$W", work, "$R", read).Replace(to)
			b.link("work/.env", to)
			b.link("work/sub/deep", to)
			p := b.files(work+"/sub", object{"write": []string{work}, "read": []string{read}, "deny": []string{work + "/.env", work + "/sub/deep/er"}, "secrets": []string{work + "/.env"}})
			b.sh(p, "test -s /etc/passwd && pwd; cat "+work+"/.env; ls "+work+"/.env/; rm "+work+"/.env && echo removed; exit 0").
				exits(0).prints(work+"/sub").hides("removed", "shown", "root:")
			if b.t.Failed() {
				b.t.Fatalf("a link to %q", to)
			}
		}
	})
}

// TestSecondMounts: a directory that the host has mounted twice has two names. To hide one hides the other.
func TestSecondMounts(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "names are compared, and the second one does not tell what it shows")
		t := b.t
		b.file("data/secret/key", "THE-KEY")
		b.file("data/secret/sub/key", "THE-KEY")
		b.file("m4", "")
		flags := "-m"
		if w.uid != 0 {
			flags = "-Urm" // root of a user namespace may mount
		}
		script := "set -e; "
		for i, source := range []string{"data/secret", "data", "data/secret/sub", "data/secret/key"} {
			target := b.path("m" + string(rune('1'+i)))
			if i < 3 {
				b.mkdir(filepath.Base(target))
			}
			script += "mount --bind " + b.path(source) + " " + target + "; "
		}
		b.as = []string{"unshare", flags, "sh", "-c", script + `exec "$@"`, "sh"}
		need(t, "bind mounts", b.command(call{}, "version").Run() == nil)
		for _, m := range []string{"m1", "m2", "m3", "m4"} {
			look := "grep -rh THE-KEY " + b.path(m)
			b.sh(b.files("", object{"read": []string{b.path(m)}}), look).exits(0).prints("THE-KEY")
			b.sh(b.files("", object{"read": []string{b.path(m)}, "deny": []string{b.path("data/secret")}}), look+"; true").exits(0).hides("THE-KEY")
			b.sh(b.files("", object{"read": []string{b.path(m)}, "secrets": []string{b.path("data/secret")}}), look).exits(125).complains("grant_holds_secret")
			b.sh(b.files("", object{"read": []string{b.path(m)}, "deny": []string{b.path("data/secret")}, "secrets": []string{b.path("data/secret")}}), look+"; true").exits(0)
		}
		for m, left := range map[string]string{"m1": "", "m2/secret": "", "m3": b.path("data/secret/key"), "m4": b.path("data/secret/sub/key")} {
			a := b.sh(b.files("", object{"read": []string{b.path("data")}, "deny": []string{b.path(m)}}), "grep -rl THE-KEY "+b.path("data")+"; true").exits(0)
			same(t, "left when "+m+" is denied", left, strings.TrimSpace(a.stdout))
		}
	})
}

// TestHardLinksOfTheBase: a file of the system may have several names. To hide one hides all.
func TestHardLinksOfTheBase(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "only grants are searched for further names")
		find := `find /usr/bin /usr/sbin /usr/lib -xdev -type f -links +1 -perm -004 -printf '%i %p\n' 2>/dev/null | sort | awk '$1==i{print p, $2; exit}{i=$1;p=$2}'`
		out, err := exec.Command("sh", "-c", find).Output()
		names := strings.Fields(string(out))
		need(b.t, "hard links in /usr", err == nil && len(names) == 2)
		const look = `head -c1 "$1" >/dev/null 2>&1 && echo one; head -c1 "$2" >/dev/null 2>&1 && echo two; true`
		b.sh(b.files("", object{}), look, names...).exits(0).prints("one", "two")
		for _, base := range []any{"system", "host"} {
			b.sh(b.files("", object{"base": base, "deny": names[:1]}), look, names...).exits(0).hides("one", "two")
		}
		b.sh(b.files("", object{"secrets": names[:1]}), look, names...).exits(125).complains("grant_holds_secret")
	})
}

// TestRedirectedSocket: the program puts a link to another socket where a forwarded one was.
func TestRedirectedSocket(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		work := b.mkdir("work")
		serve := func(name, text string) {
			ln, err := net.Listen("unix", b.path(name))
			b.mustDo(err)
			b.t.Cleanup(func() { _ = ln.Close() })
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					_, _ = c.Write([]byte(text))
					_ = c.Close()
				}
			}()
		}
		serve("work/app.sock", "the app")
		serve("engine.sock", "THE-ENGINE")
		policy := b.policy(object{"workspace": object{"source": work, "path": "/w"}, "network": object{"ports": []string{"7000=unix:" + work + "/app.sock"}}})
		const ask = `import socket; print(socket.create_connection(("127.0.0.1", 7000), 3).recv(99))`
		b.python(policy, ask).exits(0).prints("the app")
		b.sh(policy, "rm /w/app.sock && ln -s "+b.path("engine.sock")+" /w/app.sock").exits(0)
		b.python(policy, ask).hides("THE-ENGINE").complains("symbolic link")
		same(b.t, "the link", b.path("engine.sock"), b.mustRead(work+"/app.sock"))
	})
}

// mustRead reads a link.
func (b *box) mustRead(link string) string {
	b.t.Helper()
	text, err := os.Readlink(link)
	b.mustDo(err)
	return text
}
