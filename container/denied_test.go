package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A denied path that does not exist: see package deny.
func TestDeniedPathThatAppears(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	env := filepath.Join(ws, ".env")
	hooks := filepath.Join(ws, "hooks")
	if err := os.Mkdir(ws, 0o777); err != nil {
		t.Fatal(err)
	}
	sb := sandboxOf(t, "files.write = ["+quote(ws)+"]\nfiles.deny = ["+quote(env)+", "+quote(hooks)+"]\nworkdir = "+quote(ws))

	r := run(t, sb, sh("ls -A; cat .env; exit 0"))
	if r.Stdout != "" || !strings.Contains(r.Stderr, "No such file") || len(r.Warnings) != 0 {
		t.Errorf("nothing is there: %+v", r)
	}
	r = run(t, sb, sh("echo planted >.env; mkdir hooks; echo planted >hooks/pre; echo fine >other"))
	if len(r.Warnings) != 2 {
		t.Errorf("warnings: %q", r.Warnings)
	}
	for _, gone := range []string{env, hooks} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s is there after the exec", gone)
		}
	}
	aside, err := filepath.Glob(filepath.Join(ws, "*.denied-*"))
	hidden, err2 := filepath.Glob(filepath.Join(ws, ".env.denied-*"))
	if err != nil || err2 != nil || len(aside)+len(hidden) < 2 {
		t.Errorf("moved aside: %q %q", aside, hidden)
	}
	if _, err := os.Lstat(filepath.Join(ws, "other")); err != nil {
		t.Error(err)
	}

	// What the host puts there between two execs is hidden from the next, and stays.
	if err := os.WriteFile(env, []byte("KEY\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hooks, "pre"), []byte("KEY\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r = run(t, sb, sh("cat .env hooks/pre; echo x >.env; rm -f .env; mv .env a; cat a; exit 0"))
	if strings.Contains(r.Stdout, "KEY") || len(r.Warnings) != 0 {
		t.Errorf("the host's file: %+v", r)
	}
	if data, err := os.ReadFile(env); err != nil || string(data) != "KEY\n" {
		t.Errorf("the host's file is %q now: %v", data, err)
	}
}

// The program may put links in the way of what is moved; nothing outside the grant may be touched.
func TestMoveAsideStaysInTheGrant(t *testing.T) {
	dir := t.TempDir()
	ws, victim := filepath.Join(dir, "ws"), filepath.Join(dir, "victim")
	for _, d := range []string{filepath.Join(ws, "sub"), victim} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	keep := filepath.Join(victim, "x")
	if err := os.WriteFile(keep, []byte("v"), 0o644); err != nil {
		t.Fatal(err)
	}
	sb := sandboxOf(t, "files.write = ["+quote(ws)+"]\nfiles.deny = ["+quote(ws+"/sub/x")+"]\nworkdir = "+quote(ws))
	r := run(t, sb, sh("rmdir sub; ln -s "+victim+" sub"))
	if _, err := os.Lstat(keep); err != nil {
		t.Errorf("a file outside the grant was moved: %v", err)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "could not be moved") {
		t.Errorf("warnings %q", r.Warnings)
	}
}
