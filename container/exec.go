package container

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/chmod"
	"github.com/sandboxrun/sandboxrun/container/deny"
	"github.com/sandboxrun/sandboxrun/container/disk"
	"github.com/sandboxrun/sandboxrun/container/enforce"
	"github.com/sandboxrun/sandboxrun/container/guard"
	"github.com/sandboxrun/sandboxrun/container/hostfile"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/sabotage"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Running is an exec that has been started.
type Running struct {
	Name string // "e000001"

	sb       *Sandbox
	process  *forkexec.Process
	streams  *stream.Streams
	started  time.Time
	limits   enforce.Limits
	reported []spec.Limit
	disk     *disk.Watch
	denied   *deny.Found
	detached bool
	redactor *record.Redactor
	view     *result.View // what it alone sees; nil: what its sandbox shows
	warnings []string     // of its start
	carried  carriedBy
	refusals *relayproc.Refusals
	warm     *bool        // whether it has got an interpreter that was started ahead; nil: it was not to
	warmWhy  string       // why not
	board    *guard.Board // shared with its guard; nil: it has none

	// If the sandbox has a record: the record, and the measures for its event.
	record  *execRecord
	args    []string
	cwd     string
	meters  [2]*record.Meter // of the streams
	network *relayproc.Stats // at the start
}

// Start starts a program in the sandbox. The error is an *Error; a program that is not there, or cannot be executed,
// has one of the Code constants.
func (sb *Sandbox) Start(req Request) (*Running, error) {
	if req.Translate {
		req = sb.translate(req)
	}
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
		if ended := sb.ended(); ended != nil {
			err = ended
		}
		return nil, req.redactor.Error(err)
	}
	return r, nil
}

// startKeeping starts a program whose whole streams go to files too.
func (sb *Sandbox) startKeeping(req Request) (*Running, error) {
	sees, err := sb.grantedPaths()
	if err != nil {
		return nil, fmt.Errorf("keep output: %w", err)
	}
	out, err := hostfile.OpenOutput(req.OutputDir, sees)
	if err != nil {
		return nil, err
	}
	req.files = append(req.files, out.Files)
	r, err := sb.begin(req)
	if err != nil {
		out.Discard()
		return nil, err
	}
	out.Close()
	return r, nil
}

func (sb *Sandbox) begin(req Request) (_ *Running, err error) {
	started := time.Now()
	in, err := sb.inside()
	if err != nil {
		return nil, err
	}
	defer unix.Close(in.FD)
	if err := sb.ready(req); err != nil {
		return nil, err
	}
	r := &Running{sb: sb, started: started, limits: sb.effective(req), redactor: req.redactor, args: req.Args}
	cmd, x, err := sb.decide(req, in)
	r.cwd = cmd.Dir
	if x != nil {
		r.view = result.NewView(req.View.Name, x.Asked)
	}
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
			r.denied.Close()
			r.board.Close()
		}
	}()
	if err = r.equip(req, &cmd, in, x); err != nil {
		return nil, err
	}
	return r, nil
}

// equip gives the program what it shares with its guard and what the exec carries, and starts it.
func (r *Running) equip(req Request, cmd *forkexec.Command, in lookup.Root, x *spec.Extra) error {
	if err := r.shareBoard(cmd); err != nil {
		return err
	}
	if err := r.carry(req, cmd, in, x); err != nil {
		return err
	}
	defer cmd.Extra.Close()
	r.detached = req.detached
	return r.launch(req, cmd)
}

// launch starts the program.
func (r *Running) launch(req Request, cmd *forkexec.Command) error {
	sb := r.sb
	if sb.explains() {
		r.refusals = relayproc.FollowRefusals(sb.dir)
	}
	var err error
	if r.streams, err = stream.Connect(r.ends(req), cmd); err != nil {
		r.refusals.Close()
		return err
	}
	r.warnings = append(r.warnings, r.streams.Warnings...)
	sabotage.Command(cmd)
	cmd.Asks, cmd.Leaving = true, &sb.leaving
	r.process, err = r.start(req, cmd)
	r.streams.CloseTheirs()
	if err != nil {
		r.streams.CloseOurs()
		r.refusals.Close()
		return r.notStarted(err, sb.explain(err, req))
	}
	r.Name = r.process.Name
	if r.process.Listener != nil {
		go chmod.Answer(r.process.Listener) //nolint:errcheck // without an answer the kernel refuses what is asked
	}
	r.streams.Start(r.process)
	if r.process.View != nil { // while the program runs, since nobody waits for it now
		r.carried.files, r.carried.failed = sb.files(r.process.View, r.cwd)
	}
	r.refusals.Start()
	if sb.state.Relay != nil && !relayproc.Alive(sb.store.root, sb.state.ID) {
		r.warnings = append(r.warnings, relayEnded)
	}
	if err := r.noteStarted(req.Args[0]); err != nil {
		r.warnings = append(r.warnings, unnoted(err))
	}
	return nil
}

// ends are where the program's streams come from and go to.
func (r *Running) ends(req Request) stream.Ends {
	return stream.Ends{
		Stdin: req.Stdin, Stdout: req.Stdout, Stderr: req.Stderr, One: req.OneOutput && req.OutputDir == "",
		Tty: req.Tty, TtySettings: req.TtySettings, Answer: req.Answer,
		Keep: outputLimit(r.limits.Limits), KillOver: req.KillOnOutput, Idle: r.limits.Idle > 0,
		Files: req.files, Meters: r.meters, Redactor: r.redactor, Beside: r.refusals.Beside, Null: r.sb.null,
	}
}

// Signal passes a signal on. Those that a terminal sends go to the whole foreground, as they would from one.
func (r *Running) Signal(sig unix.Signal) error {
	if sig == unix.SIGINT || sig == unix.SIGQUIT {
		return r.process.SignalGroup(sig)
	}
	return r.process.Signal(sig)
}

// Cancel ends the program and all that it has started. Wait still returns the whole result, with the outcome "cancelled".
func (r *Running) Cancel() error { return r.process.Cancel() }

// Wait waits until the program has ended, everything that it started is gone and its output is complete. What the kernel and we had for it may
// go a moment later: Sandbox.Close and Sandbox.Delete wait for that, so one of them comes before the end of this process.
func (r *Running) Wait() (*result.Result, error) {
	defer r.record.close()
	st, err := r.process.Wait()
	r.process.Listener.Close() // where it has one
	r.streams.Wait()
	r.refusals.Finish()
	r.warnings = append(r.warnings, r.streams.Finish()...)
	if err != nil {
		r.carried.files.Close()
		return nil, err
	}
	full := false
	if r.disk != nil {
		full = st.Why == forkexec.ByCheck || r.disk.Final(st.Wrote) // a program may end before the kill that a look has ordered
		r.disk.Close()
	}
	res := r.conclude(st, time.Since(r.started), full)
	r.overflowed(res)
	if err := r.hearGuard(res); err != nil {
		return nil, err
	}
	r.handOver(res)
	if err := r.noteEnded(res); err != nil && !slices.Contains(res.Warnings, unnoted(err)) {
		res.Warnings = append(res.Warnings, unnoted(err))
	}
	if err := r.recordResult(res); err != nil {
		return nil, err
	}
	return res, nil
}

// conclude says what has become of an exec. It judges those of the short way too (short.go).
func (r *Running) conclude(st forkexec.Status, took time.Duration, full bool) *result.Result {
	res := &result.Result{
		Sandbox: r.sb.state.ID, Exec: r.Name, Isolated: r.sb.state.Isolated(), Merged: r.streams.Merged, Warm: r.warm, WarmWhy: r.warmWhy, View: r.view.Redacted(r.redactor.Strings),
		Usage: result.Usage{WallMS: result.Milliseconds(took)}, Limits: r.reported,
	}
	res.Judge(st, r.limits.Limits, full)
	if err := r.streams.Failed(); err != nil && res.Error == nil {
		res.Error = &result.Error{Code: fault.InputFailed, Message: fmt.Sprintf("read standard input: %v: the program was told of its end", err)}
	}
	stdout, stderr := r.streams.Kept()
	res.Keep(stdout, stderr)
	res.Warnings = r.redactor.Strings(append(r.warnings, r.denied.MoveAppeared(r.sb.state.ID+"-"+r.Name)...))
	return res
}

const relayEnded = "the sandbox's relay has ended: no forwarded port and no host can be reached"
