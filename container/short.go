package container

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/deny"
	"github.com/sandboxrun/sandboxrun/container/enforce"
	"github.com/sandboxrun/sandboxrun/container/hostfile"
	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/container/template"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/secret"
	"github.com/sandboxrun/sandboxrun/spec"
)

// An exec whose command line is plain takes the short way (forkexec/client.c): it is run before Go starts. Here is what a sandbox gives
// it for that, its answers included, and what becomes of an exec that has ended otherwise than by its program's exit.

// shortLaunch is what the short way reads. Where an exec has more to do than to start a program it is nil.
func (sb *Sandbox) shortLaunch(filter []unix.SockFilter) (*forkexec.Launch, error) {
	l := &sb.state.Launch
	if l.Limits.Disk > 0 || l.Userns || l.NoSpawn || len(l.Execute) > 0 || l.Guard != nil || sb.state.Record != nil || len(l.Steps) > 0 || sb.explains() {
		return nil, nil
	}
	var cmd forkexec.Command
	sb.limit(&cmd, sb.effective(Request{}), nil)
	launch := &forkexec.Launch{
		Namespaces: l.Namespaces, DropGroups: l.DropGroups,
		UID: l.UID, GID: l.GID, ShownUID: l.ShownUID, ShownGID: l.ShownGID, Umask: l.Umask, Dir: l.Dir,
		Mounts: l.Mounts, Granted: shortGranted(l.Granted), Env: l.Env, EnvAllow: l.EnvAllow, EnvDeny: l.EnvDeny, EnvSet: l.EnvSet, Filter: filter,
		Limits: cmd.Limits, Rlimits: cmd.Rlimits, CPUs: cmd.CPUs,
	}
	for _, w := range l.Watch {
		if w.Ino != 0 {
			launch.Watch = append(launch.Watch, forkexec.Watch{Path: w.Inside, Dev: w.Dev, Ino: w.Ino})
			continue
		}
		grant := forkexec.Grant{Host: w.Grant, Shown: w.ShownGrant()}
		at := slices.Index(launch.Grants, grant)
		if at < 0 {
			at = len(launch.Grants)
			launch.Grants = append(launch.Grants, grant)
		}
		launch.Absent = append(launch.Absent, forkexec.Absent{Grant: at, Below: w.Below(), Writable: w.Writable})
	}
	var err error
	if launch.Answer, err = sb.answer(); err != nil {
		return nil, err
	}
	return launch, nil
}

// renamed is the same for another id.
func renamed(l *forkexec.Launch, from, to string) *forkexec.Launch {
	if l != nil {
		for i, text := range l.Answer.Results {
			l.Answer.Results[i] = strings.Replace(text, strconv.Quote(from), strconv.Quote(to), 1)
		}
	}
	return l
}

// answer makes the templates.
func (sb *Sandbox) answer() (forkexec.Answer, error) {
	l := &sb.state.Launch
	fine, failed := "null", strconv.Quote(result.FindingFailed)
	a := forkexec.Answer{
		Fine: fine, Failed: failed, Output: outputLimit(l.Limits), CPUBackstop: enforce.Backstop, Visible: sb.visible(),
	}
	if l.CPUFollowsWall {
		a.CPUPerWall = int(spec.CPUTime(1))
	}
	if l.Redact {
		a.Secrets, a.SecretLength = secret.Ends(), secret.MinLength
	}
	if sb.state.Relay != nil {
		a.Relay = relayproc.Lock
	}
	var err error
	for i := range a.Results {
		if a.Results[i], err = sb.resultTemplate(i&forkexec.ShortMerged != 0, i&forkexec.ShortTimeout != 0); err != nil {
			return a, err
		}
	}
	if a.Started, err = template.Started(); err != nil {
		return a, err
	}
	a.Ended, err = template.Ended()
	return a, err
}

// resultTemplate is the result of a program that has exited.
func (sb *Sandbox) resultTemplate(merged, timeout bool) (string, error) {
	var cmd forkexec.Command
	limits := sb.effective(Request{})
	if timeout {
		limits.Within(template.Time)
	}
	sb.limit(&cmd, limits, nil)
	reported, err := sb.reported(&cmd, limits)
	if err != nil {
		return "", err
	}
	r := (&Running{sb: sb, Name: template.Text(forkexec.HoleExec), limits: limits, reported: reported, streams: stream.Ended(stream.NewKeeper(1), stream.NewKeeper(1), merged, nil)}).
		conclude(forkexec.Status{}, 0, false)
	more := map[string]string{}
	if timeout {
		more[fmt.Sprintf("%.0f", limits.Wall.Seconds())] = forkexec.HoleWallLimit
		if sb.state.Launch.CPUFollowsWall {
			more[fmt.Sprintf("%.0f", limits.CPU.Seconds())] = forkexec.HoleCPULimit
		}
	}
	return template.Result(r, more)
}

// visible are the device and inode of all that the sandbox shows, so that nothing goes where a program could be. It is empty
// where that is not known.
func (sb *Sandbox) visible() [][2]uint64 {
	shows, err := sb.grantedPaths()
	if err != nil {
		return nil
	}
	in, err := sb.inside()
	if err != nil {
		return nil
	}
	defer unix.Close(in.FD)
	var list [][2]uint64
	targets := map[string]bool{}
	for _, m := range shows.There {
		dev, ino, err := in.Identify(m.Target)
		if err != nil || targets[m.Target] { // what is mounted over something else hides that
			return nil
		}
		targets[m.Target] = true
		list = append(list, [2]uint64{dev, ino})
	}
	return list
}

// Ended is an exec of the short way that is to be judged.
type Ended struct {
	*forkexec.Short
	sb *Sandbox
}

// TakeEnded gives the exec that was run before Go started, if there is one. It gives it once.
func TakeEnded() (*Ended, error) {
	short, err := forkexec.TakeShort()
	if short == nil || err != nil {
		return nil, err
	}
	if claim := forkexec.TakeClaim(); claim != nil && len(short.Sealed.State) == 0 { // what process 1 held before it was complete is all that was read of it
		return nil, fail(fault.SandboxLost, "", "sandbox %q has ended", claim.ID)
	}
	state, err := parseState(short.Sealed.ID, short.Sealed.State)
	if err != nil {
		return nil, err
	}
	return &Ended{short, &Sandbox{state: state, dir: short.State}}, nil
}

// Result is what has become of it.
func (e *Ended) Result(req Request) (*result.Result, error) {
	sb := e.sb
	req.env, req.redactor = sb.environ(req)
	r := &Running{
		sb: sb, Name: e.Exec, limits: sb.effective(req), redactor: req.redactor, args: req.Args,
		streams: stream.Ended(e.keeper(0, req.Stdout != nil), e.keeper(1, req.Stderr != nil), e.Merged, e.InputFailed),
		denied:  deny.Restore(e.sb.state.Launch.Watch, e.Absent),
	}
	var cmd forkexec.Command
	sb.limit(&cmd, r.limits, nil)
	var err error
	if r.reported, err = sb.reported(&cmd, r.limits); err != nil {
		return nil, err
	}
	if e.RelayGone {
		r.warnings = append(r.warnings, relayEnded)
	}
	if e.NoteFailed != nil {
		r.warnings = append(r.warnings, unnoted(fmt.Errorf("write %s: %w", journal.File, e.NoteFailed)))
	}
	res := r.conclude(e.Status, e.Wall, false)
	if e.Noted {
		return res, nil
	}
	if err := r.noteEnded(res); err != nil && !slices.Contains(res.Warnings, unnoted(err)) {
		res.Warnings = append(res.Warnings, unnoted(err))
	}
	return res, nil
}

func (e *Ended) keeper(i int, away bool) *stream.Keeper {
	k := &e.Output[i]
	size := int(outputLimit(e.sb.state.Launch.Limits))
	return stream.Restore(size, k.Head, k.Tail, k.Next, k.Total, away || i == 1 && e.Merged)
}

// File is where its result is to be written, if that is a file which is not whole yet.
func (e *Ended) File(name string) *hostfile.File {
	if e.ResultDir == nil {
		return nil
	}
	return hostfile.Begun(name, e.ResultDir, e.ResultName, e.ResultFile)
}

// Failed is why a stream of the program's could not be written: 0 is standard output.
func (e *Ended) Failed(stream int) error { return e.Output[stream].Failed }
