package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
)

func (sb *Sandbox) noteCreated() error {
	st := sb.state
	return sb.note(true, journal.Event{Event: journal.Created, Creation: &journal.Creation{
		Name: st.Name, Policy: st.Policy, Owner: st.Owner, Pool: st.Pool, Limits: st.Limits,
	}})
}

func (r *Running) noteStarted(command string) error {
	return r.sb.note(true, journal.Event{Event: journal.Started, Exec: r.Name, ExecStart: &journal.ExecStart{Command: journal.Shorten(r.redactor.String(command), journal.MaxCommand), Detached: r.detached}})
}

func (r *Running) noteEnded(res *result.Result) error {
	events := make([]journal.Event, 0, len(res.Warnings)+1)
	for _, w := range res.Warnings {
		events = append(events, journal.Event{Event: journal.Warning, Exec: r.Name, Message: journal.Shorten(w, journal.MaxMessage)})
	}
	u := &res.Usage
	return r.sb.note(false, append(events, journal.Event{Event: journal.Ended, Exec: r.Name, ExecEnd: &journal.ExecEnd{
		Outcome: res.Outcome, Finding: res.Finding, ExitCode: res.ExitCode,
		WallMS: u.WallMS, CPUMS: u.CPUMS, MaxRSSBytes: u.MaxRSSBytes,
	}})...)
}

// unnoted is the warning that an event could not be kept: a full disk must not end an exec.
func unnoted(err error) string { return fmt.Sprintf("an event of this exec was not kept: %v", err) }

// note appends events. That the sandbox is no more is no error: then nobody reads them.
func (sb *Sandbox) note(create bool, events ...journal.Event) error {
	return journal.Append(sb.dir, create, events...)
}

// Events calls each for every event of a sandbox, also of one that has died and that nobody has swept. With follow it
// goes on with those that come, until the last event of the sandbox, or until ctx ends.
func (s *Store) Events(ctx context.Context, id string, follow bool, each func(journal.Event) error) error {
	sb, err := s.openForEvents(id)
	if err != nil {
		return err
	}
	defer sb.Close()
	log := &journal.Log{Dir: int(sb.dir.Fd()), Each: each}
	defer log.Close()
	if err := log.Find(); err != nil {
		return err
	}
	if err := log.Advance(); err != nil || !follow {
		return err
	}
	for ended := false; ; {
		was := ended
		ended = sb.init == nil || sb.WaitEnd(ctx, journal.LookAgain)
		if ended { // its launchers still write how their execs have ended
			journal.Sleep(ctx, journal.LookAgain)
		}
		if err := log.Advance(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if was {
			return each(journal.NewEnd(time.Now()))
		}
	}
}

// openForEvents is Open, but it is enough that there was a sandbox.
func (s *Store) openForEvents(id string) (*Sandbox, error) {
	sb, err := s.Open(id)
	var e *Error
	if err == nil || !errors.As(err, &e) || e.Code != fault.SandboxLost {
		return sb, err
	}
	st, loadErr := s.load(id)
	if loadErr != nil {
		return nil, err
	}
	dir, openErr := s.root.Open(id)
	if openErr != nil {
		return nil, err
	}
	return &Sandbox{store: s, state: st, dir: dir}, nil
}

// WaitEnd waits until the sandbox has ended, for so long at most, and says whether it has. The end of ctx ends it too.
func (sb *Sandbox) WaitEnd(ctx context.Context, d time.Duration) bool {
	for end := time.Now().Add(d); ; {
		left := max(0, min(time.Until(end), journal.LookAgain))
		if procfs.PidfdWait(sb.init, int((left+time.Millisecond-1)/time.Millisecond)) {
			return true
		}
		if left == 0 || ctx.Err() != nil {
			return false
		}
	}
}
