package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Launch is what the short way of exec (client.c) needs to know of a sandbox, before the Go runtime starts. plan.c reads it.
type Launch struct {
	Namespaces int
	DropGroups bool
	UID, GID   int
	ShownUID   int
	ShownGID   int
	Umask      int
	Dir        string
	Mounts     []Mount
	Watch      []Watch           // the sandbox's masks; the short way gives up where one is gone
	Granted    []Watch           // and where one of the host's own paths has something else
	Env        map[string]string // what every program has
	EnvAllow   []string          // what is taken from the caller
	EnvDeny    []string          // and of that left out
	EnvSet     map[string]string
	Limits     Limits // less State and Check
	Rlimits    []Rlimit
	CPUs       *unix.CPUSet // nil: the caller's
	Answer     Answer
	Filter     []unix.SockFilter

	Grants []Grant  // that hold denied paths where nothing is
	Absent []Absent // those paths; the short way gives up where something is at one
}

// Grant is a grant on the host, and where the sandbox shows it.
type Grant struct{ Host, Shown string }

// Absent is a denied path where nothing was when the sandbox was made.
type Absent struct {
	Grant    int    // its index
	Below    string // its path there
	Writable bool
}

// Answer is what the short way of exec says and writes, in templates, and what it must know of that. In a template each of the Hole*
// stands for a value.
type Answer struct {
	Results        [4]string // a result; with bit 0 its streams were one, with bit 1 it had another time on the clock. Empty: it is for Go
	Started, Ended string    // events
	Fine, Failed   string    // what is found in a program that has exited with 0, and with anything else
	Output         int64     // bytes that are kept of each stream
	Secrets        []string  // how the names of variables end whose values are redacted
	SecretLength   int       // and how long such a value is at least
	Relay          string    // the file that the sandbox's relay holds locked, if it has one
	CPUPerWall     int       // how much of the limit of processor time comes of that of time; 0: none
	CPUBackstop    time.Duration
	Visible        [][2]uint64 // device and inode of everything of the host that the sandbox shows; empty: not known
}

// What stands in a template in place of a value.
const (
	HoleTime        = "\x01" + string(rune(C.FX_HOLE_TIME))
	HoleExec        = "\x01" + string(rune(C.FX_HOLE_EXEC))
	HoleCommand     = "\x01" + string(rune(C.FX_HOLE_COMMAND))
	HoleFinding     = "\x01" + string(rune(C.FX_HOLE_FINDING))
	HoleStatus      = "\x01" + string(rune(C.FX_HOLE_STATUS))
	HoleStdout      = "\x01" + string(rune(C.FX_HOLE_STDOUT))
	HoleStderr      = "\x01" + string(rune(C.FX_HOLE_STDERR))
	HoleStdoutBytes = "\x01" + string(rune(C.FX_HOLE_STDOUT_BYTES))
	HoleStderrBytes = "\x01" + string(rune(C.FX_HOLE_STDERR_BYTES))
	HoleWall        = "\x01" + string(rune(C.FX_HOLE_WALL))
	HoleCPU         = "\x01" + string(rune(C.FX_HOLE_CPU))
	HoleRSS         = "\x01" + string(rune(C.FX_HOLE_RSS))
	HoleWritten     = "\x01" + string(rune(C.FX_HOLE_WRITTEN))
	HoleTasks       = "\x01" + string(rune(C.FX_HOLE_TASKS))
	HoleWallLimit   = "\x01" + string(rune(C.FX_HOLE_WALL_LIMIT))
	HoleCPULimit    = "\x01" + string(rune(C.FX_HOLE_CPU_LIMIT))
)

// Watch is a path, and what is there unless somebody outside has replaced it: inside a mask, outside a directory.
type Watch struct {
	Path     string
	Dev, Ino uint64
}

// writer writes 64-bit numbers in host order and texts: a length, the bytes and a zero byte.
type writer []byte

func (b *writer) numbers(list ...uint64) {
	for _, n := range list {
		*b = binary.NativeEndian.AppendUint64(*b, n)
	}
}

func (b *writer) texts(list ...string) {
	for _, s := range list {
		b.numbers(uint64(len(s)))
		*b = append(append(*b, s...), 0)
	}
}

func (b *writer) list(list []string) {
	b.numbers(uint64(len(list)))
	b.texts(list...)
}

// Encode writes it for plan.c.
func (l *Launch) Encode() []byte {
	var b writer
	b.numbers(C.FX_LAUNCH_MAGIC)
	for _, n := range []int{l.Namespaces | unix.CLONE_NEWUSER, number(l.DropGroups), l.UID, l.GID, l.Umask} {
		b.numbers(uint64(n))
	}
	b.texts(idMap(l.ShownUID, l.UID), idMap(l.ShownGID, l.GID), l.Dir)
	for _, list := range [][]Watch{l.Watch, l.Granted} {
		b.numbers(uint64(len(list)))
		for _, w := range list {
			b.texts(w.Path)
			b.numbers(w.Dev, w.Ino)
		}
	}
	l.encodeAbsent(&b)
	b.numbers(uint64(len(l.Mounts)))
	for _, m := range l.Mounts {
		b.numbers(uint64(m.Flags))
		b.texts(m.Source, m.Target, m.Type, m.Data)
	}
	b.list(assignments(l.Env))
	b.list(l.EnvAllow)
	b.list(l.EnvDeny)
	b.list(assignments(l.EnvSet))
	l.encodeLimits(&b)
	b.texts(string(EncodeFilter(l.Filter)), string(stubELF()))
	return b
}

func (l *Launch) encodeLimits(b *writer) {
	m := &l.Limits
	b.numbers(uint64(m.Wall.Microseconds()), uint64(m.Idle.Microseconds()), uint64(m.CPU.Microseconds()),
		uint64(m.Memory), uint64(m.Pids), uint64(m.SandboxPids), uint64(m.watched()), uint64(number(m.Nproc)), uint64(m.CPUs))
	b.list(m.Tmpfs)
	b.numbers(uint64(len(m.Groups)))
	for _, g := range m.Groups {
		b.texts(g.Dir)
		b.numbers(uint64(number(g.Unified)), uint64(g.Controllers), uint64(number(g.Own)))
		b.texts(g.Join, g.Shared)
		b.numbers(uint64(len(g.Writes)))
		for _, w := range g.Writes {
			b.texts(w.File)
			b.numbers(uint64(w.Value), uint64(number(w.Optional)))
		}
		for _, c := range g.Counters {
			b.texts(c.File, c.Word)
			b.numbers(uint64(c.Divisor))
		}
	}
	b.numbers(uint64(len(l.Rlimits)))
	for _, r := range l.Rlimits {
		b.numbers(uint64(r.Resource), r.Cur, r.Max)
	}
	var mask []byte
	if l.CPUs != nil {
		mask = unsafe.Slice((*byte)(unsafe.Pointer(l.CPUs)), unsafe.Sizeof(*l.CPUs))
	}
	b.texts(string(mask))
	l.Answer.encode(b)
}

func (l *Launch) encodeAbsent(b *writer) {
	b.numbers(uint64(len(l.Grants)))
	for _, g := range l.Grants {
		b.texts(g.Host, g.Shown)
	}
	b.numbers(uint64(len(l.Absent)))
	for _, a := range l.Absent {
		b.numbers(uint64(a.Grant), uint64(number(a.Writable)))
		b.texts(a.Below)
	}
}

func (a *Answer) encode(b *writer) {
	b.texts(a.Results[:]...)
	b.texts(a.Started, a.Ended, a.Fine, a.Failed)
	b.numbers(uint64(a.Output))
	b.list(a.Secrets)
	b.numbers(uint64(a.SecretLength))
	b.texts(a.Relay)
	b.numbers(uint64(a.CPUPerWall), uint64(a.CPUBackstop.Microseconds()))
	b.numbers(uint64(len(a.Visible)))
	for _, v := range a.Visible {
		b.texts(string(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, v[0]), v[1])))
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func assignments(env map[string]string) []string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}
