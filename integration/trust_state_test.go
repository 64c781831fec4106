package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// attackState is what a program does to a state directory at $1, in the writable grant $2. It prints what it could see.
const attackState = `cat "$2/beside" || exit 9
ls "$1"; cat "$1"/*/state.json "$1/.base/dev/null" "$1"/../"${1##*/}"/*/init
rm -rf "$1"; rmdir "$1"; mkdir "$1/evil" "$1"; chmod 777 "$1"; touch "$1/evil"; ln -s /etc "$1/evil"; ln -sfn /etc "$1"
mv "$1" "$2/moved"; mv "${1%/*}" "$2/above"; mkdir "$2/new"; mv -T "$2/new" "$1"; mv -f --exchange "$2/new" "$1"; rmdir "$2/new"
ln "$1/kept/lock" "$2/hardlink"; exit 0`

// TestStateIsHidden: below a grant a state directory is hidden, under whatever name: the command's own, and that of a sandbox that
// runs with another root. The control is what lies beside it.
func TestStateIsHidden(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.file("around/beside", "beside")
		state, other := b.path("around", "deep", "state"), b.path("around", "deep", "other")
		b.mustDo(os.MkdirAll(state, 0o700), os.MkdirAll(other, 0o700))
		b.run("--root", other, "create", "--policy", b.policy(object{}), "--owner", "none", "theirs").exits(0)
		t.Cleanup(func() { b.run("--root", other, "delete", "theirs").exits(0) })
		around := b.path("around")
		grants := map[string]object{
			"writable": {"files": object{"write": []string{around}}},
			"readable": {"files": object{"read": []string{around}}},
			"a bind":   {"bind": []object{{"source": around, "target": "/b", "writable": true}}},
			"two":      {"bind": []object{{"source": around, "target": "/b", "writable": true}}, "files": object{"read": []string{around}}},
			"the base": {"files": object{"base": "host", "read": []string{around}}},
		}
		ways := map[string]call{"plain": {}, "Go's": {env: []string{longWay}}}
		for name, policy := range grants {
			t.Log(name)
			b.run("--root", state, "create", "--policy", b.policy(policy), "--owner", "none", "kept").exits(0)
			for _, at := range []string{"/b", around} {
				for _, c := range ways {
					if b.call(c, "--root", state, "exec", "kept", "cat", at+"/beside").status != 0 {
						continue
					}
					for _, s := range []string{"/deep/state", "/deep/other"} {
						a := b.call(c, "--root", state, "exec", "kept", "sh", "-c", attackState, "sh", at+s, at)
						if a.status != 0 || a.stdout != "beside" {
							t.Errorf("%s, %s: %v", name, at+s, a)
						}
						same(t, name, "beside deep", names(around))
						same(t, name, "other state", names(filepath.Join(around, "deep")))
						same(t, name, ".base .lock kept", names(state))
						same(t, name, ".base .lock theirs", names(other))
					}
				}
			}
			b.run("--root", state, "exec", "kept", "true").exits(0)
			b.run("--root", other, "exec", "theirs", "true").exits(0)
			b.run("--root", state, "delete", "kept").exits(0)
		}
		b.run("--root", state, "explain", "--policy", b.policy(grants["writable"]), state).prints("a state directory of sandboxrun")
	})
}

// names lists a directory.
func names(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

// TestStateIsHiddenByMounts: a second mount of what a state directory lies in, or of a part of it, shows it no more.
func TestStateIsHiddenByMounts(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		if w.uid != 0 {
			t.Skip("only root can mount")
		}
		b.file("around/beside", "beside")
		state := b.path("around", "state")
		b.mustDo(os.MkdirAll(filepath.Join(state, ".part"), 0o700))
		b.file("around/state/.part/f", "hidden")
		mount := func(source, target string) {
			b.mustDo(syscall.Mount(source, target, "", syscall.MS_BIND, ""))
			t.Cleanup(func() { _ = syscall.Unmount(target, syscall.MNT_DETACH) })
		}
		alias, above := b.mkdir("alias"), b.path("above")
		mount(state, alias)
		mount(b.path("around"), b.mkdir("above", "all"))
		mount(state, b.mkdir("above", "state"))
		mount(filepath.Join(state, ".part"), b.mkdir("above", "part"))
		for _, how := range []string{"read", "write"} {
			b.run("--root", state, "run", "--policy", b.files("", object{how: []string{alias}}), "--", "true").exits(125).complains("grant_holds_trusted")
			b.run("--root", state, "run", "--policy", b.files("", object{how: []string{above}}), "--", "sh", "-c",
				`cat "$1/all/beside"; ls "$1/all/state" "$1/state" "$1/part" | grep .; cat "$1/part/f"; cd "$1"; mv state x; mv all x; mkdir part/y state/y all/state/y; exit 0`,
				"sh", above).exits(0).prints("beside").hides("hidden")
			for _, made := range []string{".part/y", "y"} {
				absent(t, filepath.Join(state, made))
			}
		}
	})
}

// TestForgedState: a program that makes a state directory of its own, where somebody outside has removed the one that was hidden,
// leads no command to it. The control is the same without the removal.
func TestForgedState(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		state := filepath.Join(ws, "deep", "state")
		policy, plain := b.files("", object{"write": []string{ws}}), b.policy(object{})
		for what, c := range map[string]struct{ remove, make string }{
			"a directory": {"deep/state", `mkdir -m 700 "$1" && ln -s / "$1/.base"`},
			"by a link":   {"deep", `mkdir -p "$2/mine" && mkdir -m 700 "$2/mine/state" && mkdir "$2/mine/state/.base" && ln -s mine "$2/deep"`},
		} {
			b.mkdir("ws", "deep")
			b.run("--root", state, "create", "--policy", policy, "--owner", "none", "attacker").exits(0)
			b.run("--root", state, "run", "--policy", policy, "--", "true").exits(0) // the control
			var of struct{ PID int }
			if err := json.Unmarshal([]byte(b.run("--root", state, "state", "attacker").exits(0).stdout), &of); err != nil || of.PID == 0 {
				t.Fatal(what, err)
			}
			cmd := b.command(call{}, "--root", state, "exec", "attacker", "sh", "-c",
				`echo ready; while [ -e "$2/`+c.remove+`" ]; do sleep 0.05; done; `+c.make+` && touch "$2/made"; sleep 60`, "sh", state, ws)
			out := &lockedBuffer{}
			cmd.Stdout = out
			b.mustDo(cmd.Start())
			eventually(t, "the program runs", func() bool { return strings.Contains(out.String(), "ready") })
			// The exec's launcher may just be writing an event there.
			eventually(t, "it is removed", func() bool { return os.RemoveAll(filepath.Join(ws, c.remove)) == nil })
			made := filepath.Join(ws, "made")
			eventually(t, "the program makes its own state directory", func() bool { _, err := os.Lstat(made); return err == nil })
			for _, args := range [][]string{{"run", "--policy", plain, "--", "true"}, {"create", "--policy", plain, "--owner", "none", "next"}} {
				b.run(append([]string{"--root", state}, args...)...).exits(125).complains("state_exposed", "kill -KILL "+strconv.Itoa(of.PID))
			}
			b.run("run", "--policy", policy, "--", "true").exits(0) // with the state elsewhere
			b.mustDo(syscall.Kill(of.PID, syscall.SIGKILL))
			_ = cmd.Wait()
			for _, left := range []string{"deep", "mine", "made"} {
				b.mustDo(os.RemoveAll(filepath.Join(ws, left)))
			}
			b.mkdir("ws", "deep")
			b.run("--root", state, "run", "--policy", policy, "--", "true").exits(0)
		}
	})
}
