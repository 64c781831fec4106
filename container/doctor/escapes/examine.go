package escapes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Results of an attack.
const (
	Held      = "held"
	Broken    = "broken"
	NotTested = "not_tested"
)

// Row is one attack on a sandbox of a policy.
type Row struct {
	Name   string   `json:"name"`
	Result string   `json:"result"`
	Errors []string `json:"errors"` // that it met in the sandbox
	Output string   `json:"said"`   // why it is not held
}

// Report is what attacks have come to.
type Report struct {
	Rows  []Row    `json:"escapes"`
	Notes []string `json:"notes"` // what of the policy was changed for the attacks
}

// Count is the number of attacks with a result.
func (r *Report) Count(result string) (n int) {
	for _, row := range r.Rows {
		if row.Result == result {
			n++
		}
	}
	return n
}

// Examination is what Examine needs.
type Examination struct {
	Binary string   // the command sandboxrun
	Policy string   // an absolute path or a preset
	Env    []string // of the caller
	Alone  bool     // the policy lets a program start no process
	Guard  bool     // it has a guard
	Userns bool     // it lets a program make user namespaces
}

// timeLimit is the time limit of one run of the attacks. It takes the place of the policy's.
const timeLimit = 3 * time.Minute

// Examine runs every attack without a sandbox and in one of the policy, which gets the files that the attacks need. It leaves nothing.
func Examine(ctx context.Context, e Examination) (*Report, error) {
	dir, err := os.MkdirTemp("", "escapes-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return nil, err
	}
	s, err := NewStage(dir, state)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.examine(ctx, e)
}

func (s *Stage) examine(ctx context.Context, e Examination) (*Report, error) {
	policy, r, err := s.policy(e)
	if err != nil {
		return nil, err
	}
	list := Of(os.Geteuid())
	if e.Userns {
		list = slices.DeleteFunc(list, func(a Attack) bool { return a.Granted })
		r.Notes = append(r.Notes, "processes.userns is true: no attack is to make a user namespace")
	}
	outside := exec.CommandContext(ctx, "python3", "-c", Program())
	outside.Dir, outside.Env = s.path("work"), append(slices.Clone(e.Env), Environ())
	control, err := s.Play(outside, list, false, false)
	if err != nil {
		return nil, fmt.Errorf("without a sandbox: %w", err)
	}
	list = slices.DeleteFunc(list, func(a Attack) bool {
		if control.Broke(a.Name) {
			return false
		}
		r.Rows = append(r.Rows, Row{a.Name, NotTested, []string{}, "it does not succeed without a sandbox: " + strings.TrimSpace(cut(control[a.Name]))})
		return true
	})
	got, err := s.inside(ctx, e, policy, list)
	if err != nil {
		return nil, fmt.Errorf("in a sandbox: %w", err)
	}
	for _, a := range list {
		r.Rows = append(r.Rows, row(a.Name, got))
	}
	return r, ctx.Err()
}

func row(name string, got Outcomes) Row {
	row := Row{name, Held, append([]string{}, got.Met(name)...), ""}
	switch {
	case got.Broke(name):
		row.Result, row.Output = Broken, strings.TrimSpace(cut(got[name]))
	case !got.Ran(name):
		row.Result, row.Errors, row.Output = NotTested, []string{}, "it did not run: "+strings.TrimSpace(cut(got[name]))
	}
	return row
}

// policy writes the policy: the one that is asked about, with the attacks' files, and without what would keep the attacks from running.
func (s *Stage) policy(e Examination) (string, *Report, error) {
	workdir, files := s.Files()
	keys := map[string]any{"version": 1, "extends": e.Policy, "workdir": workdir, "files": files, "limits": map[string]any{
		"wall": timeLimit.String(), "cpu": timeLimit.String(), "idle": "0s",
	}}
	r := &Report{Notes: []string{"the attacks have a directory of their own that they may write, one that they may read, two denied paths, and a time limit of " + timeLimit.String()}}
	if e.Guard {
		keys["processes"] = map[string]any{"guard": "", "steps": 0}
		r.Notes = append(r.Notes, "processes.guard is off: the attacks are on the kernel's protections")
	}
	data, err := json.Marshal(keys)
	name := s.path("policy.json")
	return name, r, errors.Join(err, os.WriteFile(name, data, 0o600))
}

// inside runs attacks in a sandbox: in one exec, or in as many as it takes where they can start no process.
func (s *Stage) inside(ctx context.Context, e Examination, policy string, list []Attack) (Outcomes, error) {
	if !e.Alone {
		return s.Play(s.command(ctx, e, "run", "--policy", policy, "--", "python3", "-c", Program()), list, true, false)
	}
	const id = "escapes"
	if out, err := s.command(ctx, e, "create", "--policy", policy, "--owner", strconv.Itoa(os.Getpid()), id).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("create: %w: %s", err, out)
	}
	defer func() { _ = s.command(context.WithoutCancel(ctx), e, "delete", "--force", id).Run() }()
	all := Outcomes{}
	for len(list) > 0 {
		got, err := s.Play(s.command(ctx, e, "exec", "--stdin", id, "--", "python3", "-c", Program()), list, true, true)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, got)
		list = list[len(got):]
	}
	return all, nil
}

// command is one of sandboxrun's.
func (s *Stage) command(ctx context.Context, e Examination, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.Binary, append([]string{"--root", s.path("state")}, args...)...)
	cmd.Dir, cmd.Env = s.path("work"), append(slices.Clone(e.Env), Environ())
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(unix.SIGTERM) }, timeLimit // so that it removes its sandbox
	return cmd
}
