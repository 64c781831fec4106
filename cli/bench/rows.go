package bench

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const program = "/bin/true"

// Names of the rows that others are compared with.
const (
	rowBare  = "bare " + program
	rowBwrap = "bwrap"
	rowExec  = "exec"
)

// addRows adds the rows of sandboxrun.
func (b *bench) addRows(options bool) error {
	b.add(&row{name: rowBare, args: []string{program}})
	policy, err := b.policy("bench", "")
	if err != nil {
		return err
	}
	live, err := b.create(policy)
	if err != nil {
		return err
	}
	b.add(&row{name: "run", args: []string{b.self, "run", "--policy", policy, "--", program}})
	b.add(b.creates("create", policy))
	b.add(&row{name: rowExec, args: []string{b.self, "exec", live, "--", program}})
	b.addDelete(policy)
	if err := b.addPool(policy); err != nil {
		return err
	}
	if python, err := exec.LookPath("/usr/bin/python3"); err == nil {
		b.add(&row{name: "bare python3", args: []string{python, "-c", "print(1)"}})
		b.add(&row{name: "exec python3", args: []string{b.self, "exec", live, "--", python, "-c", "print(1)"}})
	}
	if options {
		return b.addOptions(live)
	}
	return nil
}

// policy writes a policy: the default one, with the working directory of the bench, and more of [files] or of other tables.
func (b *bench) policy(name, more string) (string, error) {
	path := filepath.Join(b.scratch, name+".toml")
	return path, os.WriteFile(path, []byte("version = 1\n[files]\nwrite = [\"work\"]\nmissing = \"skip\"\n"+more), 0o600)
}

func (b *bench) owner() string { return fmt.Sprint("--owner=", os.Getpid()) }

// create makes a sandbox that lives until the bench ends.
func (b *bench) create(policy string) (string, error) {
	id := b.name()
	if _, err := b.timed([]string{b.self, "create", "--policy", policy, b.owner(), id}, nil); err != nil {
		return "", err
	}
	b.closers = append(b.closers, func() error { return b.delete(id) })
	return id, nil
}

func (b *bench) delete(id string) error {
	_, err := b.timed([]string{b.self, "delete", id}, nil)
	return err
}

// creates is a row that makes a sandbox each time.
func (b *bench) creates(name, policy string) *row {
	r := &row{name: name}
	id := ""
	r.before = func() error {
		id = b.name()
		r.args = []string{b.self, "create", "--policy", policy, b.owner(), id}
		return nil
	}
	r.after = func() error { return b.delete(id) }
	return r
}

func (b *bench) addDelete(policy string) {
	r := &row{name: "delete"}
	r.before = func() error {
		id := b.name()
		r.args = []string{b.self, "delete", id}
		_, err := b.timed([]string{b.self, "create", "--policy", policy, b.owner(), id}, nil)
		return err
	}
	b.add(r)
}

// poolSize is enough for the two rows that follow each other at most.
const poolSize = 4

// addPool adds the rows that take their sandboxes from a pool, which is full before each.
func (b *bench) addPool(policy string) error {
	cmd := exec.Command(b.self, "pool", "--policy", policy, "--size", fmt.Sprint(poolSize), "--", "/bin/sh", "-c", "echo $SANDBOXRUN_POOL; read end || true")
	cmd.Env, cmd.Dir, cmd.Stderr = b.env, b.work(), b.caller.Err
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { in.Close(); return cmd.Wait() })
	name, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("start pool: %w", err)
	}
	env := []string{"SANDBOXRUN_POOL=" + strings.TrimSpace(name)}
	b.add(&row{name: "run in a pool", args: []string{b.self, "run", "--policy", policy, "--", program}, env: env, before: b.full})
	r := b.creates("create in a pool", policy)
	id := r.before
	r.env, r.before = env, func() error {
		if err := id(); err != nil {
			return err
		}
		return b.full()
	}
	b.add(r)
	return nil
}

// full waits until the pool has all its sandboxes, and a moment longer: a directory is made before its sandbox is.
func (b *bench) full() error {
	const aSandbox, longest = 100 * time.Millisecond, 20 * time.Second
	for end := time.Now().Add(longest); time.Now().Before(end); time.Sleep(aSandbox) {
		ready, err := filepath.Glob(filepath.Join(b.scratch, "state", ".ready-*"))
		if err == nil && len(ready) == poolSize {
			time.Sleep(aSandbox)
			return nil
		}
	}
	return fmt.Errorf("the pool has not been full for %s", longest)
}

// addOptions adds an exec with each option that a harness gives it, and in sandboxes that have more to do.
func (b *bench) addOptions(live string) error {
	result := filepath.Join(b.scratch, "result.json")
	for _, o := range [][]string{
		{"--json"},
		{"--env", "A=b"},
		{"--timeout", "60"},
		{"--cwd", "/usr"},
		{"--result", result},
		{"--stdin"},
		{"--json", "--env", "A=b", "--timeout", "60", "--cwd", "/usr", "--stdin"},
	} {
		name := rowExec + " " + strings.Join(o[:1], " ")
		if len(o) > 2 {
			name = rowExec + " with all of these"
		}
		args := append(append([]string{b.self, "exec"}, o...), live, "--", program)
		b.add(&row{name: name, args: args, before: func() error { _ = os.Remove(result); return nil }})
	}
	for _, s := range []struct{ name, more string }{
		{"exec, other sandbox", ""},
		{"exec, absent deny", "deny = [\"work/not/there\"]\n"},
		{"exec, limits", "[limits]\nwall = \"60s\"\nmemory = \"512M\"\npids = 128\ncpus = 1\nfile = \"1G\"\nnofile = 1024\n"},
	} {
		policy, err := b.policy(strings.ReplaceAll(s.name, " ", ""), s.more)
		if err != nil {
			return err
		}
		id, err := b.create(policy)
		if err != nil {
			b.missing = append(b.missing, s.name+": "+err.Error())
			continue
		}
		b.add(&row{name: s.name, args: []string{b.self, "exec", id, "--", program}})
	}
	return nil
}
