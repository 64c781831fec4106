// Package guard is processes.guard = "python": a shared library (lib, in C) that the ELF loader puts into the interpreter, and the
// memory that the launcher shares with it. The package changes the command of an exec so that nothing runs without the library, and reads
// what the library has written when the exec has ended.
//
// Three things hold that. The library is the loader's first (LD_PRELOAD), and a program that another file than a loader loads is refused.
// The first argument is an option that only the library takes away, so an interpreter without it ends with a usage error. And the
// library ends every program that is no Python from 3.8 on.
//
// It imports of ours only packages fault, lookup and spec.
package guard

import (
	"bytes"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec"
)

const (
	// Path is the library's path inside.
	Path = "/.sandboxrun-guard.so"

	option = "--sandboxrun-guard" // lib/guard.h
	magic  = 0x31647267
	// Exceeded is the exit status of a program that has used up its steps.
	Exceeded = 121
)

//go:embed built
var built embed.FS

// Library is the shared library. The error says that this binary was built without it.
func Library() (string, error) {
	data, err := built.ReadFile("built/guard.so")
	if err != nil {
		return "", fault.New(fault.GuardUnsupported, "build it with scripts/build", "processes.guard: this binary has no guard: %w", err)
	}
	return string(data), nil
}

// board has the layout of struct board in lib/guard.h.
type board struct {
	Magic, State      uint32
	Limit             uint64
	Counts            uint64
	Steps             uint64
	Exceeded, Refused uint32
	Native            [4056]byte
}

// Values of board.State.
const (
	loaded   = 1
	noPython = 2
)

// Board is the memory that an exec shares with its guard.
type Board struct{ file *os.File }

// New makes the memory, with what the guard has to know.
func New(g *spec.Guard) (*Board, error) {
	b := board{Magic: magic, Limit: uint64(g.Steps)}
	text := strings.Join(append(slices.Clone(g.Native), "", ""), "\x00")
	if copy(b.Native[:], text) < len(text) {
		return nil, fault.New(fault.GuardUnsupported, "name fewer interpreters", "processes.guard: the interpreters have too many directories of libraries")
	}
	fd, err := unix.MemfdCreate("sandboxrun-guard", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("sandboxrun-guard", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make the guard's memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "guard")
	var data bytes.Buffer
	_ = binary.Write(&data, binary.NativeEndian, &b) // a buffer takes everything
	if _, err = f.Write(data.Bytes()); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("make the guard's memory: %w", err)
	}
	return &Board{f}, nil
}

// File is the memory, for the program. It stays the Board's.
func (b *Board) File() *os.File {
	if b == nil {
		return nil
	}
	return b.file
}

// Close gives the memory up. A Board may be nil.
func (b *Board) Close() {
	if b != nil {
		b.file.Close()
	}
}

// Word is what the guard has written. Code in the interpreter's process has written it: see docs/security.md.
type Word struct {
	Loaded   bool  // the guard was in the process before Python started
	NoPython bool  // it found no Python of 3.8 or later, and has ended the program
	Counts   int64 // the step budget that it began to count down, or 0
	Steps    int64 // counted
	Exceeded bool
}

// Read reads it.
func (b *Board) Read() (Word, error) {
	data := make([]byte, binary.Size(board{}))
	var is board
	_, err := b.file.ReadAt(data, 0)
	if err == nil {
		err = binary.Read(bytes.NewReader(data), binary.NativeEndian, &is)
	}
	if err != nil {
		return Word{}, fmt.Errorf("read the guard's memory: %w", err)
	}
	return Word{
		Loaded: is.State == loaded, NoPython: is.State == noPython, Counts: int64(is.Counts), Steps: int64(is.Steps), Exceeded: is.Exceeded != 0,
	}, nil
}

// Guarded is how a program is started with its guard.
type Guarded struct {
	Path string
	Args []string
	Env  []string
}

// Command changes a command. A script is started by its interpreter, as the kernel would.
func Command(in lookup.Root, path string, args, env []string) (Guarded, error) {
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "LD_") {
			return Guarded{}, fault.New(fault.GuardUnsupported, "take it out of env.allow and env.set", "processes.guard: the variable %s could put other libraries before the guard", name)
		}
	}
	path, args, err := in.Interpreted(path, args, variable(env, "PATH"))
	if err != nil {
		return Guarded{}, err
	}
	return Guarded{path, slices.Insert(slices.Clone(args), 1, option), append(slices.Clip(env), "LD_PRELOAD="+Path)}, nil
}

func variable(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// Failed is why a program was not guarded, and so has not run; nil if it was.
func (w Word) Failed(program string) error {
	switch {
	case w.NoPython:
		return fault.New(fault.GuardUnsupported, `the guard works in Python 3.8 and later: start the program with one, or leave processes.guard out`,
			"processes.guard = \"python\": %q is no Python 3.8 or later", program)
	case !w.Loaded:
		return fault.New(fault.GuardUnsupported, "sandboxrun explain --exe says how it is loaded", "processes.guard = \"python\": the guard was not loaded into %q, which has not run", program)
	}
	return nil
}
