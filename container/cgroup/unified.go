package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// probeDelegated is the first rung: from our own group upwards, the first in which a sandbox's can be made and be limited in
// every way, or else in the most.
func (m *hierarchies) probeDelegated() (spec.Cgroups, error) {
	mount, own, err := m.unified()
	if err != nil {
		return spec.Cgroups{}, err
	}
	managed := m.systemd || exists(filepath.Join(mount.point, systemdOwn))
	best := spec.Cgroups{}
	var reason error
	for dir := own; ; dir = filepath.Dir(dir) {
		works, err := m.tryDelegated(dir, mount.point, managed)
		if reason == nil || len(works) > len(best.Controllers) {
			reason = err
		}
		if len(works) > len(best.Controllers) {
			best = spec.Cgroups{Kind: spec.ByCgroup2, Controllers: works, Parents: map[string]string{}}
			for _, c := range works {
				best.Parents[c] = dir
			}
		}
		if len(works) == len(wanted()) {
			return best, nil
		}
		if dir == mount.point {
			return best, fmt.Errorf("cgroup v2: %s", oneLine(reason))
		}
	}
}

// unified is where version 2 is mounted, and our own directory in it.
func (m *hierarchies) unified() (mountedAt, string, error) {
	own, reason := "", errors.New("cgroup v2 is not mounted")
	for _, mount := range slices.Backward(m.mounts) {
		if !mount.v2 || !onCgroup(mount.point, unix.CGROUP2_SUPER_MAGIC) {
			continue
		}
		controllers, err := readWords(filepath.Join(mount.point, "cgroup.controllers"))
		if err != nil {
			return mountedAt{}, "", err
		}
		if len(intersect(wanted(), controllers)) == 0 {
			reason = fmt.Errorf("cgroup v2 at %s has no controller for memory, pids or cpu", mount.point)
			continue
		}
		var ok bool
		if own, ok = mount.dir(m.own[""]); ok {
			return mount, own, nil
		}
		reason = fmt.Errorf("cgroup v2 at %s does not show the group that we are in", mount.point)
	}
	return mountedAt{}, "", reason
}

// tryDelegated finds out which controllers a sandbox's group in dir can have.
func (m *hierarchies) tryDelegated(dir, top string, managed bool) ([]string, error) {
	if managed && !delegated(dir, top) {
		return nil, fmt.Errorf("systemd has not delegated %s", dir)
	}
	// To move a process, or to clone one into another group, takes this of the group above both.
	if unix.Faccessat(unix.AT_FDCWD, filepath.Join(dir, "cgroup.procs"), unix.W_OK, unix.AT_EACCESS) != nil {
		return nil, fmt.Errorf("%s is not writable", dir)
	}
	if populated(dir) {
		return nil, fmt.Errorf("%s has processes of its own", dir)
	}
	has, err := readWords(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	var reason error
	if lacking := subtract(wanted(), has); len(lacking) > 0 {
		reason = fmt.Errorf("%s has no controller for %s", dir, strings.Join(lacking, ", "))
	}
	given, err := m.enable(dir, intersect(wanted(), has))
	if reason == nil {
		reason = err
	}
	if len(given) == 0 {
		return nil, reason
	}
	err = tryGroup(dir, func(dir string) error {
		// Among threads a group has limits, and no process can be started in it.
		if kind, err := ReadControl(filepath.Join(dir, "cgroup.type")); err != nil || kind != "domain" {
			return errors.Join(err, fmt.Errorf("%s is for threads", filepath.Dir(dir)))
		}
		return setUnified(dir, given, trialLimits())
	})
	if err != nil {
		return nil, err
	}
	return given, reason
}

// populated reports whether a group has processes, and so cannot give controllers. The kernel refuses it only that of memory; by
// others it becomes a group of threads. The root, which has no type, may have both.
func populated(dir string) bool {
	list, err := ReadControl(filepath.Join(dir, "cgroup.procs"))
	return (err != nil || list != "") && exists(filepath.Join(dir, "cgroup.type"))
}

// enable gives controllers to the groups below dir, says which of them these have then, and why not all.
func (m *hierarchies) enable(dir string, controllers []string) ([]string, error) {
	path := filepath.Join(dir, "cgroup.subtree_control")
	given, err := readWords(path)
	if err != nil {
		return nil, err
	}
	var reason error
	for _, c := range subtract(controllers, given) {
		if err := WriteControl(path, "+"+c); err != nil {
			reason = err
			continue
		}
		given = append(given, c)
		m.enabled = append(m.enabled, [2]string{dir, c})
	}
	return intersect(controllers, given), reason
}

// disableUnused takes back what a probe has enabled where nothing will be made.
func (m *hierarchies) disableUnused(facts spec.Cgroups) {
	for _, e := range m.enabled {
		if dir, c := e[0], e[1]; facts.Parents[c] != dir {
			_ = WriteControl(filepath.Join(dir, "cgroup.subtree_control"), "-"+c) // somebody else may need it by now
		}
	}
	m.enabled = nil
}

// systemdOwn is the group in which a systemd, the system's or a user's, is itself, below the one that it manages.
const systemdOwn = "init.scope"

// delegated reports whether systemd has given dir away: dir itself, or one above it. What it gave to another systemd, as it
// does for every user's, is that one's to give; a user's leaves no mark of what it gives.
func delegated(dir, top string) bool {
	for ; ; dir = filepath.Dir(dir) {
		if marked(dir) {
			return !exists(filepath.Join(dir, systemdOwn))
		}
		if dir == top || dir == "/" {
			return false
		}
	}
}

// marked is whether a group has systemd's mark of delegation. The trusted one is older, and for root's eyes only.
func marked(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

func makeDelegated(facts spec.Cgroups, name string, l Limits, note func(string) error) (map[string]string, error) {
	dirs, list := ownDirs(facts, name)
	if err := makeGroups(list, note); err != nil {
		return nil, err
	}
	for _, dir := range list { // one
		if err := furnish(dir, facts.Controllers, l); err != nil {
			removeGroups(list)
			return nil, err
		}
	}
	return dirs, nil
}

// furnish gives a sandbox's group its limits, and its controllers to the groups below it, that they can be counted and
// limited one by one.
func furnish(dir string, controllers []string, l Limits) error {
	if err := WriteControl(filepath.Join(dir, "cgroup.subtree_control"), "+"+strings.Join(controllers, " +")); err != nil {
		return err
	}
	return setUnified(dir, controllers, l)
}

// setUnified gives a group the limits that these controllers hold.
func setUnified(dir string, controllers []string, l Limits) error {
	var list []limitFile
	names := FilesOf(true)
	for _, c := range intersect(l.needs(), controllers) {
		switch c {
		case "memory":
			list = append(list, limitFile{file: names.Memory, value: l.pages()},
				limitFile{file: names.Swap, value: "0", optional: true})
		case "pids":
			list = append(list, limitFile{file: names.Pids, value: strconv.FormatInt(l.Pids, 10)})
		case "cpu":
			list = append(list, limitFile{file: CPUMax, value: fmt.Sprintf("%d %d", l.quota(), Period)})
		default:
			return fmt.Errorf("limit %s: there is no such controller", c)
		}
	}
	return setLimits(dir, list)
}

// limitFile is a file of a group that holds a limit.
type limitFile struct {
	file, value string
	optional    bool // not every kernel has it
}

// setLimits writes limits and reads each back. The kernel may take less than was written without a word.
func setLimits(dir string, files []limitFile) error {
	for _, c := range files {
		path := filepath.Join(dir, c.file)
		if c.optional && !exists(path) {
			continue
		}
		if err := WriteControl(path, c.value); err != nil {
			return err
		}
		got, err := ReadControl(path)
		if err != nil {
			return err
		}
		if got != c.value {
			return fmt.Errorf("set %s: wrote %q, and it says %q", path, c.value, got)
		}
	}
	return nil
}

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }

// WriteControl writes to a file of a group. It does without what package os does for files that may block.
func WriteControl(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for {
		_, err = unix.Write(fd, []byte(value))
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}

// ReadControl reads such a file, without the spaces around its text.
func ReadControl(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var data []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return strings.TrimSpace(string(data)), nil
		}
		data = append(data, buf[:n]...)
	}
}

func readWords(path string) ([]string, error) {
	s, err := ReadControl(path)
	return strings.Fields(s), err
}

func intersect(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

func subtract(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
