package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTrustedLocations: no grant gives a program what the launcher believes, under whatever name. The control is the same grant of
// another directory.
func TestTrustedLocations(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		other := b.mkdir("other")
		b.mustDo(os.Chmod(other, 0o700))
		b.run("--root", other, "create", "--policy", b.policy(object{}), "--owner", "none", "theirs").exits(0)
		t.Cleanup(func() { b.run("--root", other, "delete", "theirs").exits(0) })
		b.run("list").exits(0) // makes the state directory
		theirs := b.mkdir("theirs")
		policy := b.file("theirs/deep/policy.toml", "version = 1\n")
		b.run("create", "--policy", policy, "--record", b.path("record"), "third").exits(0)
		b.sh(b.files("/", object{"write": []string{theirs}}), `cd "$1/deep"; echo evil >>policy.toml; rm -f policy.toml; mv ../deep ../moved; exit 0`, theirs).exits(0)
		same(t, "the policy of a sandbox that runs", "version = 1\n", b.read(policy))
		key := b.file("keys/key.pem", "")
		b.mkdir("elsewhere")
		b.mkdir("links")
		b.link("links/here", b.path("elsewhere"))
		for name, c := range map[string]struct {
			files object
			args  []string
			says  string
		}{
			"the state directory, to read":  {files: object{"read": []string{b.state}}, says: "holds the state directory"},
			"what is in it":                 {files: object{"read": []string{other + "/theirs"}}, says: "lies in a state directory in use"},
			"another one in use":            {files: object{"write": []string{other}}, says: "holds a state directory in use"},
			"one above a link on the way":   {files: object{"write": []string{b.path("links")}}, args: []string{"--root", b.path("links", "here", "s")}, says: "holds a symlink on the way"},
			"another's record":              {files: object{"write": []string{b.path("record")}}, says: "record directory"},
			"the record directory":          {files: object{"write": []string{b.mkdir("ws")}}, args: []string{"--record", b.path("ws", "record")}, says: "record directory"},
			"the output directory, to read": {files: object{"read": []string{b.mkdir("ws")}}, args: []string{"--output-dir", b.path("ws", "out")}, says: "output directory"},
		} {
			args := []string{"run", "--policy", b.policy(object{"files": c.files})}
			if slices.Contains(c.args, "--root") {
				args = append(c.args, args...)
			} else {
				args = append(args, c.args...)
			}
			args = append(args, "--", "true")
			a := b.run(args...).exits(125).complains(c.says)
			if !strings.Contains(a.stderr, "hint: ") {
				t.Errorf("%s: no hint: %v", name, a)
			}
		}
		absent(t, b.path("ws", "record"))
		same(t, "sandboxes left", 1, len(b.ids()))
		b.run("run", "--policy", b.policy(object{"files": object{"read": []string{filepath.Dir(key)}, "write": []string{b.mkdir("ws")}}}), "--", "true").exits(0)
	})
}

// TestPolicyInTheWorkspace: a policy in the directory that it grants, what it extends and their other hard links stay as they are,
// and so do their names.
func TestPolicyInTheWorkspace(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		b.file("ws/base.toml", "version = 1\n")
		policy := b.file("ws/conf/deep/policy.toml", "version = 1\nextends = \"../../base.toml\"\nworkspace = { source = \"../..\" }\n")
		b.mustDo(os.Link(policy, filepath.Join(ws, "link.toml")))
		before := tree(t, ws)
		const attack = `cd "$1"; touch control || exit 9
for f in base.toml link.toml conf/deep/policy.toml; do
	echo evil >>$f; rm -f $f; mv $f moved; echo evil >new; mv -f new $f; ln -sf /etc/passwd $f; chmod 0 $f
done
mv conf moved; mv conf/deep conf/moved; rm -rf conf; rm -f control new moved; exit 0 # mv may have copied`
		b.sh(policy, attack, ws).exits(0)
		same(t, "the workspace", before, tree(t, ws))
		// A link on the way could be changed, so it is not followed.
		link := b.link("ws/by-link.toml", b.file("elsewhere.toml", "version = 1\nworkspace = { source = \""+ws+"\" }\n"))
		b.run("run", "--policy", link, "--", "true").exits(125).complains("holds a symlink on the way to the policy")
	})
}

// TestPresetIsNoFile: a program cannot make a file that the next command takes for a preset.
func TestPresetIsNoFile(t *testing.T) {
	flavours(t, func(b *box) {
		b.file("ws/default", "version = 1\nfiles.read = [\""+b.mkdir("private")+"\"]\n")
		b.call(call{dir: b.path("ws")}, "run", "--policy", "default", "--", "ls", b.path("private")).exits(2)
		b.call(call{dir: b.path("ws")}, "run", "--policy", "./default", "--", "ls", b.path("private")).exits(0) // the control
	})
}

// TestStateIsBelieved: of a sandbox nothing is believed but what its process 1 holds. A state directory that was changed is an
// error, and never leads to another sandbox.
func TestStateIsBelieved(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		one, two := b.file("one/name", "one"), b.file("two/name", "OTHER")
		policy := func(name string) string {
			return b.policy(object{"bind": []object{{"source": name, "target": "/name"}}})
		}
		b.create("one", policy(one))
		b.create("two", policy(two))
		ways := map[string]call{"plain": {}, "Go's": {env: []string{longWay}}}
		at := func(id, name string) string { return filepath.Join(b.state, id, name) }
		put := func(name, content string) {
			t.Helper()
			b.mustDo(os.Chmod(at("one", name), 0o600), os.WriteFile(at("one", name), []byte(content), 0o600))
		}
		kept := map[string]string{"init": b.read(at("one", "init")), "state.json": b.read(at("one", "state.json"))}
		for way, c := range ways {
			b.call(c, "exec", "one", "cat", "/name").exits(0).prints("one")
			put("init", b.read(at("two", "init")))
			b.call(c, "exec", "one", "cat", "/name").hides("OTHER")
			put("init", kept["init"])
			for what, state := range map[string]string{
				"the other's":            b.read(at("two", "state.json")),
				"the other's, renamed":   strings.Replace(b.read(at("two", "state.json")), `"id":"two"`, `"id":"one"`, 1),
				"with another umask":     strings.Replace(kept["state.json"], `"umask":18`, `"umask":0`, 1),
				"with another namespace": strings.Replace(kept["state.json"], `"namespaces":`, `"namespaces":1`, 1),
				"nothing":                "",
			} {
				put("state.json", state)
				put("init", b.read(at("two", "init")))
				a := b.call(c, "exec", "one", "cat", "/name").hides("OTHER").exits(125)
				if !strings.Contains(a.stderr, "state_changed") {
					t.Errorf("%s, state %s: %v", way, what, a)
				}
				for _, command := range []string{"ps", "state", "stats", "events", "kill"} {
					b.run(command, "one").exits(125).complains("state_changed")
				}
				b.run("list").exits(0).prints("changed")
			}
			put("state.json", kept["state.json"])
			put("init", kept["init"])
			b.call(c, "exec", "one", "cat", "/name").exits(0).prints("one")
		}
		b.mustDo(os.Link(at("one", "state.json"), b.path("link")))
		b.call(ways["Go's"], "exec", "one", "true").exits(125).complains("state_changed")
		b.mustDo(os.Remove(b.path("link")), os.Rename(filepath.Join(b.state, "two"), filepath.Join(b.state, "three")))
		b.exec("three", "true").exits(125)
		b.mustDo(os.Rename(filepath.Join(b.state, "three"), filepath.Join(b.state, "two")))
		// It can be deleted all the same.
		put("state.json", "{}")
		b.run("delete", "one").exits(0)
		same(t, "sandboxes", "two", strings.Join(b.ids(), " "))
	})
}

// TestDeadStateIsRemoved: what is left of a sandbox whose state cannot be read keeps no other from starting.
func TestDeadStateIsRemoved(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		policy := b.policy(object{})
		for name, state := range map[string]string{"another version": `{"version":1,"id":"old"}`, "garbage": "{", "nothing": ""} {
			b.file("state/old/lock", "")
			b.file("state/old/state.json", state)
			b.mustDo(os.Chmod(b.state, 0o700), os.Chmod(filepath.Join(b.state, "old"), 0o700))
			b.run("run", "--policy", policy, "--", "echo", name).exits(0).prints(name).complains("record of sandbox")
			same(t, name, 0, len(b.ids()))
		}
	})
}
