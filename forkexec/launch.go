package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"encoding/binary"
	"maps"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Launch is what the plain form of the exec command needs to know of a sandbox. client.c reads it, before the Go runtime
// starts.
type Launch struct {
	Namespaces int
	DropGroups bool
	UID, GID   int
	ShownUID   int
	ShownGID   int
	Umask      int
	Dir        string
	Mounts     []Mount
	Watch      []Watch           // the sandbox's masks; the plain form gives up where one is gone
	Granted    []Watch           // and where one of the host's own paths has something else
	Env        map[string]string // what every program has
	EnvAllow   []string          // what is taken from the caller
	EnvSet     map[string]string
	Limits     Limits // less State and Check
	Rlimits    []Rlimit
	CPUs       *unix.CPUSet // nil: the caller's
	Filter     []unix.SockFilter
}

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

// Encode writes it for launch.c.
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
	b.numbers(uint64(len(l.Mounts)))
	for _, m := range l.Mounts {
		b.numbers(uint64(m.Flags))
		b.texts(m.Source, m.Target, m.Type, m.Data)
	}
	b.list(assignments(l.Env))
	b.list(l.EnvAllow)
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
		b.numbers(uint64(number(g.Unified)), uint64(g.Controllers))
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
