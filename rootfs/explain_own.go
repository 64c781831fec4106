package rootfs

import (
	"io/fs"
	"slices"
	"strings"
)

// ownDev is what stands in the sandbox's own /dev, and what a program may do with it.
func ownDev() map[string]string {
	return map[string]string{
		"/dev": "the sandbox's own devices", "/dev/null": "device", "/dev/zero": "device", "/dev/full": "device",
		"/dev/random": "device", "/dev/urandom": "device", "/dev/tty": "device", "/dev/pts": "the sandbox's own terminals",
		"/dev/shm": "memory that the sandbox's programs share", "/dev/ptmx": "device", "/dev/fd": "link", "/dev/stdin": "link",
		"/dev/stdout": "link", "/dev/stderr": "link",
	}
}

// own answers for /proc and /dev, which are made by others than Compile. p is clean, and may lead out of them again.
func (w *way) own(dir, p string) bool {
	if kernelPlace(p) != dir {
		w.rest = strings.Split(p, "/")
		w.restart()
		return true
	}
	w.e.Real, w.e.Kind, w.e.Type, w.e.Rule = p, PlaceOwn, typeDir, fromDefault
	if dir == "/dev" {
		ownDevice(w.e, p)
	} else {
		w.ownProc(w.e, p)
	}
	if w.e.Verdict != VerdictInside {
		w.e.Kind, w.e.Type = "", ""
	}
	return false
}

func ownDevice(e *Explanation, p string) {
	what, ok := ownDev()[p]
	shm := below(p, "/dev/shm")
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
	case what == "link":
		e.Type = typeFile
		e.Why = append(e.Why, "it leads to what the program has open")
	}
	e.Verdict, e.Readable, e.Writable = VerdictInside, true, what == "device" || p == "/dev/shm"
	if what != "device" && what != "link" {
		e.Why = append(e.Why, p+" has "+what)
	}
	e.Why = append(e.Why, "every sandbox has it")
}

func (x *Explainer) ownProc(e *Explanation, p string) {
	for up := range ups(p) {
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
	for up := range ups(p) {
		if slices.Contains(x.ReadonlyProc, up) {
			e.Writable = false
			e.Why = append(e.Why, up+" is read-only in every sandbox")
		}
	}
	e.Why = append(e.Why, "/proc is each exec's own and shows the processes of that exec alone")
}
