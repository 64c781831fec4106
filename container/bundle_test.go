package container

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/build"
	"github.com/sandboxrun/sandboxrun/container/bundle"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// planWith is a plan that has these entries and mounts, and no more than a bundle needs.
func planWith(entries []rootfs.Entry, mounts []rootfs.Mount) *spec.Plan {
	return &spec.Plan{
		View: &rootfs.View{Entries: entries, Mounts: mounts},
	}
}

func writeBundle(root *os.Root, plan *spec.Plan) error { return bundle.Write(root, plan, plan.OCI()) }

// TestBundle: files have the modes and times of the plan whatever the caller's umask is, and nobody can open a mask.
func TestBundle(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	when := time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)
	early := time.Date(1960, 1, 1, 0, 0, 0, 500, time.UTC)
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	plan := planWith([]rootfs.Entry{
		{Path: "/d", Kind: rootfs.EntryDir, Mode: 0o755, Modified: when.UnixNano()},
		{Path: "/d/f", Kind: rootfs.EntryFile, Mode: 0o444, Content: "text", Modified: early.UnixNano()},
		{Path: "/d/closed", Kind: rootfs.EntryFile},
		{Path: "/l", Kind: rootfs.EntrySymlink, Content: "/nonexistent"},
	}, []rootfs.Mount{
		{Kind: rootfs.MountBind, Source: "/usr", Target: "/usr", Dir: true},
		{Kind: rootfs.MountBind, Target: "/etc/hosts", Content: "127.0.0.1 localhost\n"},
	})
	if err := writeBundle(root, plan); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{
		spec.RootDir + "/d/f": 0o444, spec.RootDir + "/d/closed": 0, spec.GeneratedFile(1): 0o444, spec.MaskFile: 0, "config.json": 0o644,
	} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", name, info, err, mode)
		}
	}
	for name, want := range map[string]time.Time{"/d": when, "/d/f": early} {
		if info, err := os.Stat(filepath.Join(dir, spec.RootDir, name)); err != nil || !info.ModTime().Equal(want) {
			t.Errorf("%s is of %v, not of %v: %v", name, info.ModTime(), want, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, spec.RootDir, "d/closed")); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("what is no copy: %v, %v", info.ModTime(), err)
	}
	if to, err := os.Readlink(filepath.Join(dir, spec.RootDir, "l")); err != nil || to != "/nonexistent" {
		t.Errorf("the link: %s, %v", to, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, spec.GeneratedFile(1))); err != nil || string(data) != "127.0.0.1 localhost\n" {
		t.Errorf("the generated file: %q, %v", data, err)
	}
	if err := writeBundle(root, plan); codeOf(err) != "state_unusable" {
		t.Errorf("a second one in its place: %v", err)
	}
}

// TestBundleStaysInItsDirectory: what somebody puts in the way of a bundle leads nowhere.
func TestBundleStaysInItsDirectory(t *testing.T) {
	outside := t.TempDir()
	for _, name := range []string{spec.RootDir, "masks", "config.json"} {
		dir := t.TempDir()
		if err := os.Symlink(outside, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeBundle(root, planWith(nil, nil)); err == nil {
			t.Errorf("%s was a link, and is followed", name)
		}
		root.Close()
	}
	if names := namesOf(t, outside); len(names) != 0 {
		t.Errorf("outside: %v", names)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := bundle.WriteEntry(root, rootfs.Entry{Path: "/x", Kind: "socket"}); err == nil || !strings.Contains(err.Error(), "unknown kind") {
		t.Errorf("an entry of no kind: %v", err)
	}
}

// TestBase: the directory in which process 1 starts is ours, whole, and not made by somebody else.
func TestBase(t *testing.T) {
	s := newStore(t)
	if err := errors.Join(s.root.MkdirAll(".base.new/odd", 0o700), s.root.WriteFile(".base.new/odd/f", nil, 0o600)); err != nil { // a creator was killed here
		t.Fatal(err)
	}
	dir, err := bundle.Base(s.root, s.path, build.Dirs(), s.lock)
	if err != nil || dir != filepath.Join(s.path, ".base") {
		t.Fatal(dir, err)
	}
	for _, d := range build.Dirs() {
		if info, err := os.Lstat(filepath.Join(dir, d)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", d, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "odd")); err == nil {
		t.Error("it has what somebody has left")
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := bundle.Base(s.root, s.path, build.Dirs(), s.lock); err != nil || again != dir {
		t.Errorf("again: %s, %v", again, err)
	}
	if now, err := os.Stat(dir); err != nil || !os.SameFile(info, now) {
		t.Errorf("it was made anew: %v", err)
	}
	for name, put := range map[string]func(string) error{
		"a file": func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"a link": func(p string) error { return os.Symlink("/", p) },
	} {
		s := newStore(t)
		if err := put(filepath.Join(s.path, ".base")); err != nil {
			t.Fatal(err)
		}
		if dir, err := bundle.Base(s.root, s.path, build.Dirs(), s.lock); codeOf(err) != "state_unusable" {
			t.Errorf("%s: %s, %v", name, dir, err)
		}
	}
}

// TestGranted: a writable directory is the one that stood there when the sandbox was made, whatever has its name now.
func TestGranted(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "grant")
	var st unix.Stat_t
	if err := errors.Join(os.Mkdir(at, 0o700), unix.Lstat(at, &st)); err != nil {
		t.Fatal(err)
	}
	g := Granted{Host: at, Dev: st.Dev, Ino: st.Ino}
	sb := madeUp(Launch{Granted: []Granted{g}})
	if err := sb.checkGranted(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name   string
		change func() error
	}{
		{"moved", func() error { return os.Rename(at, at+".old") }},
		{"another in its place", func() error { return os.Mkdir(at, 0o700) }},
		{"a link to it in its place", func() error { return errors.Join(os.Remove(at), os.Symlink(at+".old", at)) }},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if err := sb.checkGranted(); codeOf(err) != fault.GrantReplaced || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := errors.Join(os.Remove(at), os.Rename(at+".old", at)); err != nil {
		t.Fatal(err)
	}
	if err := sb.checkGranted(); err != nil {
		t.Errorf("back again: %v", err)
	}
	if list := shortGranted(sb.state.Launch.Granted); len(list) != 1 || list[0].Path != at || list[0].Ino != st.Ino || list[0].Dev != st.Dev {
		t.Errorf("for the short way: %+v", list)
	}
}

// TestGrantIsRemembered: only directories that a program may write are, and an exec refuses where one was replaced.
func TestGrantIsRemembered(t *testing.T) {
	dir := t.TempDir()
	w, r := filepath.Join(dir, "w"), filepath.Join(dir, "r")
	if err := errors.Join(os.Mkdir(w, 0o777), os.Mkdir(r, 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	sb := sandboxOf(t, "files.write = ["+quote(w)+", "+quote(filepath.Join(dir, "file"))+"]\nfiles.read = ["+quote(r)+"]\nworkdir = "+quote(w))
	if g := sb.state.Launch.Granted; len(g) != 1 || g[0].Host != w {
		t.Errorf("%+v", g)
	}
	if err := errors.Join(os.Rename(w, w+".old"), os.Mkdir(w, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Start(sh("echo lost >f")); codeOf(err) != fault.GrantReplaced {
		t.Errorf("an exec: %v", err)
	}
	if err := sb.Put("", []Put{{Path: "f"}}); codeOf(err) != fault.GrantReplaced {
		t.Errorf("a put: %v", err)
	}
	if len(namesOf(t, w))+len(namesOf(t, w+".old")) != 0 {
		t.Error("something was written")
	}
}
