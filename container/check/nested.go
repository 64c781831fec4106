package check

import (
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
)

// nested are the calls of the checks that are made last, in a user namespace and a mount namespace of the process' own, as a program
// may make them with processes.userns. What they change, if they can, is that mount namespace alone, which ends with the process.
type nested struct {
	tried bool
	made  []int // the namespaces, and a mount there: without these nothing is tested
	tries []nestedTry
	tree  []nestedTry
}

type nestedTry struct {
	path, call int
	name       string
}

func (p *probe) nest(c *Checker) {
	if p.nested.tried = c.subject.Userns; !p.nested.tried {
		return
	}
	add := func(number uintptr, args ...any) int { return p.calls.Add(forkexec.InPlace, number, args...) }
	n := &p.nested
	n.made = []int{
		add(unix.SYS_UNSHARE, unix.CLONE_NEWUSER), add(unix.SYS_UNSHARE, unix.CLONE_NEWNS),
		add(unix.SYS_MOUNT, "/dev", "/dev", nowhere, unix.MS_BIND|unix.MS_REC, nowhere), add(unix.SYS_UMOUNT2, "/dev", unix.MNT_DETACH),
	}
	for i, path := range c.subject.Paths {
		switch path.Kind {
		case hooks.Mask, hooks.HiddenProc:
			n.tries = append(n.tries, nestedTry{i, add(unix.SYS_UMOUNT2, path.Inside, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW), "unmounted"})
		case hooks.ReadOnlyGrant, hooks.ReadOnlyOwn, hooks.ReadOnlyProc:
			n.tries = append(n.tries, nestedTry{i, add(unix.SYS_MOUNT, nowhere, path.Inside, nowhere, unix.MS_REMOUNT|unix.MS_BIND, nowhere), "made writable"})
		}
	}
	// Below /proc the sandbox has mounts that pin directories, without masks.
	n.tree = []nestedTry{
		{call: add(unix.SYS_UMOUNT2, "/proc", unix.MNT_DETACH), name: "unmount /proc"},
		{call: add(unix.SYS_MOUNT, "/", "/", nowhere, unix.MS_BIND, nowhere), name: "mount the root without the mounts on it"},
	}
}

func (p *probe) readNested(f *hooks.Facts) {
	n := &p.nested
	if !n.tried {
		return
	}
	for _, t := range n.tries {
		f.Paths[t.path].Nested = append(f.Paths[t.path].Nested, hooks.Attempt{Name: t.name, Err: p.err(t.call)})
	}
	for _, t := range n.tree {
		f.Nested = append(f.Nested, hooks.Attempt{Name: t.name, Err: p.err(t.call)})
	}
}

// nestedError says what the machine refuses of what the policy lets a program do.
func (p *probe) nestedError() error {
	for i, what := range []string{"make a user namespace in the sandbox", "make a mount namespace in it", "mount there", "unmount there"} {
		if i == len(p.nested.made) {
			break
		}
		if err := p.err(p.nested.made[i]); err != nil {
			return fault.New(fault.UsernsDenied, "sandboxrun doctor says what restricts user namespaces; or leave processes.userns out of the policy",
				"processes.userns: this machine does not let a program %s: %w", what, err)
		}
	}
	return nil
}
