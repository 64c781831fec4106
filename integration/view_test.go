package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/record"
)

// everyWay looks in each process that /proc shows for a file of a view, by all that leads into another one's files, and for its name among the
// mounts. It prints what it finds.
const everyWay = `
import os, stat, sys
name, words = sys.argv[1], [w[::-1] for w in sys.argv[2:]] # its own command line has them backwards
def look(path):
    try:
        if not stat.S_ISREG(os.stat(path).st_mode): return # a pipe would make us wait
        with open(path, errors="replace") as f: text = f.read(1 << 20)
    except OSError: return
    for w in words:
        if w in text: print("found", w, "in", path)
for pid in os.listdir("/proc"):
    if not pid.isdigit(): continue
    p = "/proc/" + pid
    for f in "mountinfo", "mounts", "mountstats", "maps", "environ", "cmdline": look(p + "/" + f)
    ways = [p + "/root" + name, p + "/cwd/" + name, p + "/cwd", p + "/exe"]
    for d in "fd", "map_files", "task/" + pid + "/fd":
        try: ways += [p + "/" + d + "/" + n for n in os.listdir(p + "/" + d)]
        except OSError: pass
    for way in ways:
        look(way)
        try:
            if os.readlink(way).startswith(name): print("found", way)
        except OSError: pass
for d in "/", "/opt", "/tmp", "/w", os.path.dirname(name):
    try: entries = os.listdir(d)
    except OSError: continue
    for e in entries:
        if e.startswith("vi" + "ew-"): print("found", d + "/" + e)
print("looked")
`

// viewBox has a sandbox with the workspace w at /w and the view "judge".
func viewBox(b *box) {
	b.mkdir("w/dir")
	b.file("w/hint", "THE-HINT")
	b.file("tests/view-cases", "THE-CASES")
	b.file("tests/run.sh", "#!/bin/sh\necho ran $0\n")
	b.file("tests/golden", "THE-GOLDEN")
	b.file("judge.py", "THE-JUDGE")
	b.mustDo(os.Chmod(b.path("tests/run.sh"), 0o755), os.Link(b.path("tests/golden"), b.path("tests/linked")))
	b.create("box", b.policy(object{
		"workspace": object{"source": b.path("w"), "path": "/w"},
		"files":     object{"deny": []string{b.path("tests/golden")}},
		"views": object{"judge": object{
			"read": []string{b.path("tests")}, "bind": []object{{"source": b.path("judge.py"), "target": "/opt/view-judge/judge.py"}},
			"deny": []string{b.path("w/hint")},
		}},
	}))
}

func TestViews(t *testing.T) {
	flavours(t, func(b *box) {
		viewBox(b)
		cases := b.path("tests/view-cases")
		all := "cat " + cases + " /opt/view-judge/judge.py; cat /w/hint"
		b.run("exec", "--view", "judge", "box", "--", "sh", "-c", all).prints("THE-CASES", "THE-JUDGE").hides("THE-HINT").complains("/w/hint: Permission denied")
		b.run("exec", "box", "--", "sh", "-c", all).prints("THE-HINT").hides("THE-CASES", "THE-JUDGE")

		// What the policy denies stays hidden in what the view shows, under every name; and nothing of it can be written.
		b.run("exec", "--view", "judge", "box", "--", "sh", "-c", "cd "+b.path("tests")+"; cat golden linked; echo x >view-cases; touch /opt/x").exits(1).
			hides("THE-GOLDEN").complains("golden: Permission denied", "linked: Permission denied", "Read-only file system")
		same(t, "the cases", "THE-CASES", b.read(cases))

		// One exec's alone, without a policy's view; a program that only it has, by path and by name; its files come out.
		b.run("exec", "--read", b.path("tests"), "box", b.path("tests/run.sh")).exits(0).prints("ran")
		b.run("exec", "--bind", b.path("tests")+":/opt/t", "--env", "PATH=/opt/t", "box", "run.sh").exits(0).prints("ran /opt/t/run.sh")
		b.run("exec", "--deny", b.path("w/hint"), "box", "cat", "/w/hint").exits(1).hides("THE-HINT")
		b.run("exec", "--deny", b.path("w/dir"), "box", "ls", "/w/dir").exits(2).complains("Permission denied")
		r := b.carried("--bind", b.path("judge.py")+":/w/hint", "--collect", "hint", "box", "true")
		if len(r.Collected) != 1 || r.Collected[0].Text != "THE-JUDGE" {
			t.Errorf("collected %+v", r.Collected)
		}
		// What the sandbox has below it stays: a mask, and another mount.
		b.run("exec", "--view", "judge", "--bind", b.path("w")+":/opt/w", "box", "cat", "/opt/w/hint", "/w/hint").exits(1).hides("THE-HINT")

		// It changes nothing for the execs after it, and makes nothing.
		b.run("exec", "box", "--", "python3", "-c", everyWay, cases, "SESAC-EHT", "EGDUJ-EHT", "egduj-weiv").exits(0).prints("looked").hides("found")
		for _, p := range []string{"w/hint", "w/dir"} {
			if _, err := os.Lstat(b.path(p)); err != nil {
				t.Error(err)
			}
		}
		if entries, err := os.ReadDir(b.path("w")); err != nil || len(entries) != 2 {
			t.Errorf("%v, %v", entries, err)
		}
		b.run("run", "-p", b.policy(object{"views": object{"v": object{"read": []string{b.path("judge.py")}}}}), "--view", "v", "--", "cat", b.path("judge.py")).
			exits(0).prints("THE-JUDGE")
		b.run("delete", "box").exits(0)
	})
}

// TestViewsOfEmptyDenies: what the policy denies as empty reads as empty in every view, also what a view alone would show. An exec's own deny
// closes it. The control is a policy without the denies.
func TestViewsOfEmptyDenies(t *testing.T) {
	flavours(t, func(b *box) {
		b.file("in/gold", "THE-GOLD")
		b.file("in/dir/answer", "THE-ANSWER")
		b.file("tests/gold", "THE-GOLD")
		b.file("tests/dir/answer", "THE-ANSWER")
		b.file("tests/case", "THE-CASE")
		var denies []object
		for _, p := range []string{"in/gold", "in/dir", "tests/gold", "tests/dir"} {
			denies = append(denies, object{"path": b.path(p), "as": "empty"})
		}
		read := "cat " + b.path("tests/case") + "; cat " + b.path("in/gold") + " " + b.path("tests/gold") + "; ls -A " + b.path("in/dir") + " " + b.path("tests/dir")
		b.create("box", b.policy(object{"files": object{"read": []string{b.path("in")}, "deny": denies}}))
		b.run("exec", "--read", b.path("tests"), "box", "--", "sh", "-c", read).exits(0).prints("THE-CASE").hides("THE-GOLD", "answer\n")
		b.run("exec", "--deny", b.path("in/gold"), "--deny", b.path("in/dir"), "box", "--", "sh", "-c", "cat "+b.path("in/gold")+"; ls "+b.path("in/dir")).exits(2).
			complains("gold: Permission denied", "dir': Permission denied")
		b.run("delete", "box").exits(0)
		b.create("box", b.policy(object{"files": object{"read": []string{b.path("in")}}}))
		b.run("exec", "--read", b.path("tests"), "box", "--", "sh", "-c", read).exits(0).prints("THE-CASE", "THE-GOLDTHE-GOLD", "answer\n")
		b.run("delete", "box").exits(0)
	})
}

// TestViewsOfOthers: an exec that runs at the same time finds nothing of a view. The control is the exec with the view, which finds it.
func TestViewsOfOthers(t *testing.T) {
	flavours(t, func(b *box) {
		viewBox(b)
		cases := b.path("tests/view-cases")
		look := []string{"--", "python3", "-c", everyWay, cases, "SESAC-EHT", "EGDUJ-EHT", "egduj-weiv"}
		b.run(append([]string{"exec", "--view", "judge", "box"}, look...)...).exits(0).prints("found THE-CASES", "found view-judge in", "looked")
		a := b.run("exec", "--detach", "--view", "judge", "box", "--", "sh", "-c", "cd "+b.path("tests")+"; exec 9<view-cases; touch /w/ready; while test -e /w/ready; do sleep .05; done; cat view-cases").exits(0)
		name := strings.TrimSpace(a.stdout)
		b.run("exec", "box", "--", "sh", "-c", "until test -e /w/ready; do sleep .02; done").exits(0)
		b.run(append([]string{"exec", "box"}, look...)...).exits(0).prints("looked").hides("found")
		b.run(append([]string{"exec", "--read", b.path("judge.py"), "box"}, look...)...).exits(0).prints("looked").hides("found THE-CASES", "found view-")
		// What the other one does to its own view of the workspace takes nothing away either.
		b.run("exec", "box", "rm", "/w/ready").exits(0)
		if r := b.ended(name); r.Stdout != "THE-CASES" {
			t.Errorf("%+v", r)
		}
		b.run("delete", "box").exits(0)
	})
}

// TestViewsAreEnforced: what cannot be shown or hidden is refused by name, and nothing of it is made anywhere.
func TestViewsAreEnforced(t *testing.T) {
	flavours(t, func(b *box) {
		viewBox(b)
		b.mkdir("secret")
		judge := b.path("judge.py")
		b.run("exec", "--view", "none", "box", "true").exits(125).complains(`view_unknown: the policy has no view "none"`)
		b.run("exec", "--bind", judge+":/opt/j:rw", "box", "true").exits(125).complains("read-only")
		b.run("exec", "--read", b.path("none"), "box", "true").exits(125).complains("grant_missing", "none")
		b.run("exec", "--read", b.state, "box", "true").exits(125).complains("grant_holds_trusted")
		b.run("exec", "--bind", judge+":/proc/1/x", "box", "true").exits(125).complains("/proc is the sandbox's own")
		b.run("exec", "--bind", judge+":/w/dir", "box", "true").exits(125).complains("policy_invalid", "is not a directory, but what it would cover")
		b.run("exec", "--fresh", "/tmp", "--bind", judge+":/tmp/j", "box", "true").exits(125).complains("fresh_unusable")
		// A mount point that would have to be made in what programs write on the host.
		b.run("exec", "--bind", judge+":/w/new/judge.py", "box", "true").exits(125).complains("policy_invalid", "nothing is made there")
		if _, err := os.Lstat(b.path("w/new")); err == nil {
			t.Error("a mount point was made on the host")
		}
		// In memory it is made for this exec alone, which is said.
		a := b.run("exec", "--bind", judge+":/tmp/view-x/j", "box", "--", "sh", "-c", "cat /tmp/view-x/j; echo x >/tmp/own; echo x >/tmp/view-x/y").prints("THE-JUDGE")
		a.complains(`new files in "/tmp" itself are this exec's own`)
		b.run("exec", "box", "--", "sh", "-c", "ls -A /tmp; mkdir -p /tmp/d; echo kept >/tmp/d/f").exits(0).hides("own", "view-x")
		b.run("exec", "--bind", judge+":/tmp/view-x/j", "box", "--", "sh", "-c", "cat /tmp/d/f; echo more >>/tmp/d/f").prints("kept")
		b.run("exec", "box", "cat", "/tmp/d/f").prints("kept", "more")

		// Links that a program has made lead no mount anywhere.
		b.run("exec", "box", "--", "sh", "-c", "ln -s /usr/bin /w/bin; ln -s /etc/hostname /w/host; mv /w/hint /w/moved; ln -s "+b.path("secret")+" /w/s").exits(0)
		for _, target := range []string{"/w/bin/id", "/w/host", "/w/s/x"} {
			b.run("exec", "--bind", judge+":"+target, "box", "--", "sh", "-c", "cat /etc/hostname; id -u").exits(125).hides("THE-JUDGE")
		}
		b.run("exec", "--read", b.path("w/s"), "box", "true").exits(125).complains("a program may have made the link")
		// What was to be hidden is not there any more: that is said.
		b.run("exec", "--view", "judge", "box", "cat", "/w/moved").exits(0).complains("nothing is at", "that could be hidden")
		b.run("delete", "box").exits(0)

		secret := b.policy(object{"files": object{"secrets": []string{b.path("judge.py")}}})
		b.create("box", secret)
		b.run("exec", "--read", judge, "box", "true").exits(125).complains("grant_holds_secret")
		b.run("exec", "--bind", filepath.Dir(judge)+":/opt/all", "box", "true").exits(125).complains("grant_holds")
		b.run("delete", "box").exits(0)
		bad := b.policy(object{"views": object{"v": object{"read": []string{b.path("none")}}}})
		b.run("create", "-p", bad, "bad").exits(125).complains("grant_missing", "views.v.read")
	})
}

// TestViewsAreChecked: an exec whose view is not as it was decided does not run.
func TestViewsAreChecked(t *testing.T) {
	binary := sabotagedBinary(t)
	flavours(t, func(b *box) {
		product := w.binary
		w.binary = binary
		defer func() { w.binary = product }()
		viewBox(b)
		for _, c := range []struct{ layer, option, value, want string }{
			{"view mask", "--view", "judge", "is denied, and the program could open it"},
			{"view grant", "--bind", b.path("judge.py") + ":/opt/x", "is not the file that was to be shown"},
		} {
			a := b.call(call{env: []string{"SANDBOXRUN_SABOTAGE=" + c.layer}}, "exec", c.option, c.value, "box", "touch", "/w/ran")
			a.exits(125).complains("isolation_check_failed", c.want)
			if _, err := os.Lstat(b.path("w/ran")); err == nil {
				t.Error("the program ran")
			}
		}
		b.run("exec", "--view", "judge", "box", "touch", "/w/ran").exits(0)
		b.run("delete", "box").exits(0)
	})
}

// TestViewsCarryAndTell: files are put and collected where the exec sees them, and its result and the record say what it alone saw.
func TestViewsCarryAndTell(t *testing.T) {
	flavours(t, func(b *box) {
		b.file("w/tests/keep", "")
		b.file("w/dir/x", "THE-HIDDEN")
		b.file("tests/case", "THE-CASE")
		p := b.policy(object{
			"workspace": object{"source": b.path("w"), "path": "/w"},
			"views":     object{"judge": object{"bind": []object{{"source": b.path("tests"), "target": "/w/tests"}}}},
		})
		b.run("create", "--policy", p, "--record", b.path("rec"), "box").exits(0)
		r := b.carried("--view", "judge", "--deny", b.path("w/dir"), "--read", b.path("tests"), "--put", b.path("tests/case")+":put", "--collect", "put",
			"--collect", "tests/*", "--collect", "dir/x", "box", "--", "cat", "put", "tests/case")
		var got []string
		for _, c := range r.Collected {
			got = append(got, fmt.Sprint(c.Path, " ", c.Text, " ", c.Error != nil))
		}
		same(t, "what was collected", "put THE-CASE false, tests/case THE-CASE false, dir/x  true", strings.Join(got, ", "))
		same(t, "the output", "THE-CASETHE-CASE", r.Stdout)
		want := result.View{Name: "judge", Read: []string{b.path("tests")}, Bind: []string{b.path("tests") + ":/w/tests"}, Deny: []string{b.path("w/dir")}}
		if r.View == nil || !reflect.DeepEqual(*r.View, want) {
			t.Errorf("the result says %+v, not %+v", r.View, want)
		}
		// What the view shows is not written, and what it hides neither.
		for _, to := range []string{"tests/new", "dir/new"} {
			if r := b.carried("--view", "judge", "--deny", b.path("w/dir"), "--put", b.path("tests/case")+":"+to, "box", "true"); r.Error == nil || r.Error.Code != "put_failed" {
				t.Errorf("put %s: %+v", to, r.Error)
			}
		}
		if r := b.carried("box", "true"); r.View != nil {
			t.Errorf("without a view the result says %+v", r.View)
		}
		// put and get are no exec's: they see the sandbox.
		b.run("get", "box", "tests/case", b.path("got")).exits(125)
		b.run("put", "box", b.path("tests/case"), "tests/put").exits(0)
		same(t, "what was put", "THE-CASE", b.read(b.path("w/tests/put")))

		b.run("delete", "box").exits(0)
		b.run("verify", b.path("rec")).exits(0)
		var views []*result.View
		for line := range strings.Lines(b.read(b.path("rec", record.FileName))) {
			var run struct {
				Event string
				View  *result.View
			}
			b.mustDo(json.Unmarshal([]byte(line), &run))
			if run.Event == record.KindRun {
				views = append(views, run.View)
			}
		}
		// The second and third were not started.
		if len(views) != 4 || views[2] == nil || views[3] != nil || !reflect.DeepEqual(*views[0], want) {
			t.Errorf("the record says %+v, not %+v first", views, want)
		}
	})
}

// TestViewsServed: a client of serve asks for them in the same way, and no descriptor stays with the server.
func TestViewsServed(t *testing.T) {
	flavours(t, func(b *box) {
		b.file("tests/a", "A")
		s := b.stdio()
		s.create("box")
		one := func(read, want string) {
			if r := s.exec("box", object{"read": []string{read}}, "cat", b.path("tests/a")); r.Stdout != want {
				b.t.Errorf("%q: %+v", read, r)
			}
		}
		descriptors := func() int {
			list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
			b.mustDo(err)
			return len(list)
		}
		one(b.path("tests"), "A")
		before := descriptors()
		for range 10 {
			one(b.path("tests"), "A")
			one(b.path("none"), "")
		}
		if after := descriptors(); after > before {
			t.Errorf("%d descriptors, were %d", after, before)
		}
		s.end()
	})
}

// TestLifetimeExec: each exec has all of these anew, with what the policy shows in them, and leaves nothing.
func TestLifetimeExec(t *testing.T) {
	flavours(t, func(b *box) {
		b.file("in/data", "THE-DATA")
		b.file("in/golden", "THE-GOLDEN")
		for _, ws := range []object{{"source": "tmpfs", "lifetime": "exec"}, {"source": b.mkdir("w"), "path": "/w"}} {
			b.create("box", b.policy(object{
				"workspace": ws,
				"files": object{
					"tmpfs": []object{{"path": "/tmp", "lifetime": "exec", "size": "1M"}, {"path": "/scratch", "lifetime": "exec"}}, "home": object{"lifetime": "exec"},
					"read": []string{b.path("in")}, "deny": []string{b.path("in/golden")},
				},
				"bind": []object{{"source": b.path("in/data"), "target": "/scratch/a/data"}},
			}))
			for range 2 {
				b.run("exec", "box", "--", "sh", "-c", "for d in /tmp ~ /scratch; do test -e $d/f && echo left in $d; echo x >$d/f || echo not in $d; done; cat /scratch/a/data "+b.path("in/data")).
					exits(0).prints("THE-DATATHE-DATA").hides("left", "not in")
				b.run("exec", "box", "cat", b.path("in/golden")).exits(1).hides("THE-GOLDEN").complains("Permission denied")
			}
			b.run("exec", "--fresh", "/tmp", "--fresh", "~", "box", "--", "sh", "-c", "ls -A /tmp ~; test -e "+b.path("in")+" || echo hidden").exits(0).prints("hidden")
			b.run("exec", "box", "--", "sh", "-c", "echo x >/scratch/a/data; head -c 2M /dev/zero >/tmp/big").exits(1).complains("Read-only", "No space")
			b.run("exec", "--bind", b.path("in/data")+":/scratch/b/c", "box", "--", "sh", "-c", "cat /scratch/b/c /scratch/a/data; echo x >/scratch/f").exits(0).prints("THE-DATATHE-DATA")
			b.run("exec", "--bind", b.path("in/data")+":/scratch/a/b", "--bind", b.path("in/data")+":/scratch/a/c/d", "box", "cat", "/scratch/a/b", "/scratch/a/c/d", "/scratch/a/data").
				exits(0).prints("THE-DATATHE-DATATHE-DATA") // beside a mount
			if out := b.run("exec", "box", "--", "sh", "-c", "ls -A ~ /scratch"); strings.Contains(out.stdout, "f") || strings.Contains(out.stdout, "b\n") {
				b.t.Errorf("left: %v", out)
			}
			b.run("delete", "box").exits(0)
		}
	})
}

// TestMadeOnDisk: a workspace on disk, and a copy, are the program's own, and are gone with the sandbox whatever it did to them.
func TestMadeOnDisk(t *testing.T) {
	flavours(t, func(b *box) {
		parent := b.mkdir("made")
		b.file("src/data", "THE-DATA")
		b.file("src/sub/golden", "THE-GOLDEN")
		b.file("one", "ONE")
		b.link("src/out", "/etc/hostname")
		policy := b.policy(object{
			"workspace": object{"source": "disk", "parent": parent},
			"files":     object{"deny": []string{b.path("src/sub/golden")}},
			"bind":      []object{{"source": b.path("src"), "target": "/w/src", "copy": true}, {"source": b.path("one"), "target": "/opt/one", "copy": true}},
		})
		made := func() int {
			list, err := os.ReadDir(parent)
			b.mustDo(err)
			return len(list)
		}
		a := b.run("create", "--owner", "none", "-p", policy, "box").exits(0)
		a.complains("not copied: ", "out")
		same(b.t, "made", 1, made())
		b.run("exec", "box", "--", "sh", "-c", "cat src/data /opt/one; echo new >src/data; echo new >/opt/one; cat src/sub/golden src/out; ls -A src").exits(0).
			prints("THE-DATAONEdata\nsub\n").hides("GOLDEN").complains("golden: No such file", "out: No such file")
		same(b.t, "the source", "THE-DATA", b.read(b.path("src/data")))
		r := b.carried("--collect", "src/data", "box", "true")
		if len(r.Collected) != 1 || r.Collected[0].Text != "new\n" {
			b.t.Errorf("collected %+v", r.Collected)
		}
		b.run("export", "box", "/opt/one", b.path("back")).exits(0)
		same(b.t, "handed back", "new\n", b.read(b.path("back")))
		b.run("exec", "box", "python3", "-c", `
import os
os.symlink("`+b.path("src")+`", "away")
for i in range(200):
    os.mkdir("d" * 100); os.symlink("..", "up"); here = os.open(".", os.O_RDONLY); os.chdir("d" * 100)
    if i % 9 == 5: os.fchmod(here, 0)
    os.close(here)
os.chmod("/w", 0)`).exits(0)
		b.run("delete", "box").exits(0)
		same(b.t, "left", 0, made())
		same(b.t, "the source", "THE-DATA", b.read(b.path("src/data")))

		// It is kept on demand; a create that fails, or an owner that dies, leaves nothing.
		a = b.run("run", "--keep", "-p", policy, "--", "sh", "-c", "echo kept >f").exits(0).complains("kept on disk")
		list, err := filepath.Glob(parent + "/sandboxrun-*/workspace/f")
		if err != nil || len(list) != 1 || b.read(list[0]) != "kept\n" {
			b.t.Fatalf("%q, %v: %v", list, err, a)
		}
		b.ownedByCaller(filepath.Dir(list[0]))
		b.mustDo(os.RemoveAll(filepath.Dir(filepath.Dir(list[0]))))
		b.run("run", "-p", policy, "--", "touch", "f").exits(0)
		b.run("run", "-p", policy, "--record", b.path("w"), "--", "touch", "f")
		b.run("create", "--owner", "none", "-p", policy, "box").exits(0)
		b.run("create", "--owner", "none", "-p", policy, "box").exits(125).complains("id_in_use")
		same(b.t, "made", 1, made())
		b.run("exec", "box", "touch", "still").exits(0)
		b.run("delete", "box").exits(0)
		b.createDying(policy, "dying")
		for range 100 {
			if b.run("sweep"); made() == 0 {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		same(b.t, "left", 0, made())
		b.run("run", "-p", b.policy(object{"workspace": object{"source": "disk", "parent": b.path("none")}}), "--", "true").exits(125).complains("workspace_unusable")
	})
}
