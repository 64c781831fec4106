package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/disk"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/sabotage"
	"github.com/sandboxrun/sandboxrun/container/setgroup"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Request is one exec. How it is sent to a monitor is in monitor.go.
type Request struct {
	Args    []string          `json:"-"`
	Dir     string            `json:"-"` // inside; empty: the policy's
	Caller  map[string]string `json:"-"` // the caller's environment, from which the policy takes what it allows
	Env     map[string]string `json:"-"` // variables of this exec alone
	Timeout time.Duration     // 0: the policy's
	Memory  int64             // bytes; 0, or more than the sandbox may use: as the sandbox
	Pids    int64             // the same for processes and threads
	Stdin   io.Reader         `json:"-"` // nil: empty
	Stdout  io.Writer         `json:"-"` // nil: kept for the Result
	Stderr  io.Writer         `json:"-"`
	Tty     *Size             `json:"-"` // not nil: the program gets a terminal of its own, of that size, and Stderr stays empty
	// TtySettings are what its terminal begins with; nil: the kernel's.
	TtySettings *unix.Termios `json:"-"`
	// OneOutput says that Stdout and Stderr are one file. Then one pipe leads there, unless OutputDir keeps the two apart.
	OneOutput bool `json:"-"`
	// OutputDir is a directory of the host where the whole streams are kept too, up to OutputDirMax each; absolute.
	OutputDir string `json:"-"`
	// Cancel ends a start that blocks; may be nil.
	Cancel *Cancel `json:"-"`
	Carried

	files    []filePair // that the streams are written to besides
	detached bool       // a monitor looks after it
	env      []string   // what the program has
	redactor *record.Redactor
}

// Cancel ends a start that blocks, by a signal: then the Result says that this has ended the program.
type Cancel = forkexec.Cancel

// Running is an exec that has been started.
type Running struct {
	Name string // "e000001"

	sb       *Sandbox
	process  *forkexec.Process
	terminal *os.File // the outer end of its terminal, if it has one
	started  time.Time
	limits   effective
	reported []spec.Limit
	disk     *disk.Watch
	lookouts *lookouts
	detached bool
	redactor *record.Redactor
	cleaned  []*record.RedactingWriter
	warnings []string      // of its start
	asking   chan struct{} // to be closed in the end, where its filter asks
	stdout   *keeper
	stderr   *keeper
	merged   bool // standard error goes the way of standard output
	carried  carriedBy
	refusals *refusals
	pumps    sync.WaitGroup

	inputFailed failure
	suspend     atomic.Pointer[func()] // see OnSuspend

	// Where there is a record: it, and what it is to be told.
	record  *telling
	args    []string
	cwd     string
	meters  [2]*record.Meter // of the streams
	network *NetworkStats    // at the start
}

// Start starts a program in the sandbox. The error is an *Error; a program that is not there, or cannot be executed,
// has one of the Code constants.
func (sb *Sandbox) Start(req Request) (*Running, error) {
	start := sb.begin
	if req.OutputDir != "" {
		start = sb.startKeeping
	}
	req.env, req.redactor = sb.environ(req)
	r, err := start(req)
	for range raceTries {
		if !lostRace(err) {
			break
		}
		r, err = start(req)
	}
	if err != nil {
		return nil, redacted(err, req.redactor)
	}
	return r, nil
}

const raceTries = 20

// lostRace says whether a mount of an exec has failed since its target went away. Those in a grant are covers of denied
// paths (watch.go), and a program that makes and removes such a path all the time must not keep others from starting.
func lostRace(err error) bool {
	var step *forkexec.StepError
	return errors.As(err, &step) && step.Step == forkexec.StepMount &&
		(step.Err == unix.ENOENT || step.Err == unix.ENOTDIR || step.Err == unix.ELOOP)
}

func (sb *Sandbox) begin(req Request) (_ *Running, err error) {
	started := time.Now()
	in, err := sb.inside()
	if err != nil {
		return nil, err
	}
	defer unix.Close(in.FD)
	if err := sb.checkGranted(); err != nil {
		return nil, err
	}
	r := &Running{sb: sb, started: started, limits: sb.effective(req), redactor: req.redactor, args: req.Args}
	cmd, err := sb.command(req, in)
	r.cwd = cmd.Dir
	if err != nil {
		return nil, r.refused(err)
	}
	if err := r.openRecord(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.record.close()
		}
	}()
	if r.limits.Disk > 0 {
		r.disk = sb.watchDisk()
		defer func() {
			if r.process == nil {
				r.disk.Close()
			}
		}()
	}
	sb.limit(&cmd, r.limits, r.disk)
	cmd.Limits.Started, cmd.Cancel = started, req.Cancel
	if r.reported, err = sb.reported(&cmd, r.limits); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.lookouts.close()
		}
	}()
	if err = r.carry(req, &cmd, in); err != nil {
		return nil, err
	}
	keep := keptOutput(r.limits.Limits)
	r.stdout, r.stderr = newKeeper(keep), newKeeper(keep)
	r.keepIn(req.files)
	r.detached = req.detached
	if err := r.launch(req, &cmd); err != nil {
		return nil, err
	}
	return r, nil
}

// launch starts the program.
func (r *Running) launch(req Request, cmd *forkexec.Command) error {
	sb := r.sb
	r.refusals = sb.followRefusals()
	streams, err := r.connect(req, cmd)
	if err != nil {
		r.refusals.close()
		return err
	}
	sabotage.Command(cmd)
	r.process, err = r.launchAsking(cmd)
	streams.closeTheirs()
	if err != nil {
		streams.closeOurs()
		r.refusals.close()
		return r.notStarted(err, sb.explain(err, req))
	}
	r.Name, r.terminal, r.carried.view = r.process.Name, r.process.Terminal, r.process.View
	streams.flow(&r.pumps)
	r.refusals.start()
	if sb.state.Relay != nil && !sb.store.relayAlive(sb.state.ID) {
		r.warnings = append(r.warnings, relayEnded)
	}
	if err := r.noteStarted(req.Args[0]); err != nil {
		r.warnings = append(r.warnings, unnoted(err))
	}
	return nil
}

// launchAsking starts the program, with the filter that asks where the sandbox has one. Where somebody outside has a filter that
// asks in place already the kernel allows no other.
func (r *Running) launchAsking(cmd *forkexec.Command) (*forkexec.Process, error) {
	if !r.sb.state.Launch.SetGroup {
		return r.sb.launchIn(cmd)
	}
	asking := *cmd
	var err error
	if asking.Filter, err = r.sb.decodeFilter(r.sb.asking); err != nil {
		return nil, err
	}
	got, closeAll, err := setgroup.Start(&asking)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	p, err := r.sb.launchIn(&asking)
	var step *forkexec.StepError
	if errors.As(err, &step) && step.Step == forkexec.StepFilter && errors.Is(step.Err, unix.EBUSY) {
		return r.sb.launchIn(cmd)
	}
	if err == nil {
		r.asking = make(chan struct{})
		if err = got(r.asking); err != nil {
			_ = p.Kill()
		}
	}
	return p, err
}

// command decides the whole exec.
func (sb *Sandbox) command(req Request, in lookup.Root) (forkexec.Command, error) {
	e := &sb.state.Launch
	if len(req.Args) == 0 {
		return forkexec.Command{}, fail(lookup.CodeNotFound, "", "there is no command")
	}
	dir := e.Dir
	if req.Dir != "" {
		dir = path.Join(e.Dir, req.Dir)
		if path.IsAbs(req.Dir) {
			dir = path.Clean(req.Dir)
		}
	}
	program, put := putsProgram(req, req.Args[0], dir)
	if !put {
		var err error
		if program, err = in.Find(req.Args[0], dir, variable(req.env, "PATH")); err != nil {
			return forkexec.Command{}, err
		}
	}
	filter, err := sb.loadFilter()
	if err != nil {
		return forkexec.Command{}, err
	}
	cmd := sb.place(filter)
	cmd.Path, cmd.Args, cmd.Env, cmd.Dir = program, req.Args, req.env, dir
	return cmd, nil
}

// place is where every program of the sandbox runs.
func (sb *Sandbox) place(filter []unix.SockFilter) forkexec.Command {
	e := &sb.state.Launch
	return forkexec.Command{
		Target: sb.init, Namespaces: e.Namespaces, DropGroups: e.DropGroups, Mounts: slices.Clip(e.Mounts),
		UID: e.UID, GID: e.GID, ShownUID: e.ShownUID, ShownGID: e.ShownGID, Dir: e.Dir, Umask: e.Umask, Filter: filter,
		Once: e.NoSpawn, Execute: e.Execute,
	}
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
// needs to be; that of control groups each exec makes for itself.
func joined(s *specs.Spec) int {
	flags := map[specs.LinuxNamespaceType]int{
		specs.MountNamespace: unix.CLONE_NEWNS, specs.PIDNamespace: unix.CLONE_NEWPID,
		specs.NetworkNamespace: unix.CLONE_NEWNET, specs.IPCNamespace: unix.CLONE_NEWIPC,
		specs.UTSNamespace: unix.CLONE_NEWUTS,
	}
	all := 0
	for _, ns := range s.Linux.Namespaces {
		all |= flags[ns.Type]
	}
	return all
}

func (sb *Sandbox) loadFilter() ([]unix.SockFilter, error) { return sb.decodeFilter(sb.filter) }

func (sb *Sandbox) decodeFilter(data []byte) ([]unix.SockFilter, error) {
	f, err := forkexec.DecodeFilter(data)
	if err != nil {
		return nil, fail("sandbox_lost", "", "read the seccomp filter of sandbox %q: %w", sb.state.ID, err)
	}
	return f, nil
}

// explain tells whose fault a failed start was.
func (sb *Sandbox) explain(err error, req Request) error {
	var step *forkexec.StepError
	switch {
	case !errors.As(err, &step) && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)):
		return fail("state_unusable", diskHint, "start program in sandbox %q: %w", sb.state.ID, err)
	case !errors.As(err, &step):
	case step.Step == forkexec.StepExecve:
		return sb.notExecuted(step.Err, req.Args[0])
	case step.Step == forkexec.StepUserns && errors.Is(step.Err, unix.EAGAIN) && sb.state.Launch.Limits.Pids > 0:
		return fail(diagnose.CodeLimitReached, "end other programs in the sandbox: sandboxrun ps "+sb.state.ID,
			"start program in sandbox %q: its limit of processes is reached: %w", sb.state.ID, step.Err)
	case step.Step == forkexec.StepRlimit && step.Detail == forkexec.CoreLimit:
		return fail("limit_unenforceable", spec.CoreHint, "start program in sandbox %q: if it crashed, the host's core handler would run: %w",
			sb.state.ID, err)
	case step.Step == forkexec.StepTerminal:
		return fail("no_terminal", "", "open a terminal in sandbox %q: %w", sb.state.ID, step.Err)
	case step.Step == forkexec.StepPut:
		return putFailed(step)
	case step.Step == forkexec.StepDir:
		return fail(lookup.CodeCwd, "it must be a directory that the policy shows", "working directory %s: %w", step.Detail, step.Err)
	}
	if procfs.PidfdWait(sb.init, 50) { // it may be about to end: then parts of it are gone already
		return sb.lost()
	}
	if hint := diagnose.Scarce(err); hint != "" {
		what := "start program"
		if diagnose.RefusedProcess(err) {
			what = "start the processes of a program"
		}
		return fail(diagnose.CodeLimitReached, hint, "%s in sandbox %q: %w", what, sb.state.ID, err)
	}
	if step != nil && step.Step == forkexec.StepUserns { // probed now, the sandbox that is there would count too
		return diagnose.NoNextBest(diagnose.Step(forkexec.ProbeNested, step.Err, diagnose.Surroundings()).Err, sb.state.BestEffort)
	}
	if d := diagnose.Machine(); d != nil {
		return diagnose.NoNextBest(d, sb.state.BestEffort)
	}
	return fail("sandbox_unavailable", "", "start program in sandbox %q: %w", sb.state.ID, err)
}

// Signal passes a signal on. Those that a terminal sends go to the whole foreground, as they would from one.
func (r *Running) Signal(sig unix.Signal) error {
	if sig == unix.SIGINT || sig == unix.SIGQUIT {
		return r.process.SignalGroup(sig)
	}
	return r.process.Signal(sig)
}

// Kill ends the program and all that it has started. Wait still tells what there is to tell.
func (r *Running) Kill() error { return r.process.Kill() }

// Wait waits until the program has ended, everything that it started is gone and its output is complete.
func (r *Running) Wait() (*Result, error) {
	defer r.record.close()
	st, err := r.process.Wait()
	if r.asking != nil {
		close(r.asking)
	}
	r.pumps.Wait()
	r.refusals.finish()
	for _, w := range r.cleaned {
		_ = w.Close() // what it writes to never fails
	}
	r.warnings = append(r.warnings, r.closeFiles()...)
	if r.terminal != nil {
		r.terminal.Close()
	}
	if err != nil {
		r.carried.view.Close()
		return nil, err
	}
	full := false
	if r.disk != nil {
		full = st.Why == forkexec.ByCheck || r.disk.Final(st.Wrote) // a program may end before the kill that a look has ordered
		r.disk.Close()
	}
	res := r.conclude(st, time.Since(r.started), full)
	r.overflowed(res)
	r.handOver(res)
	if err := r.noteEnded(res); err != nil && !slices.Contains(res.Warnings, unnoted(err)) {
		res.Warnings = append(res.Warnings, unnoted(err))
	}
	if err := r.told(res); err != nil {
		return nil, err
	}
	return res, nil
}

// conclude says what has become of an exec. It judges those of the short way too (short.go).
func (r *Running) conclude(st forkexec.Status, took time.Duration, full bool) *Result {
	res := &Result{
		Sandbox: r.sb.state.ID, Exec: r.Name, Isolated: r.sb.state.Isolated(), Merged: r.merged,
		Usage: Usage{WallMS: ms(took)}, Limits: r.reported,
	}
	res.judge(st, r.limits.Limits, full)
	if err := r.inputFailed.get(); err != nil && res.Error == nil {
		res.Error = &ResultError{Code: CodeInputFailed, Message: fmt.Sprintf("read standard input: %v: the program was told of its end", err)}
	}
	res.keep(r.stdout, r.stderr)
	res.Warnings = r.redactor.Strings(append(r.warnings, r.lookouts.moveAppeared(r.sb.state.ID+"-"+r.Name)...))
	return res
}

const relayEnded = "the sandbox's relay has ended: no forwarded port and no host can be reached"
