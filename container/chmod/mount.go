package chmod

import (
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// The filter cannot read which file system a program mounts, and only a few may be: see spec/seccomp. So the launcher is asked, reads the
// names, and makes the mount itself, in the program's namespaces: by what it has read, which no thread of the program can change meanwhile.

// inMemory are the file systems that inner sandboxes mount, as bubblewrap for its root, --tmpfs and --dev. They belong to no namespace but
// the two that we enter. A new /proc the kernel would refuse anyway, because that of the sandbox has masks.
func inMemory() []string { return []string{"tmpfs", "devpts"} }

// refusesNew reports whether a rule of mount(2) refuses new file systems: spec/seccomp (NewMount) answers so for them alone.
func refusesNew(r specs.LinuxSyscall) bool {
	return slices.Contains(r.Names, "mount") && r.Action == specs.ActErrno && r.ErrnoRet != nil && *r.ErrnoRet == uint(unix.EACCES)
}

// maxMounts is how many of these one exec gets, those that it has unmounted included: the kernel counts a mount's memory, some kilobytes, as the
// launcher's.
const maxMounts = 16384

const (
	capSysAdmin = 1 << unix.CAP_SYS_ADMIN
	magic       = 0xc0ed0000 // what old programs have in the flags
	magicMask   = 0xffff0000
	notNew      = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_MOVE | unix.MS_SHARED | unix.MS_PRIVATE | unix.MS_SLAVE | unix.MS_UNBINDABLE
)

// mount carries out mount(2). valid says whether the process still waits, so that its number and what was read are its own.
func (c theirCall) mount(a *asked, valid func() bool) unix.Errno {
	m, errno := c.request(a)
	if errno != 0 {
		return errno
	}
	uid, gid, capable, err := c.rights()
	if err != nil || !capable {
		return unix.EPERM // as the kernel says; and the launcher must not do it for a process without the capability
	}
	m.UID, m.GID = uid, gid
	const namespace, directory = unix.O_RDONLY | unix.O_CLOEXEC, unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	for _, o := range []struct {
		name  string
		flags int
		fd    *int
	}{{"ns/user", namespace, &m.Userns}, {"ns/mnt", namespace, &m.Mntns}, {"root", directory, &m.Root}, {"cwd", directory, &m.Cwd}} {
		if *o.fd, err = unix.Openat(c.proc, o.name, o.flags, 0); err != nil {
			return unix.EPERM
		}
		defer unix.Close(*o.fd)
	}
	if link, beyond, ok := ownLink(m.Target); ok {
		at, err := unix.Openat(c.proc, link, directory, 0)
		if err != nil {
			return errnoOf(err)
		}
		defer unix.Close(at)
		m.Cwd, m.Target = at, "./"+beyond
	}
	if !valid() {
		return unix.EPERM
	}
	return m.Mount()
}

// ownLink takes a path apart that begins with a link of the process to what it has open itself, as runc and crun name what they mount on.
// For the process that mounts, /proc/self is another, or none.
func ownLink(name string) (link, beyond string, ok bool) {
	for _, dir := range []string{"/proc/self/", "/proc/thread-self/", "/dev/fd/"} {
		rest, found := strings.CutPrefix(name, dir)
		if !found {
			continue
		}
		if dir == "/dev/fd/" {
			rest = "fd/" + rest
		}
		link, beyond, _ = strings.Cut(rest, "/")
		if link == "fd" {
			link, beyond, _ = strings.Cut(beyond, "/")
			if _, err := strconv.ParseUint(link, 10, 31); err != nil {
				return "", "", false
			}
			return "fd/" + link, beyond, true
		}
		return link, beyond, link == "cwd" || link == "root"
	}
	return "", "", false
}

// request reads the arguments, and refuses what may not be mounted.
func (c theirCall) request(a *asked) (m forkexec.Theirs, errno unix.Errno) {
	m = forkexec.Theirs{Source: "none", Flags: a.Args[3]}
	if m.Flags&magicMask == magic {
		m.Flags &^= magicMask
	}
	if m.Flags&notNew != 0 {
		return m, unix.EPERM // the filter does not ask for these
	}
	for _, arg := range []struct {
		at   uint64
		text *string
		must bool
	}{{a.Args[0], &m.Source, false}, {a.Args[1], &m.Target, true}, {a.Args[2], &m.Type, true}, {a.Args[4], &m.Data, false}} {
		if arg.at == 0 && !arg.must {
			continue
		}
		var err error
		if *arg.text, err = c.text(arg.at); err != nil {
			return m, errnoOf(err)
		}
	}
	if !slices.Contains(inMemory(), m.Type) {
		return m, unix.EPERM
	}
	return m, 0
}

// rights are as whom its file system calls are made, in our own numbers, and whether it has CAP_SYS_ADMIN in its user namespace.
func (c theirCall) rights() (uid, gid int, capable bool, err error) {
	fields, err := status(c.proc)
	if err != nil {
		return 0, 0, false, err
	}
	if uid, gid, err = owner(c.proc); err != nil {
		return 0, 0, false, err
	}
	set, err := strconv.ParseUint(strings.TrimSpace(fields["CapEff"]), 16, 64)
	return uid, gid, set&capSysAdmin != 0, err
}
