package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Sealed is what commands believe of a sandbox: it is in a sealed memfd that process 1 holds, where nobody can change it, and not in
// the state directory. launch.c reads it too.
type Sealed struct {
	StoreDev, StoreIno uint64 // of the state directory
	ID                 string
	Launch             []byte   // see Launch.Encode; empty where a plain exec has more to do
	Filter             []byte   // see EncodeFilter
	State              []byte   // what state.json has
	Record             string   // its record's directory, if it has one
	Policy             []string // the files that its policy was read from
	// Writable says what of the host its programs may write: "8:1 /home/u/project", a file system and a path in it.
	Writable []string
	// Kept is a spec.Kept, encoded; empty where nobody asks for it.
	Kept []byte
}

// SealedFD is the descriptor that process 1 has of it; see stub.c.
const SealedFD = C.FX_SEALED_FD

// MaxSealed bounds what is read of it, in bytes.
const MaxSealed = C.FX_SEALED_MAX

const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// ErrNotSealed is a process 1 that has no such memfd, or one of another sandbox.
var ErrNotSealed = errors.New("process 1 does not hold the sandbox's state")

// File writes it into a sealed memfd, for process 1 to hold.
func (s *Sealed) File() (*os.File, error) {
	fd, err := unix.MemfdCreate("sandboxrun-state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3 the last flag is unknown
		fd, err = unix.MemfdCreate("sandboxrun-state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "state")
	if err := s.write(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *Sealed) write(f *os.File) error {
	var b writer
	b.numbers(C.FX_SEALED_MAGIC, s.StoreDev, s.StoreIno)
	b.texts(s.ID, string(s.Launch), string(s.Filter), string(s.State), s.Record)
	b.list(s.Policy)
	b.list(s.Writable)
	b.texts(string(s.Kept))
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Chmod(0o400); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	return nil
}

// ReadSealed reads what process 1 holds; proc is its directory in /proc.
func ReadSealed(proc *os.File) (*Sealed, error) {
	fd, err := unix.Openat(int(proc.Fd()), fmt.Sprintf("fd/%d", SealedFD), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) { // that says nothing of the process
		return nil, fmt.Errorf("open the sandbox's state: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSealed, err)
	}
	f := os.NewFile(uintptr(fd), "state")
	defer f.Close()
	has, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || has&seals != seals {
		return nil, ErrNotSealed
	}
	info, err := f.Stat()
	if err != nil || info.Size() > C.FX_SEALED_MAX {
		return nil, ErrNotSealed
	}
	data := make([]byte, info.Size())
	if _, err := f.ReadAt(data, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSealed, err)
	}
	return decodeSealed(data)
}

func decodeSealed(data []byte) (*Sealed, error) {
	bad := false
	number := func() uint64 {
		if len(data) < 8 {
			bad = true
			return 0
		}
		n := binary.NativeEndian.Uint64(data)
		data = data[8:]
		return n
	}
	text := func() []byte {
		n := number()
		if bad || n >= uint64(len(data)) {
			bad = true
			return nil
		}
		t := data[:n]
		data = data[n+1:]
		return t
	}
	magic := number()
	s := &Sealed{StoreDev: number(), StoreIno: number()}
	s.ID, s.Launch, s.Filter, s.State, s.Record = string(text()), text(), text(), text(), string(text())
	for _, list := range []*[]string{&s.Policy, &s.Writable} {
		for n := number(); n > 0 && !bad; n-- {
			*list = append(*list, string(text()))
		}
	}
	s.Kept = text()
	if bad || magic != C.FX_SEALED_MAGIC {
		return nil, ErrNotSealed
	}
	return s, nil
}
