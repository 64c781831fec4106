package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// Limits are a whole sandbox's; 0: none.
type Limits struct {
	Memory int64 // bytes
	Pids   int64
	CPUs   float64
}

// Period is over how long the kernel counts CPU time, in microseconds: its own default.
const Period = 100_000

// wanted are the controllers that hold limits.
func wanted() []string { return []string{"memory", "pids", "cpu"} }

// needs are the controllers that hold these limits.
func (l Limits) needs() []string {
	var list []string
	for _, c := range wanted() {
		if l.Memory > 0 && c == "memory" || l.Pids > 0 && c == "pids" || l.CPUs > 0 && c == "cpu" {
			list = append(list, c)
		}
	}
	return list
}

// pages is what the kernel makes of a number of bytes.
func (l Limits) pages() string {
	return strconv.FormatInt(l.Memory-l.Memory%int64(os.Getpagesize()), 10)
}

// quota is the CPU time in each period, in microseconds.
func (l Limits) quota() int64 { return int64(l.CPUs*Period + 0.5) }

// Probe finds the best control groups for sandboxes of this process. It makes a group, which nothing enters, writes
// limits, reads them back and removes it. On a delegated cgroup v2 the controllers are enabled for children, and stay so.
// To make a scope of systemd's takes too long to do it twice: there it makes sure that systemd answers and has the
// controllers.
func Probe() spec.Cgroups {
	m, err := thisMachine()
	if err != nil {
		return spec.Cgroups{Reason: err.Error()}
	}
	return m.probe()
}

func (m *hierarchies) probe() spec.Cgroups {
	var best spec.Cgroups
	var reasons []string
	rate := func(f spec.Cgroups) int { return len(intersect(wanted(), f.Controllers)) }
	for _, rung := range []func() (spec.Cgroups, error){m.probeDelegated, m.probeScope, m.probeLegacy} {
		facts, err := rung()
		if rate(facts) > rate(best) {
			best = facts
		}
		if err != nil {
			reasons = append(reasons, err.Error())
		}
		if rate(best) == len(wanted()) {
			break
		}
	}
	m.disableUnused(best)
	best.Reason = strings.Join(reasons, "; ")
	return best
}

// Make makes the sandbox's own groups, named name, writes those limits for which facts has a controller, and reads each
// back. note is called with every path
// (a directory, or "scope:UNIT") before it is made, so that a creator that dies leaves nothing that RemoveNoted would not
// find. pid is the sandbox's process 1, with which a scope begins; the other kinds leave it where it is. If it fails, what it
// has made is gone, and so is process 1 where it was in a scope.
//
// What it returns is the sandbox's directory for each controller. Processes go into directories below it, made by others.
func Make(
	facts spec.Cgroups, name string, pid int, l Limits, note func(path string) error,
) (map[string]string, error) {
	if !shaped(name) {
		return nil, fmt.Errorf("make control groups: %q is no name for them", name)
	}
	var dirs map[string]string
	var err error
	switch facts.Kind {
	case spec.ByCgroup2:
		dirs, err = makeDelegated(facts, name, l, note)
	case spec.BySystemd:
		dirs, err = makeScope(facts, name, pid, l, note)
	case spec.ByCgroup1:
		dirs, err = makeLegacy(facts, name, l, note)
	default:
		err = errors.New("this machine has none: " + facts.Reason)
	}
	if err != nil {
		return nil, fmt.Errorf("make control groups: %w", err)
	}
	return dirs, nil
}

// ownDirs are the directories that name gets below the parents, by controller and without repetition.
func ownDirs(facts spec.Cgroups, name string) (map[string]string, []string) {
	dirs := map[string]string{}
	for _, c := range facts.Controllers {
		dirs[c] = filepath.Join(facts.Parents[c], name)
	}
	return dirs, slices.Compact(slices.Sorted(maps.Values(dirs)))
}

// makeGroups makes directories, all or none.
func makeGroups(list []string, note func(string) error) error {
	for _, dir := range list {
		if err := note(dir); err != nil {
			return err
		}
	}
	for i, dir := range list {
		if err := makeGroup(dir); err != nil {
			removeGroups(list[:i])
			return err
		}
	}
	return nil
}

// removeGroups takes back what a failed make has made. Nothing has been in it.
func removeGroups(list []string) {
	for _, dir := range list {
		_ = unix.Rmdir(dir)
	}
}

// makeGroup makes a group that has never been used: one of the same name that is not empty is somebody else's.
func makeGroup(dir string) error {
	err := unix.Mkdir(dir, 0o755)
	if errors.Is(err, unix.EEXIST) && unix.Rmdir(dir) == nil {
		err = unix.Mkdir(dir, 0o755)
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

// probesAtOnce is how many probes of one user may be at work in one group.
const probesAtOnce = 256

// tryGroup has test work in a group below parent that is there for so long, with a name by its place in a row. A lock says that
// it is in use: one that is free was left by a probe that was killed, and the next takes it over.
func tryGroup(parent string, test func(dir string) error) error {
	for i := range probesAtOnce {
		dir := filepath.Join(parent, fmt.Sprintf("sandboxrun-probe-%d-%d", os.Geteuid(), i))
		lock, err := claimGroup(dir)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return notWritable(parent, err)
		}
		err = test(dir)
		_ = unix.Rmdir(dir)
		unix.Close(lock)
		return err
	}
	return fmt.Errorf("%s has the groups of %d probes", parent, probesAtOnce)
}

// claimGroup makes a group, or takes one that nobody has locked, and locks it.
func claimGroup(dir string) (lock int, err error) {
	for {
		if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, err
		}
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue // the process that had it has just removed it
		}
		if err != nil {
			return -1, err
		}
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			unix.Close(fd)
			return -1, err
		}
		var locked, there unix.Stat_t
		if unix.Fstat(fd, &locked) == nil && unix.Stat(dir, &there) == nil && locked.Ino == there.Ino {
			return fd, nil
		}
		unix.Close(fd) // it was removed between the two
	}
}

// notWritable says in a user's words why nothing can be made in a directory.
func notWritable(dir string, err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%s is not writable", dir)
	}
	return fmt.Errorf("make a group in %s: %w", dir, err)
}

// shaped reports whether a name may be one of a sandbox's groups: nothing else is ever removed.
func shaped(name string) bool {
	rest, ok := strings.CutPrefix(name, "sandboxrun-")
	return ok && len(name) <= 200 && rest != "" && strings.Trim(rest, nameChars) == ""
}

const nameChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

// removeFor is how long a group may stay busy. The kernel takes a moment to be done with a process that has been waited for.
const removeFor = 2 * time.Second

// RemoveNoted removes what Make has noted, with the groups of execs in it, of which it kills what is left. It goes on
// after an error. What is not there, or not all, is no error: a creator may have died in between.
func RemoveNoted(noted []string) error {
	var errs []error
	for _, path := range noted {
		if unit, ok := strings.CutPrefix(path, scopePrefix); ok {
			errs = append(errs, removeScope(unit))
		}
	}
	for _, path := range noted {
		if !strings.HasPrefix(path, scopePrefix) {
			errs = append(errs, removeGroup(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove control groups: %s", oneLine(err))
	}
	return nil
}

// removeGroup removes a sandbox's directory.
func removeGroup(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || !shaped(filepath.Base(dir)) {
		return fmt.Errorf("%q is no sandbox's group", dir)
	}
	if !exists(dir) {
		return nil
	}
	if !onCgroup(dir, unix.CGROUP_SUPER_MAGIC) && !onCgroup(dir, unix.CGROUP2_SUPER_MAGIC) {
		if !exists(dir) {
			return nil // somebody else was faster
		}
		return fmt.Errorf("%q is no control group", dir)
	}
	deadline := time.Now().Add(removeFor)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := removeTree(dir)
		if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) { // ENODEV: it is going
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		killTree(dir)
		time.Sleep(pause)
	}
}

// removeTree removes a group and those of execs in it.
func removeTree(dir string) error {
	err := unix.Rmdir(dir)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	for _, sub := range groupsBelow(dir) {
		_ = unix.Rmdir(sub) // if it is busy, so is dir
	}
	return unix.Rmdir(dir)
}

// groupsBelow are the groups that execs and process 1 have below a sandbox's.
func groupsBelow(dir string) []string {
	entries, _ := os.ReadDir(dir) // if it has gone there are none
	var list []string
	for _, e := range entries {
		if e.IsDir() && (e.Name() == initGroup || strings.HasPrefix(e.Name(), "e")) {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list
}

// initGroup is the group of process 1, where it is in one at all.
const initGroup = "init"

// killTree kills what is in a group and in those of execs. It does not wait.
func killTree(dir string) {
	if WriteControl(filepath.Join(dir, "cgroup.kill"), "1") == nil { // version 2, from Linux 5.14
		return
	}
	for _, d := range append(groupsBelow(dir), dir) {
		killGroup(d)
	}
}

// killGroup kills the processes whose first thread is in a group. A launcher that has but another thread in there, so that its
// child begins there, is not ours to kill.
func killGroup(dir string) {
	file := filepath.Join(dir, "tasks") // version 1
	if !exists(file) {
		file = filepath.Join(dir, "cgroup.procs")
	}
	list, _ := readWords(file)
	pidfds := map[string]int{}
	for _, s := range list {
		// 0 is a process that our own PID namespace does not show.
		if pid, err := strconv.Atoi(s); err == nil && pid > 0 && pid != os.Getpid() {
			if fd, err := unix.PidfdOpen(pid, 0); err == nil { // not that of a thread
				pidfds[s] = fd
			}
		}
	}
	// The number may have been given away before the pidfd was there. What is in the list still is what we mean.
	list, _ = readWords(file)
	for s, fd := range pidfds {
		if slices.Contains(list, s) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
