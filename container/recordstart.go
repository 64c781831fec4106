package container

import (
	"encoding/json"
	"fmt"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/hostfile"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// This file makes the record of a sandbox, with the first event: what the sandbox is.

// startRecord makes the record once the sandbox is as planned, and writes what the sandbox is.
func (sb *Sandbox) startRecord(plan *spec.Plan, o Options) (err error) {
	if o.Record == "" {
		return nil
	}
	sees, err := sb.grantedPaths()
	if err != nil {
		return fmt.Errorf("create record: %w", err)
	}
	at, err := hostfile.OpenDir(o.Record, "record directory", sees)
	if err != nil {
		return err
	}
	defer at.Close()
	w, err := record.Create(at.Dir, record.FileName)
	if err != nil {
		at.Discard()
		return recording.Error(err)
	}
	defer func() {
		w.Close() //nolint:errcheck // what was written has been synced
		if err != nil {
			_ = unix.Unlinkat(int(at.Dir.Fd()), record.FileName, 0)
			at.Discard()
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
		return recording.Error(err)
	}
	lock, err := openRecordLock(sb.dir)
	if err != nil {
		return err
	}
	lock.Close()
	sb.state.Record = &recording.Location{Dir: o.Record, Session: w.Session(), UTS: session.Process.Namespaces["uts"].Inode}
	return nil
}

// session describes the sandbox as the kernel shows it, not as it was planned.
func (sb *Sandbox) session(plan *spec.Plan, o Options) (*record.Session, error) {
	oci, err := json.Marshal(plan.OCI())
	if err != nil {
		return nil, fmt.Errorf("digest OCI configuration: %w", err)
	}
	process, err := record.ReadProcess(sb.proc)
	if err != nil {
		return nil, fail(fault.SandboxUnavailable, "", "create record: %w", err)
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
	if p := sb.state.Pool; p != nil {
		s.Pool = &record.Pool{Built: p.Built}
	}
	cover := plan.View.ByTarget()
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

// claim is what a check is about.
func claim(name string) string {
	for _, c := range hooks.Checks() {
		if c.Name == name {
			return c.Claim
		}
	}
	return name
}
