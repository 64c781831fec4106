package hooks

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// mayWrite reports whether the mode alone shows that the program may write, as mayRead does for reading.
func mayWrite(n Node, s *Subject) bool {
	const owner = 0o200
	return n.Err == nil && n.UID == s.Owner[0] && n.Mode&owner != 0
}

func judgeID(s *Subject, f *Facts, v *verdict) {
	v.control = fmt.Sprintf("the launcher is uid %d, gid %d", f.Launcher[0], f.Launcher[1])
	switch is := f.HostID; {
	case f.HostIDErr != nil:
		v.lack("no message of the program arrives: %v", f.HostIDErr)
	case is != s.ID:
		v.fail("to the host the program is uid %d, gid %d, not uid %d, gid %d", is[0], is[1], s.ID[0], s.ID[1])
	case is[0] == 0 && s.MayOwn != "":
		v.lack("not claimed: %s", s.MayOwn)
	case is[0] == 0:
		v.fail("to the host the program is root")
	default:
		v.hold()
	}
	s.each(f, v, func(p Path, seen PathSeen) {
		switch {
		case seen.Made == nil:
		case seen.Made.Err != nil:
			v.lack("the owner on disk of a file in %q cannot be read: %v", p.Inside, seen.Made.Err)
		case seen.Made.UID != s.Owner[0]:
			v.fail("a file that the program makes in %q belongs to uid %d on disk, not to uid %d", p.Inside, seen.Made.UID, s.Owner[0])
		default:
			v.hold()
		}
	}, WritableGrant)
}

// refusal reports whether an error means that the kernel refused a change. Other errors mean that the change failed for
// another reason.
func refusal(err error) bool {
	for _, e := range []unix.Errno{unix.EPERM, unix.EACCES, unix.EROFS, unix.EXDEV, unix.EBUSY, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// judgeForeign judges attempted changes. Where the kernel allows such a change, the attempt has no effect, and its error is
// never one of the refusals.
func judgeForeign(s *Subject, f *Facts, v *verdict) {
	own, all := 0, 0
	s.each(f, v, func(p Path, seen PathSeen) {
		if seen.Inside.Err != nil {
			v.lack("%q: %v", p.Inside, seen.Inside.Err)
			return
		}
		all++
		if p.Host != "" && seen.Outside.Err == nil && seen.Outside.UID == f.Launcher[0] {
			own++
		}
		for _, a := range seen.Changes {
			switch {
			case refusal(a.Err):
				v.hold()
			case errors.Is(a.Err, unix.ENOENT), errors.Is(a.Err, unix.ENOSYS):
				v.lack("%s of %q: %v", a.Name, p.Inside, a.Err)
			case s.MayOwn != "":
				v.lack("%s of %q is not refused: %s", a.Name, p.Inside, s.MayOwn)
			default:
				v.fail("%s of %q is not refused: %v", a.Name, p.Inside, orSuccess(a.Err))
			}
		}
	}, Foreign)
	v.control = fmt.Sprintf("%d of %d are the launcher's own", own, all)
}
