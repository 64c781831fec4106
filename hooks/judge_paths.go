package hooks

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// each calls a function with the facts of each path of the given kinds. A path without facts is not tested.
func (s *Subject) each(f *Facts, v *verdict, call func(Path, PathSeen), kinds ...PathKind) {
	for i, p := range s.Paths {
		switch {
		case !slices.Contains(kinds, p.Kind):
		case i >= len(f.Paths) || !f.Paths[i].seen():
			v.lack("%q was not looked at", p.Inside)
		default:
			call(p, f.Paths[i])
		}
	}
}

// seen reports whether there is any fact: an error, a file, or an attempted change.
func (s *PathSeen) seen() bool {
	return s.Inside.Err != nil || s.Inside.Ino != 0 || s.Inside.Mode != 0 || len(s.Changes) > 0
}

// judgeNested judges what was tried with a path in namespaces of the program's own.
func (s *PathSeen) judgeNested(p Path, v *verdict) {
	for _, a := range s.Nested {
		if a.Err == nil {
			v.fail("%q can be %s in a user namespace of the program's own", p.Inside, a.Name)
		}
	}
}

// judgeNested judges what was tried there with all mounts.
func (f *Facts) judgeNested(v *verdict) {
	for _, a := range f.Nested {
		if a.Err == nil {
			v.fail("the program can %s in a user namespace of its own", a.Name)
		}
	}
}

func judgeSecrets(s *Subject, f *Facts, v *verdict) { judgeAbsent(s, f, v, Secret) }

func judgeProbes(s *Subject, f *Facts, v *verdict) { judgeAbsent(s, f, v, ProbePath) }

// judgeAbsent judges paths that must not show the host's file. Another file of the same name is no fault, because the sandbox
// has a home directory too.
func judgeAbsent(s *Subject, f *Facts, v *verdict, kind PathKind) {
	existing, all := 0, 0
	s.each(f, v, func(p Path, seen PathSeen) {
		all++
		if seen.Outside.Err == nil {
			existing++
		}
		switch {
		case seen.Outside.Err != nil:
			v.lack("%q does not exist outside: %v", p.Host, seen.Outside.Err)
		case seen.Inside.Same(seen.Outside):
			v.fail("%q is visible as %q", p.Host, p.Inside)
		case seen.Inside.Err == nil, isAbsence(seen.Inside.Err):
			v.hold()
		default:
			v.lack("%q: %v", p.Inside, seen.Inside.Err)
		}
	}, kind)
	v.control = fmt.Sprintf("%d of %d exist outside", existing, all)
	if all == 0 {
		v.control = ""
	}
}

func isAbsence(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ELOOP)
}

func judgeMasks(s *Subject, f *Facts, v *verdict) {
	existing, all := 0, 0
	s.each(f, v, func(p Path, seen PathSeen) {
		all++
		if seen.Outside.Err == nil {
			existing++
		}
		seen.judgeNested(p, v)
		switch {
		case seen.Inside.Same(seen.Outside):
			v.fail("%q shows the host's file", p.Inside)
		case p.Empty && (seen.Entries > 0 || seen.Inside.Regular() && seen.Inside.Size > 0):
			v.fail("%q is not empty", p.Inside)
		case !p.Empty && seen.Inside.Err == nil && seen.Open == nil:
			v.fail("%q can be opened", p.Inside)
		case p.Host == "" || seen.Outside.Err != nil:
			v.lack("%q: the denied file cannot be looked at outside either: %v", p.Inside, seen.Outside.Err)
		case seen.Inside.Err != nil:
			v.lack("%q: there is no mask: %v", p.Inside, seen.Inside.Err)
		case !p.Empty && !errors.Is(seen.Open, unix.EACCES), p.Empty && seen.Open != nil:
			v.lack("%q: %v", p.Inside, seen.Open)
		default:
			v.hold()
		}
	}, Mask)
	s.each(f, v, func(p Path, seen PathSeen) {
		if seen.Inside.Same(seen.Outside) {
			v.fail("%q is visible as %q", p.Host, p.Inside)
		}
	}, OtherName)
	f.judgeNested(v)
	if all > 0 {
		v.control = fmt.Sprintf("%d of %d exist outside", existing, all)
	}
}

// judgeGone judges names that an overlay hides.
func judgeGone(s *Subject, f *Facts, v *verdict) {
	existing, all := 0, 0
	s.each(f, v, func(p Path, seen PathSeen) {
		all++
		if seen.Outside.Err == nil {
			existing++
		}
		switch {
		case seen.Inside.Err == nil:
			v.fail("%q is there", p.Inside)
		case seen.Outside.Err != nil:
			v.lack("%q does not exist outside: %v", p.Host, seen.Outside.Err)
		case errors.Is(seen.Inside.Err, unix.ENOENT):
			v.hold()
		default:
			v.lack("%q: %v", p.Inside, seen.Inside.Err)
		}
	}, Gone)
	if all > 0 {
		v.control = fmt.Sprintf("%d of %d exist outside", existing, all)
	}
}

func judgeProc(s *Subject, f *Facts, v *verdict) {
	null := unix.Mkdev(1, 3)
	s.each(f, v, func(p Path, seen PathSeen) {
		in := seen.Inside
		seen.judgeNested(p, v)
		switch {
		case seen.Outside.Err != nil:
			v.lack("%q does not exist outside: %v", p.Inside, seen.Outside.Err)
		case s.NoProc && errors.Is(in.Err, unix.ENOENT):
			v.hold()
		case in.Err != nil:
			v.lack("%q: %v", p.Inside, in.Err)
		case s.NoProc:
			v.fail("%q exists", p.Inside)
		case in.Dir() && in.Dev == f.ProcDev:
			v.fail("%q is not masked", p.Inside)
		case !in.Dir() && (in.Mode&unix.S_IFMT != unix.S_IFCHR || in.Rdev != null):
			v.fail("%q is not masked", p.Inside)
		default:
			v.hold()
		}
	}, HiddenProc)
	v.control = "the host's /proc has them"
}

func judgeNoProc(s *Subject, f *Facts, v *verdict) {
	if !s.NoProc {
		v.lack("not claimed: the program has a /proc")
		return
	}
	p := f.Proc
	v.control = fmt.Sprintf("the host's is of type %#x, that inside of type %#x", p.HostType, p.Type)
	if p.HostType != unix.PROC_SUPER_MAGIC {
		v.lack("the host's /proc is no procfs")
	}
	if !slices.Contains(f.Processes, 1) || !slices.Contains(f.Processes, 2) {
		v.lack("the exec's procfs does not list its processes: %v", f.ProcessesErr)
	}
	switch {
	case p.Err != nil:
		v.lack("/proc cannot be listed: %v", p.Err)
		return
	case p.Type == unix.PROC_SUPER_MAGIC:
		v.fail("/proc is a procfs")
	case p.Entries > 0:
		v.fail("/proc has %d entries", p.Entries)
	case !p.ReadOnly:
		v.fail("/proc is on a mount that can be written")
	default:
		v.hold()
	}
	for what, got := range map[string][2]error{"lstat of /proc/self": {p.Self, unix.ENOENT}, "making a directory in /proc": {p.Make, unix.EROFS}} {
		if errors.Is(got[0], got[1]) {
			v.hold()
		} else {
			v.fail("%s answers %v, not %v", what, orSuccess(got[0]), got[1])
		}
	}
}

func judgeGrants(s *Subject, f *Facts, v *verdict) {
	s.each(f, v, func(p Path, seen PathSeen) {
		in := seen.Inside
		switch {
		case in.Err != nil && seen.Changed:
			v.lack("%q was replaced outside during the check", p.Host)
		case errors.Is(in.Err, unix.EACCES):
			v.lack("%q: the mode of a directory above it does not let the program in", p.Inside)
		case in.Err != nil:
			v.fail("%q does not exist: %v", p.Inside, in.Err)
		case p.NoExec && !in.NoExec:
			v.fail("%q is on a mount from which files can be executed", p.Inside)
		case p.Host == "": // a tmpfs has no file of the host to compare with
			v.hold()
		case seen.Outside.Err != nil:
			v.lack("%q cannot be looked at outside: %v", p.Host, seen.Outside.Err)
		case p.Overlay && in.Dir():
			judgeRead(p, seen, s, v)
		case !in.Same(seen.Outside) && seen.Changed:
			v.lack("%q was replaced outside during the check", p.Host)
		case !in.Same(seen.Outside):
			v.fail("%q is not the host's %q", p.Inside, p.Host)
		default:
			judgeRead(p, seen, s, v)
		}
	}, ReadOnlyGrant, WritableGrant)
	if s.Omitted > 0 {
		v.lack("%d more grants than the check looks at", s.Omitted)
	}
	v.control = "the same inodes outside"
}

// judgeRead compares the result of reading a grant with its mode, which may refuse the program as it would outside.
func judgeRead(p Path, seen PathSeen, s *Subject, v *verdict) {
	switch {
	case seen.Open == nil:
		v.hold()
	case mayRead(seen.Outside, s):
		v.fail("%q cannot be read: %v", p.Inside, seen.Open)
	default: // the mode does not let this program read it
		v.hold()
	}
}

// mayRead reports whether the mode alone shows that the program may read, whatever its groups and the file's access control
// list are.
func mayRead(n Node, s *Subject) bool {
	const owner, all = 0o400, 0o444
	return n.Mode&all == all || n.UID == s.Owner[0] && n.Mode&owner != 0
}

func judgeReadOnly(s *Subject, f *Facts, v *verdict) {
	writable, all := 0, 0
	s.each(f, v, func(p Path, seen PathSeen) {
		if p.Kind == Mask && seen.Outside.Err != nil {
			return // the denied file does not exist
		}
		all++
		if seen.CanWrite {
			writable++
		}
		in := seen.Inside
		if p.Kind != Mask {
			seen.judgeNested(p, v)
		}
		switch {
		case p.Kind == ReadOnlyProc && s.NoProc && errors.Is(in.Err, unix.ENOENT):
			v.hold()
		case in.Err != nil:
			v.lack("%q does not exist: %v", p.Inside, in.Err)
		case !in.ReadOnly:
			v.fail("%q is on a mount that can be written", p.Inside)
		case p.Kind != Mask && seen.Write == nil && !in.special():
			v.fail("%q could be written", p.Inside)
		default:
			v.hold()
		}
	}, ReadOnlyGrant, ReadOnlyOwn, ReadOnlyProc, Mask)
	if s.Omitted > 0 {
		v.lack("%d more grants than the check looks at", s.Omitted)
	}
	v.control = fmt.Sprintf("the launcher can write %d of %d", writable, all)
}

func judgeWritable(s *Subject, f *Facts, v *verdict) {
	all := 0
	s.each(f, v, func(p Path, seen PathSeen) {
		all++
		switch {
		case seen.Write == nil:
			v.hold()
		case seen.Changed:
			v.lack("%q was replaced outside during the check", p.Host)
		case p.Host != "" && !seen.CanWrite:
			v.lack("%q: the launcher cannot write it outside either", p.Host)
		case errors.Is(seen.Write, unix.EROFS), errors.Is(seen.Write, unix.ENOENT), errors.Is(seen.Write, unix.ENOTDIR):
			v.fail("%q cannot be written: %v", p.Inside, seen.Write)
		case errors.Is(seen.Write, unix.EACCES) && (mayWrite(seen.Outside, s) || s.Owner == f.Launcher && !f.Privileged):
			v.fail("%q cannot be written: %v", p.Inside, seen.Write)
		default:
			v.lack("%q: %v", p.Inside, seen.Write)
		}
	}, WritableGrant)
	if all > 0 {
		v.control = "the launcher may write them"
	}
}
