package container

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandboxrun/sandboxrun/container/deny"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
)

// This file ends the record of a sandbox that has ended.

// recordLock is locked, shared, by each exec until its event is written, so that the end is the last event.
const recordLock = "record.lock"

// endRecord writes the last event of a sandbox's record, and signs the record if there is a key. The sandbox's processes and control
// groups are gone.
func (s *Store) endRecord(id string, st *State, why string, key ed25519.PrivateKey) (err error) {
	if st == nil {
		st, err = s.load(id)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was never complete
	}
	if err != nil { // of another version, or changed: that keeps nobody from removing it
		return fail(fault.RecordUnusable, "", "end the record of sandbox %q, if it had one: %w", id, err)
	}
	if st.Record == nil {
		if key != nil {
			return fail(fault.RecordUnusable, "sandboxrun create --record DIR", "sign record: sandbox %q has none", id)
		}
		return nil
	}
	if why == "" {
		why = s.endOf(st)
	}
	// Execs whose event is not written yet come first, and no other begins: it would be counted and find the record ended. If an
	// exec is stopped or killed, verify names it.
	defer s.awaitLock(id, recordLock)()
	w, err := st.Record.Open()
	if err != nil {
		return recording.Error(err)
	}
	defer w.Close() //nolint:errcheck // what was written has been synced
	end := &record.End{Why: why, Execs: s.lastExec(id), Released: []string{"processes", "namespaces", "mounts"}, Leftovers: deny.Leftovers(st.Launch.Watch, id), Orphans: orphans(st)}
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
		return recording.Error(err)
	}
	return nil
}

// endOf says why a sandbox that nobody has deleted has ended.
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

func signRecord(r *recording.Location, head record.Head, key ed25519.PrivateKey) error {
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

// orphans are the processes that are still in the sandbox's namespaces.
func orphans(st *State) []record.Orphan {
	list := []record.Orphan{}
	for _, pid := range procfs.LeftInUTS(st.Record.UTS) {
		list = append(list, record.Orphan{PID: pid, Command: owner.Comm(pid)})
	}
	return list
}
