package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"encoding/binary"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Launch is what the plain form of the exec command needs to know of a sandbox. client.c reads it, before the Go runtime
// starts.
type Launch struct {
	PID        int    // of process 1
	StartTime  uint64 // of process 1, as in /proc/PID/stat
	Namespaces int
	DropGroups bool
	UID, GID   int
	ShownUID   int
	ShownGID   int
	Umask      int
	Dir        string
	Mounts     []Mount
	Watch      []Watch           // what the sandbox's masks hide; the plain form gives up where one is not what it was
	Env        map[string]string // what every program has
	EnvAllow   []string          // what is taken from the caller
	EnvSet     map[string]string
	Filter     []unix.SockFilter
}

// Watch is a path of the host, and what was there when the sandbox was made.
type Watch struct {
	Path     string
	Dev, Ino uint64
}

// Encode writes it as 64-bit numbers in host order and as texts: a length, the bytes and a zero byte.
func (l *Launch) Encode() []byte {
	var b []byte
	number := func(n uint64) { b = binary.NativeEndian.AppendUint64(b, n) }
	text := func(s string) {
		number(uint64(len(s)))
		b = append(append(b, s...), 0)
	}
	texts := func(list []string) {
		number(uint64(len(list)))
		for _, s := range list {
			text(s)
		}
	}
	number(C.FX_LAUNCH_MAGIC)
	groups := 0
	if l.DropGroups {
		groups = 1
	}
	for _, n := range []int{l.PID, int(l.StartTime), l.Namespaces | unix.CLONE_NEWUSER, groups, l.UID, l.GID, l.Umask} {
		number(uint64(n))
	}
	text(idMap(l.ShownUID, l.UID))
	text(idMap(l.ShownGID, l.GID))
	text(l.Dir)
	number(uint64(len(l.Watch)))
	for _, w := range l.Watch {
		text(w.Path)
		number(w.Dev)
		number(w.Ino)
	}
	number(uint64(len(l.Mounts)))
	for _, m := range l.Mounts {
		number(uint64(m.Flags))
		for _, s := range []string{m.Source, m.Target, m.Type, m.Data} {
			text(s)
		}
	}
	texts(assignments(l.Env))
	texts(l.EnvAllow)
	texts(assignments(l.EnvSet))
	text(string(EncodeFilter(l.Filter)))
	text(string(stubELF()))
	return b
}

func assignments(env map[string]string) []string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}
