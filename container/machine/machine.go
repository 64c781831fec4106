// Package machine finds out what a plan depends on of the machine and the caller: kernel, ids, processors, control groups, sockets, what of
// /proc has to be hidden.
//
// It may import cgroup, idmap, procfs, trust, forkexec, rootfs and spec.
package machine

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/container/idmap"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/survey"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Probe finds out what Resolve needs to know of the machine and the caller. What only limits need is looked for where a
// policy has such.
func Probe(l policy.Limits) (*spec.Host, error) { return Begin().Probe(l) }

// Look is a Probe that has begun, for a caller that has other work to do before it knows the limits.
type Look struct {
	// Host waits for what depends on no policy. It is the Host that Probe returns.
	Host func() (*spec.Host, error)
}

// Begin begins what Probe does.
func Begin() Look {
	l := Look{sync.OnceValues(func() (*spec.Host, error) {
		tree, err := survey.HostTree()
		if err != nil {
			return nil, err
		}
		return probe(tree)
	})}
	go l.Host() //nolint:errcheck // the caller who waits for it gets the error
	return l
}

// Probe ends it.
func (l Look) Probe(limits policy.Limits) (*spec.Host, error) {
	h, err := l.Host()
	if err != nil {
		return nil, err
	}
	return h, probeLimits(h, limits)
}

// ProbeTraced is Probe, with a trace of what of the host's files it and Resolve look at.
func ProbeTraced(l policy.Limits) (*spec.Host, *hostfs.Trace, error) {
	tree, trace, err := survey.TracedTree()
	if err != nil {
		return nil, nil, err
	}
	h, err := probe(tree)
	if err == nil {
		err = probeLimits(h, l)
	}
	if err == nil {
		for _, file := range []string{"/etc/passwd", "/etc/group", "/etc/resolv.conf"} {
			trace.Read(file)
		}
	}
	return h, trace, err
}

func probe(tree hostfs.Tree) (*spec.Host, error) {
	kernel, err := procfs.KernelVersion()
	if err != nil {
		return nil, err
	}
	h := &spec.Host{
		UID: os.Geteuid(), GID: os.Getegid(), Arch: runtime.GOARCH, Kernel: kernel, Tree: tree,
		User: UserName(os.Geteuid()), Group: groupName(os.Getegid()),
	}
	h.Root = h.UID == 0
	h.Overlays = overlays
	h.Setgroups = h.Root && setgroupsAllowed()
	if idmap.MachineRoot() {
		if h.NotApart = idmap.NotApart(); h.NotApart == "" {
			if h.Program, err = idmap.ProgramID(); err != nil {
				return nil, err
			}
			h.Idmap = idmap.Tester(h.Program, h.UID, h.GID)
		}
	}
	if data, err := os.ReadFile("/etc/resolv.conf"); err == nil { // it may be a link to nowhere
		h.Resolv = string(data)
	}
	h.Landlock, _ = procfs.Landlock()
	h.ProcFiles = procFiles(h.Root)
	h.Self = self(tree)
	h.Sockets = sockets()
	if h.Ground, err = trust.NewGround(); err != nil {
		return nil, err
	}
	return h, nil
}

// overlays says of directories why no overlay can hide names in them; empty: one can.
func overlays(dirs []string) []string {
	list := make([]string, len(dirs))
	for i, errno := range forkexec.ProbeOverlays(dirs) {
		if errno != 0 {
			list[i] = fmt.Sprintf("no overlay can be mounted over the directory: %v", errno)
		}
	}
	return list
}

// self is this program's file, if it still has the name that it was started by.
func self(tree hostfs.Tree) string {
	is, err := forkexec.ReadSelf()
	if err != nil {
		return ""
	}
	info, err := tree.Lstat(is.Path)
	if err != nil || info.Dev != is.Dev || info.Ino != is.Ino {
		return ""
	}
	return is.Path
}

// sockets lists the Unix sockets of this network namespace that have a file.
func sockets() []string {
	data, _ := os.ReadFile("/proc/thread-self/net/unix") // without it there is nothing to warn of
	var list []string
	dirs := map[string]string{}
	for line := range strings.Lines(string(data)) {
		_, name, found := strings.Cut(strings.TrimSuffix(line, "\n"), " /") // the last field; numbers stand before it
		if !found {
			continue
		}
		dir := filepath.Dir("/" + name)
		if _, known := dirs[dir]; !known { // many share one
			dirs[dir], _ = filepath.EvalSymlinks(dir)
		}
		if real := dirs[dir]; real != "" {
			list = append(list, filepath.Join(real, filepath.Base(name)))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func probeLimits(h *spec.Host, l policy.Limits) error {
	var cpus unix.CPUSet
	var files unix.Rlimit
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return fmt.Errorf("read own processors: %w", err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	h.CPUs, h.Nofile = cpus.Count(), files.Max
	h.Core = ProbeCore()
	if l.Memory > 0 || l.Pids > 0 || l.CPUs > 0 {
		h.Cgroups = cgroup.Probe()
	}
	if l.Pids > 0 && !slices.Contains(h.Cgroups.Controllers, "pids") {
		h.Nproc = forkexec.ProbeNproc()
	}
	return nil
}

// ProbeCore says what becomes of crashes. It also raises our own hard limit where that is 0 and may be raised, so that the relay's can be 1.
func ProbeCore() spec.Core {
	var c spec.Core
	data, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if pattern := strings.TrimSpace(string(data)); err == nil && strings.Trim(pattern[:min(1, len(pattern))], "|@") == "" {
		c.Pattern = pattern
	}
	var is unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &is) == nil && is.Max == 0 {
		c.Fixed = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Max: 1}) != nil
	}
	return c
}

// procFiles are the files of /proc that have to be hidden or made read-only. What only root can read needs no hiding from
// anybody else's programs; a mask costs every exec some microseconds.
func procFiles(root bool) []string {
	var list []string
	for _, p := range spec.HiddenProc() {
		if info, err := os.Lstat(p); err == nil && (root || info.Mode()&0o004 != 0) {
			list = append(list, p)
		}
	}
	for _, p := range spec.ReadonlyProc() {
		if _, err := os.Lstat(p); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// setgroupsAllowed is false for the root of an outer user namespace that was made without privilege.
func setgroupsAllowed() bool {
	data, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && string(bytes.TrimSpace(data)) == "allow"
}

// UserName finds a name for a uid that may have none (cms-dev/isolate#25).
func UserName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && plainName(u.Username) {
		return u.Username
	}
	return "user" + strconv.Itoa(uid)
}

func groupName(gid int) string {
	if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil && plainName(g.Name) {
		return g.Name
	}
	return "group" + strconv.Itoa(gid)
}

// plainName keeps names out that would not fit into /etc/passwd or a path.
func plainName(s string) bool {
	for _, c := range s {
		if c <= ' ' || c == ':' || c == '/' || c > '~' {
			return false
		}
	}
	return s != "" && s != "." && s != ".."
}
