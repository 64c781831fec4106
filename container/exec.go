package container

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Request is one exec.
type Request struct {
	Args    []string
	Dir     string            // inside; empty: the policy's
	Caller  map[string]string // the caller's environment, from which the policy takes what it allows
	Env     map[string]string // variables of this exec alone
	Timeout time.Duration     // 0: the policy's
	Stdin   io.Reader         // nil: empty
	Stdout  io.Writer         // nil: kept for the Result
	Stderr  io.Writer
	Tty     *Size // not nil: the program gets a terminal of its own, of that size, and Stderr stays empty
}

// Running is an exec that has been started.
type Running struct {
	Name string // "e000001"

	sb       *Sandbox
	process  *forkexec.Process
	terminal *os.File // the outer end of its terminal, if it has one
	started  time.Time
	lookouts []lookout
	stdout   *keeper
	stderr   *keeper
	pumps    sync.WaitGroup
	timer    *time.Timer
	expired  atomic.Bool
}

// Start starts a program in the sandbox. The error is an *Error; a program that is not there, or cannot be executed,
// has one of the Code constants.
func (sb *Sandbox) Start(req Request) (*Running, error) {
	started := time.Now()
	cmd, err := sb.command(req)
	if err != nil {
		return nil, err
	}
	r := &Running{sb: sb, started: started}
	if r.Name, err = sb.nextExec(); err != nil {
		return nil, err
	}
	if r.lookouts, err = lookOut(sb.state.Launch.Watch); err != nil {
		return nil, err
	}
	cmd.Mounts = append(cmd.Mounts, cover(r.lookouts)...)
	keep := cmp.Or(sb.state.Launch.Output, DefaultOutput)
	r.stdout, r.stderr = newKeeper(keep), newKeeper(keep)
	streams, err := r.connect(req, &cmd)
	if err != nil {
		return nil, err
	}
	r.process, err = forkexec.Start(&cmd)
	streams.closeTheirs()
	if err != nil {
		streams.closeOurs()
		return nil, sb.explain(err, req)
	}
	r.watch(cmp.Or(req.Timeout, sb.state.Launch.Wall))
	streams.flow(&r.pumps)
	return r, nil
}

// command decides the whole exec.
func (sb *Sandbox) command(req Request) (forkexec.Command, error) {
	e := &sb.state.Launch
	if len(req.Args) == 0 {
		return forkexec.Command{}, fail(CodeNotFound, "", "there is no command")
	}
	dir := e.Dir
	if req.Dir != "" {
		dir = path.Join(e.Dir, req.Dir)
		if path.IsAbs(req.Dir) {
			dir = path.Clean(req.Dir)
		}
	}
	env := e.Environ(req.Caller, req.Env)
	if req.Tty != nil && variable(env, "TERM") == "" {
		env = append(env, "TERM=xterm")
	}
	in, err := sb.inside()
	if err != nil {
		return forkexec.Command{}, err
	}
	defer unix.Close(in.root)
	program, err := in.findProgram(req.Args[0], dir, variable(env, "PATH"))
	if err != nil {
		return forkexec.Command{}, err
	}
	filter, err := sb.loadFilter()
	if err != nil {
		return forkexec.Command{}, err
	}
	return forkexec.Command{
		Target: sb.init, Namespaces: e.Namespaces, DropGroups: e.DropGroups, Mounts: slices.Clip(e.Mounts),
		UID: e.UID, GID: e.GID, ShownUID: e.ShownUID, ShownGID: e.ShownGID,
		Path: program, Args: req.Args, Env: env, Dir: dir, Umask: e.Umask, Filter: filter,
	}, nil
}

func variable(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// joined are the namespaces that the sandbox has of its own. One that it shares with the host cannot be entered, nor
// needs to be.
func joined(s *specs.Spec) int {
	flags := map[specs.LinuxNamespaceType]int{
		specs.MountNamespace: unix.CLONE_NEWNS, specs.PIDNamespace: unix.CLONE_NEWPID,
		specs.NetworkNamespace: unix.CLONE_NEWNET, specs.IPCNamespace: unix.CLONE_NEWIPC,
		specs.UTSNamespace: unix.CLONE_NEWUTS, specs.CgroupNamespace: unix.CLONE_NEWCGROUP,
	}
	all := 0
	for _, ns := range s.Linux.Namespaces {
		all |= flags[ns.Type]
	}
	return all
}

// execMounts are what each exec mounts for itself: a /proc of its own PID namespace, with its masks, and the view's
// mounts that live for one exec.
func execMounts(plan *spec.Plan) []forkexec.Mount {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	list := []forkexec.Mount{{Source: "proc", Target: "/proc", Type: "proc", Flags: safe}}
	for _, p := range plan.Exec.Readonly {
		list = append(list,
			forkexec.Mount{Source: p, Target: p, Flags: unix.MS_BIND},
			forkexec.Mount{Target: p, Flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | safe})
	}
	for _, p := range plan.Exec.Hide {
		list = append(list, hideProc(p))
	}
	for i, m := range plan.View.Mounts {
		if m.PerExec {
			list = append(list, freshTmpfs(plan, i))
		}
	}
	return list
}

// hideProc covers a file or directory of /proc. Those that are directories are few and well known.
func hideProc(p string) forkexec.Mount {
	switch p {
	case "/proc/acpi", "/proc/asound", "/proc/scsi":
		return forkexec.Mount{
			Source: "tmpfs", Target: p, Type: "tmpfs", Data: "mode=0555,nr_inodes=2,size=4k",
			Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC,
		}
	}
	return forkexec.Mount{Source: "/dev/null", Target: p, Flags: unix.MS_BIND}
}

func freshTmpfs(plan *spec.Plan, i int) forkexec.Mount {
	m := spec.ViewMount(i, plan.View.Mounts[i], plan.Exec)
	var data []string
	for _, o := range m.Options {
		if strings.Contains(o, "=") {
			data = append(data, o)
		}
	}
	return forkexec.Mount{
		Source: "tmpfs", Target: m.Destination, Type: "tmpfs", Data: strings.Join(data, ","),
		Flags: unix.MS_NOSUID | unix.MS_NODEV,
	}
}

func (sb *Sandbox) loadFilter() ([]unix.SockFilter, error) {
	data, err := sb.store.root.ReadFile(filepath.Join(sb.state.ID, filterFile))
	if err == nil {
		var f []unix.SockFilter
		if f, err = forkexec.DecodeFilter(data); err == nil {
			return f, nil
		}
	}
	return nil, fail("sandbox_lost", "", "read the seccomp filter of sandbox %q: %w", sb.state.ID, err)
}

// nextExec numbers the execs of a sandbox, across the commands that start them.
func (sb *Sandbox) nextExec() (string, error) {
	f, err := sb.store.root.OpenFile(filepath.Join(sb.state.ID, "execs"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fail("state_unusable", "is the disk full?", "number exec: %w", err)
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("number exec: %w", err)
	}
	var buf [8]byte
	if _, err := f.ReadAt(buf[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("number exec: %w", err)
	}
	n := binary.LittleEndian.Uint64(buf[:]) + 1
	binary.LittleEndian.PutUint64(buf[:], n)
	if _, err := f.WriteAt(buf[:], 0); err != nil {
		return "", fail("state_unusable", "is the disk full?", "number exec: %w", err)
	}
	return fmt.Sprintf("e%06d", n), nil
}

// explain tells whose fault a failed start was.
func (sb *Sandbox) explain(err error, req Request) error {
	var step *forkexec.StepError
	switch {
	case !errors.As(err, &step):
	case step.Step == forkexec.StepExecve && errors.Is(step.Err, unix.ENOENT):
		return fail(CodeNotFound, "", "%q: %w", req.Args[0], step.Err)
	case step.Step == forkexec.StepExecve && errors.Is(step.Err, unix.E2BIG):
		return fail("arguments_too_long", "pass them in a file", "%q: %w", req.Args[0], step.Err)
	case step.Step == forkexec.StepExecve:
		return fail(CodeNotExecutable, "", "%q: %w", req.Args[0], step.Err)
	case step.Step == forkexec.StepDir:
		return fail(CodeCwd, "it must be a directory that the policy shows", "working directory %s: %w", step.Detail, step.Err)
	}
	if pidfdWait(sb.init, 0) {
		return fail("sandbox_lost", lostHint(sb.state), "sandbox %q has ended", sb.state.ID)
	}
	if d := Diagnose(); d != nil {
		return d
	}
	return fail("sandbox_unavailable", "", "start program in sandbox %q: %w", sb.state.ID, err)
}

// watch ends the exec when its time is over.
func (r *Running) watch(limit time.Duration) {
	if limit <= 0 {
		return
	}
	r.timer = time.AfterFunc(limit-time.Since(r.started), func() {
		r.expired.Store(true)
		_ = r.process.Kill()
	})
}

// Signal passes a signal on. Those that a terminal sends go to the whole foreground, as they would from one.
func (r *Running) Signal(sig unix.Signal) error {
	if sig == unix.SIGINT || sig == unix.SIGQUIT {
		return r.process.SignalGroup(sig)
	}
	return r.process.Signal(sig)
}

// Wait waits until the program has ended, everything that it started is gone and its output is complete.
func (r *Running) Wait() (*Result, error) {
	st, err := r.process.Wait()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.pumps.Wait()
	if r.terminal != nil {
		r.terminal.Close()
	}
	if err != nil {
		return nil, err
	}
	res := &Result{Sandbox: r.sb.state.ID, Exec: r.Name, Usage: Usage{WallMS: ms(time.Since(r.started))}}
	res.judge(st, r.expired.Load())
	res.keep(r.stdout, r.stderr)
	res.Warnings = moveAppeared(r.lookouts, r.sb.state.ID+"-"+r.Name)
	return res, nil
}
