package explain

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// ownDev is what stands in the sandbox's own /dev, and what a program may do with it.
func ownDev() map[string]string {
	return map[string]string{
		"/dev": "the sandbox's own devices", "/dev/null": "device", "/dev/zero": "device", "/dev/full": "device",
		"/dev/random": "device", "/dev/urandom": "device", "/dev/tty": "device", "/dev/pts": "the exec's own terminals",
		"/dev/shm": "memory that the sandbox's programs share", "/dev/pts/ptmx": "device",
	}
}

// ownLinks are those of the sandbox's own /dev, made absolute.
func ownLinks() map[string]string {
	return map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2", "/dev/ptmx": "/dev/pts/ptmx",
	}
}

// own answers for /proc and /dev, which are made by others than Compile. The way may lead out of them again.
func (w *way) own(dir, at string) bool {
	for {
		if text, ok := ownLinks()[at]; ok {
			return w.follow(at, text)
		}
		if len(w.rest) == 0 {
			break
		}
		if w.NoProc && dir == "/proc" && strings.Trim(w.rest[0], ".") != "" {
			at += "/" + remaining(w.rest[0], w.rest[1:])
			break
		}
		if !w.ownDir(at) {
			at = path.Join(at, remaining("", w.rest), ".") // nothing can be there
			w.e.Real, w.e.Rule, w.e.Verdict = at, rootfs.FromDefault, VerdictMissing
			w.e.say("%s has no such directory", dir)
			return false
		}
		part := w.rest[0]
		w.rest = w.rest[1:]
		if at = path.Join(at, part); pathname.KernelPlace(at) != dir {
			w.rest = append(strings.Split(at, "/"), w.rest...)
			w.restart()
			return true
		}
	}
	w.e.Real, w.e.Kind, w.e.Type, w.e.Rule = at, rootfs.PlaceOwn, typeDir, rootfs.FromDefault
	if dir == "/dev" {
		ownDevice(w.e, at)
	} else {
		w.ownProc(w.e, at)
	}
	if w.e.Verdict != VerdictInside {
		w.e.Kind, w.e.Type = "", ""
	}
	return false
}

// ownDir reports whether a path of /proc or /dev can be gone through.
func (w *way) ownDir(p string) bool {
	if pathname.Within(p, "/dev") {
		return ownDev()[p] != "" && ownDev()[p] != "device" || pathname.Below(p, "/dev/shm") || pathname.Below(p, "/dev/pts")
	}
	info, err := w.Tree.Lstat(p)
	return err != nil || info.Mode.IsDir() || info.Mode&fs.ModeSymlink != 0 // another row reports what is not there
}

func ownDevice(e *Explanation, p string) {
	what, ok := ownDev()[p]
	shm := pathname.Below(p, "/dev/shm")
	switch {
	case !ok:
		e.Verdict = VerdictMissing
		e.Why = append(e.Why, "/dev is the sandbox's own: it has null, zero, full, random, urandom, tty, ptmx, pts and shm, and no device of the host besides")
		if shm {
			e.Why = []string{"/dev/shm is memory of the sandbox, and empty when that is made; the program can make files in it"}
		}
		return
	case what == "device":
		e.Type = "device"
	}
	e.Verdict, e.Readable, e.Writable = VerdictInside, true, what == "device" || p == "/dev/shm"
	if what != "device" {
		e.Why = append(e.Why, p+" has "+what)
	}
	e.Why = append(e.Why, "every sandbox has it")
}

func (x *Explainer) ownProc(e *Explanation, p string) {
	if x.NoProc {
		e.Rule = keyProc
		e.say("processes.proc = false: the program has no /proc, an empty directory is there")
		e.Verdict, e.Readable = VerdictInside, true
		if p != "/proc" {
			e.Verdict, e.Readable = VerdictMissing, false
		}
		return
	}
	for up := range pathname.Ups(p) {
		if slices.Contains(x.HiddenProc, up) {
			e.Verdict = VerdictHidden
			e.Why = append(e.Why, up+" tells about the machine or steers it: it is covered in every sandbox")
			return
		}
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(p, "/proc"), "/"), "/")
	number := first != "" && strings.Trim(first, "0123456789") == ""
	switch info, err := x.Tree.Lstat(p); {
	case number && first != "1" && first != "2":
		e.Verdict = VerdictMissing
		e.Why = append(e.Why, "/proc is each exec's own and shows the processes of that exec alone: 1 is the reaper, 2 the program")
		return
	case err != nil:
		e.Verdict = VerdictMissing
		e.Why = append(e.Why, "/proc is each exec's own, and the kernel has no such file there")
		return
	default:
		e.Type = typeOf(info.Mode)
		e.Readable, e.Writable = x.Who.may(info, 4), x.Who.may(info, 2) && info.Mode&fs.ModeDir == 0
	}
	e.Verdict = VerdictInside
	for up := range pathname.Ups(p) {
		if slices.Contains(x.ReadonlyProc, up) {
			e.Writable = false
			e.Why = append(e.Why, up+" is read-only in every sandbox")
		}
	}
	e.Why = append(e.Why, "/proc is each exec's own and shows the processes of that exec alone")
}
