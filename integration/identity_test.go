package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// seenID is the number as which a program sees itself where the policy does not say: root's is nobody special.
func seenID() int {
	const plain = 1000
	if w.uid == 0 {
		return plain
	}
	return w.uid
}

// needIdmap probes for what lets a program of root's write what root grants it: a container on an overlay has not got it.
func needIdmap(t *testing.T) {
	t.Helper()
	if err := idmapProblem(); err != nil {
		t.Log(err)
		need(t, "idmap", false)
	}
}

var idmapProblem = sync.OnceValue(func() error {
	host, err := machine.Probe(policy.Limits{})
	switch {
	case err != nil:
		return err
	case host.NotApart != "":
		return errors.New(host.NotApart)
	case host.Program == 0: // no more than root of a user namespace
		return nil
	}
	_, err = host.Idmap(w.scratch)
	return err
})

// hostID is the uid of a program of a sandbox, as the host has it.
func (b *box) hostID(sandbox string) int {
	b.t.Helper()
	mark := fmt.Sprintf("5913.%d", len(b.dir)+os.Getpid())
	cmd := b.command(call{}, "exec", sandbox, "--", "sleep", mark)
	b.mustDo(cmd.Start())
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	id := -1
	eventually(b.t, "the program runs", func() bool {
		for line := range strings.Lines(b.run("ps", sandbox).exits(0).stdout) {
			if !strings.Contains(line, "sleep") {
				continue
			}
			for field := range strings.FieldsSeq(line) {
				var st syscall.Stat_t
				data, err := os.ReadFile("/proc/" + field + "/cmdline")
				if err == nil && strings.Contains(string(data), "sleep\x00"+mark) && syscall.Stat("/proc/"+field, &st) == nil {
					id = int(st.Uid)
				}
			}
		}
		return id >= 0
	})
	return id
}

func ownersOf(t *testing.T, path string) (uid, gid int) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Uid), int(st.Gid)
}

// TestProgramID: to the host a program of root's is nobody, and in each sandbox another; what it is granted is its own.
func TestProgramID(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		work := b.mkdir("work")
		closed := b.file("work/closed", "of the caller's")
		b.mustDo(os.Chmod(closed, 0o600))
		p := b.files(work, object{"write": []string{work}})
		var ids []int
		for _, name := range []string{"one", "two"} {
			b.create(name, p)
			ids = append(ids, b.hostID(name))
			b.run("exec", name, "--", "sh", "-c", "cat closed; echo x >"+name+"; mkdir "+name+".d; ln -s x "+name+".l; chmod 600 "+name).exits(0).prints("of the caller's")
			for _, made := range []string{"", ".d", ".l"} {
				uid, gid := ownersOf(t, filepath.Join(work, name+made))
				same(t, "owner of "+name+made, w.uid, uid)
				same(t, "group of "+name+made, w.gid, gid)
			}
			same(t, "what it sees", fmt.Sprintf("%d %d\n", seenID(), seenID()), b.exec(name, "--", "sh", "-c", "echo $(id -u) $(stat -c %u closed)").exits(0).stdout)
		}
		if w.uid != 0 {
			same(t, "the caller's id", fmt.Sprint([]int{w.uid, w.uid}), fmt.Sprint(ids))
			return
		}
		const first, last = 0x78000000, 0x7ffdffff
		for _, id := range ids {
			if id < first || id > last {
				t.Errorf("the program has uid %d", id)
			}
		}
		if ids[0] == ids[1] {
			t.Errorf("two sandboxes have uid %d", ids[0])
		}
	})
}

// TestGroupsOfGrants: what is made in a directory with a group of its own has that group, as outside.
func TestGroupsOfGrants(t *testing.T) {
	needRoot(t)
	needIdmap(t)
	b := newBox(t)
	work := b.mkdir("work")
	b.mustDo(os.Chown(work, 0, 50), os.Chmod(work, 0o775|os.ModeSetgid))
	b.sh(b.files(work, object{"write": []string{work}}), "echo x >f; mkdir d; echo y >d/g").exits(0)
	for _, p := range []string{"f", "d", "d/g"} {
		uid, gid := ownersOf(b.t, filepath.Join(work, p))
		same(t, p, "0 50", fmt.Sprint(uid, gid))
	}
}

// TestStrangerToTheBase: modes protect what is root's and not granted, also above what is granted.
func TestStrangerToTheBase(t *testing.T) {
	needRoot(t)
	needIdmap(t)
	b := newBox(t)
	b.mkdir("rootfs/usr")
	b.link("rootfs/bin", "usr/bin")
	b.link("rootfs/lib", "usr/lib")
	b.link("rootfs/lib64", "usr/lib64")
	for _, name := range []string{"srv/own/secret", "srv/own/in/f", "srv/own/out/f", "srv/closed"} {
		b.mustDo(os.Chmod(b.file("rootfs/"+name, "KEY of "+name), 0o600))
	}
	b.mustDo(os.Chmod(b.path("rootfs/srv/own"), 0o700))
	p := b.policy(object{
		"files": object{"base": object{"rootfs": b.path("rootfs")}, "read": []string{}},
		"bind": []object{
			{"source": "/usr", "target": "/usr"},
			{"source": b.path("rootfs/srv/own/in"), "target": "/srv/own/in"},
			{"source": b.path("rootfs/srv/own/out"), "target": "/srv/own/out", "writable": true},
		},
	})
	b.sh(p, "cat /srv/closed /srv/own/secret; cat /srv/own/in/f /srv/own/out/f; echo made >/srv/own/out/made; echo no >/srv/own/no; exit 0").
		exits(0).prints("KEY of srv/own/in/f", "KEY of srv/own/out/f").hides("KEY of srv/closed", "KEY of srv/own/secret")
	uid, _ := ownersOf(t, b.path("rootfs/srv/own/out/made"))
	same(t, "owner", 0, uid)
	if _, err := os.Stat(b.path("rootfs/srv/own/no")); err == nil {
		t.Error("it wrote beside its grants")
	}
}

// TestToolsAsRoot: what gives files to others, as root may, goes on with its work where there are no others.
func TestToolsAsRoot(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		work := b.mkdir("work")
		p := b.policy(object{"user": "root", "workdir": work, "files": object{"write": []string{work}}})
		b.python(p, `
import io, sys, tarfile
with tarfile.open(sys.argv[1], "w") as t:
    for name, uid, gid in ("a", 1234, 5678), ("b", 0, 42), ("c", 42, 0), ("d", 0, 0):
        i = tarfile.TarInfo(name); i.uid, i.gid, i.size = uid, gid, 1; t.addfile(i, io.BytesIO(b"x"))`, "foreign.tar").exits(0)
		b.sh(p, `set -e
tar xf foreign.tar; tar xpf foreign.tar --same-owner; install -o root -g root a installed; install -d -o 0 -g 0 dir
cp -a /usr/bin/env /etc/passwd .; chown 1234:5678 a; chown -hR 7 dir; chgrp 8 b; chown root:root c; chown :root d; chown -- +0 d
for f in a b c d installed dir env passwd; do stat -c %n:%u:%g $f; done`).exits(0).prints("a:0:0", "b:0:0", "c:0:0", "installed:0:0", "env:0:0")
		b.python(p, `
import os
os.chown("a", -1, -1); os.chown("a", 0, -1); os.chown("a", -1, 0); os.chown("a", 2**31 - 1, 5)
for call in (lambda: os.chown("/usr", 0, 0)), (lambda: os.chown("gone", 0, 0)):
    try: call(); print("NO ERROR")
    except OSError: pass`).exits(0).hides("NO ERROR")
		for _, name := range []string{"a", "b", "c", "d", "env"} {
			uid, gid := ownersOf(t, filepath.Join(work, name))
			same(t, name, fmt.Sprint(w.uid, w.gid), fmt.Sprint(uid, gid))
		}
		if installed("npm") {
			b.file("work/pack/package.json", `{"name": "pack", "version": "1.0.0"}`)
			if w.uid == 0 {
				b.mustDo(os.Chown(b.path("work/pack"), 1234, 5678), os.Chown(b.path("work/pack/package.json"), 1234, 5678))
			}
			b.sh(p, "npm install --offline --no-audit --no-fund ./pack && npm pack ./pack && ls -d node_modules/pack").exits(0).prints("node_modules/pack", "pack-1.0.0.tgz")
		}
	})
}

// TestNotIdmapped: where a file system cannot be idmapped a writable grant is refused, or its program root, as the policy says; a
// read-only one shows what everybody may read. What is mounted below a grant is left out.
func TestNotIdmapped(t *testing.T) {
	needRoot(t)
	needIdmap(t)
	b := newBox(t)
	over := b.mkdir("over")
	b.mkdir("over/out")
	for _, d := range []string{"low", "up", "work"} {
		b.mkdir(d)
	}
	err := syscall.Mount("overlay", over, "overlay", 0, "lowerdir="+b.path("low")+",upperdir="+b.path("up")+",workdir="+b.path("work"))
	need(t, "overlay", err == nil)
	t.Cleanup(func() { _ = syscall.Unmount(over, syscall.MNT_DETACH) })
	out := b.mkdir("over/out")
	b.file("over/out/open", "for all")
	b.mustDo(os.Chmod(b.file("over/out/closed", "for root"), 0o600))
	write := object{"workdir": out, "files": object{"write": []string{out}}}
	b.sh(b.policy(write), "true").exits(125).complains("sandboxrun: grant_not_idmapped: ", "overlay", "hint: ", "best_effort")
	write["enforce"] = "best_effort"
	p := b.policy(write)
	b.sh(p, "id -u; cat closed; echo x >made; chmod 666 /dev/null || echo REFUSED").exits(0).prints("1000", "for root", "REFUSED").complains("cannot be idmapped")
	b.create("weaker", p)
	same(t, "the program", 0, b.hostID("weaker"))
	if said := b.run("state", "weaker").exits(0).stdout; !strings.Contains(said, `"weaker":[{"what":`) {
		t.Error(said)
	}
	read := b.policy(object{"files": object{"read": []string{out}}})
	b.sh(read, "cat "+out+"/open "+out+"/closed; exit 0").exits(0).prints("for all").hides("for root").complains("cannot be idmapped")
	mixed := b.mkdir("mixed")
	b.mkdir("mixed/below")
	b.mustDo(syscall.Mount(over, b.path("mixed/below"), "", syscall.MS_BIND, ""))
	t.Cleanup(func() { _ = syscall.Unmount(b.path("mixed/below"), syscall.MNT_DETACH) })
	under := b.file("mixed/below/covered", "hidden by the mount") // on the overlay, by the path
	mount := b.path("mixed/below")
	mixedPolicy := b.files(mixed, object{"write": []string{mixed}})
	b.sh(mixedPolicy, "ls -A below; touch below/new || echo CLOSED; rmdir below || echo KEPT; echo x >made; id -u").exits(0).
		hides("covered", "closed").prints("CLOSED", "KEPT", "1000").complains("mixed/below", "left out", "overlay")
	uid, _ := ownersOf(t, b.path("mixed/made"))
	same(t, "owner", 0, uid)
	b.run("explain", "-p", mixedPolicy, under).exits(1).prints("cannot be idmapped")
	b.sh(b.files(mixed, object{"write": []string{mixed}, "read": []string{mount}}), "cat below/covered").exits(0).prints("hidden by the mount").complains("cannot be idmapped")
	b.sh(b.files(mixed, object{"write": []string{mixed, mount}}), "true").exits(125).complains("grant_not_idmapped", "mixed/below")
	b.sh(b.files(mount, object{"write": []string{mixed}}), "true").exits(125).complains("grant_not_idmapped", "mixed/below", "working directory")
}

// TestBundleIDs: another runtime maps the grants of a bundle too, or it does not let the program write.
func TestBundleIDs(t *testing.T) {
	needRoot(t)
	needIdmap(t)
	b := newBox(t)
	work := b.mkdir("work")
	p := b.files(work, object{"write": []string{work}})
	for _, runtime := range []string{"runc", "crun"} {
		t.Run(runtime, func(t *testing.T) {
			needProgram(t, runtime)
			bundle := b.path(runtime)
			b.run("spec", "-p", p, "--bundle", bundle, "--", "sh", "-c", "echo READY; echo x >"+runtime+"; id -u").exits(0)
			// crun does not start where both versions of control groups are mounted.
			cmd := exec.Command("unshare", "-m", "sh", "-c", `umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$@"`, "sh",
				runtime, "--root", b.path(runtime+"-state"), "run", "-b", bundle, "ids-"+strconv.Itoa(os.Getpid()))
			cmd.Stdin = strings.NewReader("") // not the host's null device: crun gives the files of its streams to the program's id
			text, err := cmd.CombinedOutput()
			if !strings.Contains(string(text), "READY") {
				t.Skipf("%s does not run here: %v\n%s", runtime, err, text)
			}
			if _, err := os.Stat(filepath.Join(work, runtime)); err == nil {
				uid, _ := ownersOf(t, filepath.Join(work, runtime))
				same(t, "owner", 0, uid)
			} else if !strings.Contains(string(text), "ermission denied") {
				t.Errorf("%s", text)
			}
			if strings.Contains(string(text), "\n0\n") {
				t.Errorf("the program is root:\n%s", text)
			}
		})
	}
}

// TestNullDevice: no program changes the null device of the host, whether that is its standard input or a file.
func TestNullDevice(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		var before, after syscall.Stat_t
		b.mustDo(syscall.Stat(os.DevNull, &before))
		const try = `
import os, stat
if not stat.S_ISCHR(os.fstat(0).st_mode): os.dup2(os.open("/dev/null", os.O_RDWR), 0) # run has a pipe
for f in (lambda: os.fchmod(0, 0o666)), (lambda: os.fchown(0, os.getuid(), -1)), (lambda: os.utime(0, (1, 1))), (lambda: os.chmod("/dev/null", 0o666)), (lambda: os.chmod("/proc/self/fd/0", 0o666)):
    try: f(); print("CHANGED")
    except OSError: pass
os.read(0, 1) and print("INPUT"); open("/dev/null", "w").write("x")`
		p := b.policy(object{})
		b.create("null", p)
		for _, args := range [][]string{{"run", "-p", p, "--"}, {"run", "--json", "-p", p, "--"}, {"exec", "null"}, {"exec", "--json", "null"}} {
			b.run(append(args, "/usr/bin/python3", "-c", try)...).exits(0).hides("CHANGED", "INPUT", "Traceback")
		}
		b.mustDo(syscall.Stat(os.DevNull, &after))
		same(t, "when it was changed", before.Ctim, after.Ctim)
	})
}
