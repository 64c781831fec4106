package container

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// A sandbox that was created with Options.Record has a record of all that is done in it (package record). Nothing runs that
// is not told of there: what cannot be written fails.

// Options are what a sandbox is made with, beside its plan.
type Options struct {
	Owner *owner.Owner // nil: only Delete ends it
	// Once says that one program is run in it, by whoever makes it: the short way of exec is not prepared.
	Once bool
	// Record is a directory of the host in which a record is kept, or empty; absolute. The program must not see it.
	Record   string
	Versions map[string]string // of the programs and libraries that make it, for the record
}

// Recorded is where a sandbox's record is.
type Recorded struct {
	Dir     string `json:"dir"`
	Session string `json:"session"`
	UTS     uint64 `json:"uts"` // the number of a namespace that all processes of the sandbox are in
}

// CodeRecord is the code of a record that cannot be made or written.
const CodeRecord = "record_unusable"

// tellingLock is held, shared, by whoever has an exec to tell of, so that the end is the last event.
const tellingLock = "telling.lock"

func recordError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = "make room on the disk that the record is on; nothing runs that cannot be recorded"
	case errors.Is(err, unix.EEXIST):
		hint = "there is a record already: choose another directory for each sandbox"
	}
	return fail(CodeRecord, hint, "%w", err)
}

// startRecord makes the record, once the sandbox is as planned, and tells in it what it is.
func (sb *Sandbox) startRecord(plan *spec.Plan, o Options) (err error) {
	if o.Record == "" {
		return nil
	}
	sees, err := sb.shows()
	if err != nil {
		return fmt.Errorf("create record: %w", err)
	}
	at := &outputDir{name: o.Record, what: "record directory"}
	if err := at.open(sees); err != nil {
		at.discard()
		return err
	}
	defer at.close()
	w, err := record.Create(at.dir, record.FileName)
	if err != nil {
		at.discard()
		return recordError(err)
	}
	defer func() {
		w.Close() //nolint:errcheck // what was written has been synced
		if err != nil {
			_ = unix.Unlinkat(int(at.dir.Fd()), record.FileName, 0)
			at.discard()
		}
	}()
	_, w.Redactor = sb.environ(Request{})
	session, err := sb.session(plan, o)
	if err != nil {
		return err
	}
	events := []record.Event{session}
	for _, c := range sb.state.Checks {
		events = append(events, &record.Check{
			Name: c.Name, Layer: c.Layer, What: claim(c.Name), Control: c.Control, Result: string(c.Result), Why: c.Detail,
		})
	}
	if err = w.Append(events...); err == nil {
		err = w.Reserve()
	}
	if err != nil {
		return recordError(err)
	}
	sb.state.Record = &Recorded{Dir: o.Record, Session: w.Session(), UTS: session.Process.Namespaces["uts"].Inode}
	return nil
}

// session is what the sandbox is, as far as the kernel tells: as it is, not as it was planned.
func (sb *Sandbox) session(plan *spec.Plan, o Options) (*record.Session, error) {
	oci, err := json.Marshal(plan.Spec)
	if err != nil {
		return nil, fmt.Errorf("digest OCI configuration: %w", err)
	}
	process, err := record.ReadProcess(sb.proc)
	if err != nil {
		return nil, fail("sandbox_unavailable", "", "create record: %w", err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("read kernel version: %w", err)
	}
	s := &record.Session{
		Sandbox: sb.state.ID, Name: plan.Name, PolicyFile: plan.PolicyFile, PolicyDigest: plan.PolicyDigest,
		SpecDigest: record.Digest(oci), Kernel: unix.ByteSliceToString(u.Release[:]), Backend: "libcontainer",
		Process: process, Network: plan.Network, Limits: recordLimits(sb.state.Limits), Versions: maps.Clone(o.Versions),
	}
	cover := spec.CoverOf(plan.View)
	for _, m := range plan.View.Mounts {
		source := m.Source
		if m.Kind == rootfs.MountMask {
			source = cover.HostPath(m.Target)
		}
		s.Mounts = append(s.Mounts, record.Mount{Target: m.Target, Source: source, Kind: string(m.Kind), Writable: m.Writable})
	}
	for _, w := range plan.Weaker {
		s.Weaker = append(s.Weaker, record.Weakness{What: w.What, Reason: w.Reason})
	}
	return s, nil
}

func recordLimits(list []spec.Limit) []record.Limit {
	out := make([]record.Limit, len(list))
	for i, l := range list {
		out[i] = record.Limit{Name: l.Name, Value: l.Value, EnforcedBy: l.EnforcedBy, Verified: l.Verified}
	}
	return out
}

// telling is a record that is open to be told of one exec.
type telling struct {
	w    *record.Writer
	lock *os.File
}

// openRecord prepares to tell of an exec, where there is a record. If that cannot be written there is no exec.
func (r *Running) openRecord() error {
	at := r.sb.state.Record
	if at == nil {
		return nil
	}
	fd, err := unix.Openat(int(r.sb.dir.Fd()), tellingLock, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fail("state_unusable", diskHint, "open record: %w", err)
	}
	t := &telling{lock: os.NewFile(uintptr(fd), tellingLock)}
	if err = flock(t.lock, unix.LOCK_SH); err == nil {
		t.w, err = openWriter(at)
	}
	if err == nil {
		err = t.w.Reserve()
	}
	if err != nil {
		t.close()
		return recordError(err)
	}
	t.w.Redactor = r.redactor
	r.record, r.meters = t, [2]*record.Meter{record.NewMeter(), record.NewMeter()}
	r.network, err = r.sb.store.network(r.sb.state.ID)
	return err
}

func openWriter(r *Recorded) (*record.Writer, error) {
	dir, err := os.OpenFile(r.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	defer dir.Close()
	return record.Open(dir, record.FileName, r.Session)
}

func (t *telling) close() {
	if t == nil {
		return
	}
	if t.w != nil {
		t.w.Close() //nolint:errcheck // what was written has been synced
	}
	t.lock.Close()
}

// told tells how an exec ended.
func (r *Running) told(res *Result) error {
	if r.record == nil {
		return nil
	}
	u := res.Usage
	run := &record.Run{
		Exec: r.Name, ArgvSHA256: record.ArgvDigest(r.args), Cwd: r.cwd, Outcome: res.Outcome, Finding: res.Finding,
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
		return recordError(err)
	}
	return nil
}

// traffic is what has gone through the relay since the exec started. Execs that run at the same time share it.
func (r *Running) traffic() record.Traffic {
	now, _ := r.sb.store.network(r.sb.state.ID) // it is told of in events of its own
	if now == nil || r.network == nil {
		return record.Traffic{}
	}
	was := r.network
	return record.Traffic{
		Allowed: int(now.Allowed - was.Allowed), Refused: int(now.Refused - was.Refused), Failed: int(now.Failed - was.Failed),
		BytesIn: now.Received - was.Received, BytesOut: now.Sent - was.Sent,
	}
}

// endRecord tells the record of a sandbox's end, and signs it if there is a key. Its processes are gone, and its groups.
func (s *Store) endRecord(id string, st *State, why string, key ed25519.PrivateKey) (err error) {
	if st == nil {
		st, err = s.load(id)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was never complete
	}
	if err != nil { // of another version, or changed: that keeps nobody from removing it
		return fail(CodeRecord, "", "end the record of sandbox %q, if it had one: %w", id, err)
	}
	if st.Record == nil {
		if key != nil {
			return fail(CodeRecord, "sandboxrun create --record DIR", "sign record: sandbox %q has none", id)
		}
		return nil
	}
	if why == "" {
		why = s.endOf(st)
	}
	s.awaitLock(id, tellingLock) // who has an exec to tell of; where it is not told of, the record says so
	w, err := openWriter(st.Record)
	if err != nil {
		return recordError(err)
	}
	defer w.Close() //nolint:errcheck // what was written has been synced
	end := &record.End{Why: why, Execs: s.lastExec(id), Released: []string{"processes", "namespaces", "mounts"}, Litter: s.litter(st), Orphans: orphans(st)}
	if len(st.Launch.Held.Groups) > 0 {
		end.Released = append(end.Released, "control groups")
	}
	if st.Relay != nil {
		end.Released = append(end.Released, "relay")
	}
	err = w.Append(end)
	if errors.Is(err, record.ErrEnded) {
		err = nil // by a delete that was killed before it had removed the rest
	}
	if err == nil && key != nil {
		err = signRecord(st.Record, w.Head(), key)
	}
	if err != nil {
		return recordError(err)
	}
	return nil
}

// endOf says why a sandbox that nobody has deleted is no more.
func (s *Store) endOf(st *State) string {
	if st.Owner == nil {
		return record.Lost
	}
	of := *st.Owner
	pidfd, err := owner.Open(&of)
	if err != nil {
		return record.OwnerEnded
	}
	pidfd.Close()
	return record.Lost
}

func signRecord(r *Recorded, head record.Head, key ed25519.PrivateKey) error {
	dir, err := os.Open(r.Dir)
	if err != nil {
		return fmt.Errorf("sign record: %w", err)
	}
	defer dir.Close()
	return record.Sign(dir, record.FileName, head, key)
}

// lastExec is the number of the last exec: groups.c has the form.
func (s *Store) lastExec(id string) uint64 {
	data, err := s.root.ReadFile(filepath.Join(id, "execs"))
	if err != nil || len(data) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(data)
}

// litter lists what is on the host that a sandbox without a fault does not leave: files where something denied was not, and
// what was moved aside there.
func (s *Store) litter(st *State) []string {
	list := []string{}
	for _, w := range st.Launch.Watch {
		if w.Ino != 0 {
			continue
		}
		if _, err := os.Lstat(w.Host); err == nil {
			list = append(list, w.Host)
		}
		moved, _ := filepath.Glob(escapeGlob(w.Host) + ".denied-" + escapeGlob(st.ID) + "-*")
		list = append(list, moved...)
	}
	slices.Sort(list)
	return list
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// orphans lists the processes that are still in the sandbox's namespaces.
func orphans(st *State) []record.Orphan {
	list := []record.Orphan{}
	entries, _ := os.ReadDir("/proc") // without it there is nothing to be found
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		link, err := os.Readlink("/proc/" + e.Name() + "/ns/uts")
		if err == nil && link == fmt.Sprintf("uts:[%d]", st.Record.UTS) {
			list = append(list, record.Orphan{PID: pid, Command: owner.Comm(pid)})
		}
	}
	return list
}

// claim is what a check is about.
func claim(name string) string {
	for _, c := range hooks.Checks() {
		if c.Name == name {
			return c.Claim
		}
	}
	return name
}
