package container

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
)

// A sandbox that was created with Options.Record has a record of all that is done in it (package record). An exec whose event cannot be
// written does not run.

// execRecord is a record that is open for the event of one exec.
type execRecord struct {
	w    *record.Writer
	lock *os.File
}

// openRecord opens the sandbox's record, if there is one, and reserves space for the exec's event. An error prevents the exec.
func (r *Running) openRecord() error {
	at := r.sb.state.Record
	if at == nil {
		return nil
	}
	lock, err := openRecordLock(r.sb.dir)
	if err != nil {
		return err
	}
	t := &execRecord{lock: lock}
	if err = flock.Lock(t.lock, unix.LOCK_SH); err == nil {
		t.w, err = at.Open()
	}
	if err == nil {
		err = t.w.Reserve()
	}
	if errors.Is(err, record.ErrEnded) {
		t.close()
		return r.sb.lost()
	}
	if err != nil {
		t.close()
		return recording.Error(err)
	}
	t.w.Redactor = r.redactor
	r.record, r.meters = t, [2]*record.Meter{record.NewMeter(), record.NewMeter()}
	r.network, err = relayproc.Counts(r.sb.store.root, r.sb.state.ID)
	return err
}

// openRecordLock opens the lock of a sandbox's record. It is made with the record, so that whoever ends the record can hold it.
func openRecordLock(dir *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), recordLock, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fail(fault.StateUnusable, fault.DiskHint, "open record: %w", err)
	}
	return os.NewFile(uintptr(fd), recordLock), nil
}

func (t *execRecord) close() {
	if t == nil {
		return
	}
	if t.w != nil {
		t.w.Close() //nolint:errcheck // what was written has been synced
	}
	t.lock.Close()
}

// recordResult writes into the record how an exec ended.
func (r *Running) recordResult(res *result.Result) error {
	if r.record == nil {
		return nil
	}
	u := res.Usage
	run := &record.Run{
		Exec: r.Name, ArgvSHA256: record.ArgvDigest(r.args), Cwd: r.cwd, View: (*record.View)(r.view), Outcome: res.Outcome, Finding: res.Finding,
		ExitCode: res.ExitCode, Signal: res.Signal, Started: r.started, Ended: time.Now(),
		Usage: record.Usage{
			WallMS: u.WallMS, CPUMS: u.CPUMS, MaxRSSBytes: u.MaxRSSBytes, WrittenBytes: u.WrittenBytes, Processes: u.Processes,
		},
		Stdout: r.meters[0].Stream(), Stderr: r.meters[1].Stream(), Limits: recordLimits(res.Limits), Network: r.traffic(),
	}
	if res.Error != nil {
		run.Error = res.Error.Code
	}
	if err := r.record.w.Append(run); err != nil {
		return recording.Error(err)
	}
	return nil
}

// traffic is what has gone through the relay since the exec started. Execs that run at the same time share it.
func (r *Running) traffic() record.Traffic {
	now, _ := relayproc.Counts(r.sb.store.root, r.sb.state.ID) // an error here has events of its own
	if now == nil || r.network == nil {
		return record.Traffic{}
	}
	was := r.network
	return record.Traffic{
		Allowed: int(now.Allowed - was.Allowed), Refused: int(now.Refused - was.Refused), Failed: int(now.Failed - was.Failed),
		BytesIn: now.Received - was.Received, BytesOut: now.Sent - was.Sent,
	}
}
