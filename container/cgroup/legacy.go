package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// probeLegacy is the third rung.
func (m *hierarchies) probeLegacy() (spec.Cgroups, error) {
	facts := spec.Cgroups{Kind: spec.ByCgroup1, Parents: map[string]string{}}
	var reason error
	var missing []string
	for _, c := range append(wanted(), "cpuacct") {
		dir, ok := m.legacyParent(c)
		if !ok {
			missing = append(missing, c)
			continue
		}
		err := tryGroup(dir, func(dir string) error { return setLegacy(dir, c, trialLimits()) })
		if err == nil {
			facts.Parents[c] = dir
			facts.Controllers = append(facts.Controllers, c)
		} else if reason == nil {
			reason = err
		}
	}
	if missing = intersect(wanted(), missing); reason == nil && len(missing) > 0 {
		reason = fmt.Errorf("no hierarchy for %s", strings.Join(missing, ", "))
	}
	if reason != nil {
		return facts, fmt.Errorf("cgroup v1: %w", reason)
	}
	return facts, nil
}

// legacyParent is the directory of a controller in which a sandbox's is to be made: our own, or the top of what is
// mounted where our own is not in that.
func (m *hierarchies) legacyParent(controller string) (string, bool) {
	top := ""
	for _, mount := range slices.Backward(m.mounts) { // the last one hides the others
		if mount.v2 || !slices.Contains(mount.controllers, controller) || !onCgroup(mount.point, unix.CGROUP_SUPER_MAGIC) {
			continue
		}
		if dir, ok := mount.dir(m.own[controller]); ok {
			return dir, true
		}
		if top == "" {
			top = mount.point
		}
	}
	return top, top != ""
}

// trialLimits are what a probe writes.
func trialLimits() Limits { return Limits{Memory: 64 << 20, Pids: 64, CPUs: 0.5} }

func makeLegacy(facts spec.Cgroups, name string, l Limits, note func(string) error) (map[string]string, error) {
	dirs, list := ownDirs(facts, name)
	if err := makeGroups(list, note); err != nil {
		return nil, err
	}
	for _, c := range facts.Controllers {
		if err := setLegacy(dirs[c], c, l); err != nil {
			removeGroups(list)
			return nil, err
		}
	}
	return dirs, nil
}

// setLegacy gives a group its limit by one controller.
func setLegacy(dir, controller string, l Limits) error {
	names := FilesOf(false)
	switch controller {
	case "memory":
		if err := useHierarchy(dir); err != nil || l.Memory == 0 {
			return err
		}
		return setLimits(dir, []limitFile{
			{file: names.Memory, value: l.pages()},
			{file: names.Swap, value: l.pages(), optional: true}, // memory and swap together
			// What TCP has in its buffers counts by itself. Who has too much there is made to wait, and not ended.
			{file: "memory.kmem.tcp.limit_in_bytes", value: l.pages(), optional: true},
		})
	case "pids":
		if l.Pids > 0 {
			return setLimits(dir, []limitFile{{file: names.Pids, value: strconv.FormatInt(l.Pids, 10)}})
		}
	case "cpu":
		if l.CPUs > 0 {
			return setLegacyCPU(dir, l.quota())
		}
	case "cpuacct": // it only counts
	default:
		return fmt.Errorf("limit %s: there is no such controller", controller)
	}
	return nil
}

// useHierarchy makes the limit hold for the groups below too. Before Linux 5.11 that has to be asked for.
func useHierarchy(dir string) error {
	path := filepath.Join(dir, "memory.use_hierarchy")
	if got, err := ReadControl(path); err != nil || got == "1" {
		return nil //nolint:nilerr // a kernel that has no such file any more has no other way
	}
	return setLimits(dir, []limitFile{{file: "memory.use_hierarchy", value: "1"}})
}

// setLegacyCPU sets a share of CPU time. A group is refused a larger one than a group above it has; that one's limit is the
// one that holds then, and is as much as can be had.
func setLegacyCPU(dir string, quota int64) error {
	set := func(quota int64) error {
		return setLimits(dir, []limitFile{
			{file: cfsPeriod, value: strconv.Itoa(Period)},
			{file: cfsQuota, value: strconv.FormatInt(quota, 10)},
		})
	}
	err := set(quota)
	if errors.Is(err, unix.EINVAL) {
		if above := leastQuota(filepath.Dir(dir)); above > 0 && above < quota {
			return set(above)
		}
	}
	return err
}

// leastQuota is the smallest share of CPU time that dir or a directory above it has, 0 for none.
func leastQuota(dir string) int64 {
	var least int64
	for ; ; dir = filepath.Dir(dir) {
		quota, ok := Number(filepath.Join(dir, cfsQuota), "")
		if !ok {
			return least // above the hierarchy's top
		}
		period, ok := Number(filepath.Join(dir, cfsPeriod), "")
		if !ok || period <= 0 || quota <= 0 {
			continue
		}
		if share := quota * Period / period; least == 0 || share < least {
			least = share
		}
	}
}

// hierarchies is what there is to try, as data, so that tests can make one up.
type hierarchies struct {
	mounts  []mountedAt
	own     map[string]string // controller, "" for version 2 -> our own group, as the kernel names it
	systemd bool
	enabled [][2]string // directories, and the controllers that a probe has enabled for what is below
}

// mountedAt is a hierarchy, or a part of one, that is mounted.
type mountedAt struct {
	root, point string // what of it, and where
	v2          bool
	controllers []string // version 1
}

// thisMachine reads what this thread sees: libcontainer may have taken the first one, which /proc/self shows, into a
// sandbox's mount namespace.
func thisMachine() (*hierarchies, error) {
	mounts, err := hostfs.OwnMounts()
	if err != nil {
		return nil, err
	}
	own, err := ReadControl("/proc/thread-self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find our own control group: %w", err)
	}
	return &hierarchies{mounts: cgroupMounts(mounts), own: ownGroups(own), systemd: exists("/run/systemd/system")}, nil
}

// cgroupMounts picks the control groups out of all mounts.
func cgroupMounts(mounts []hostfs.Mount) []mountedAt {
	var list []mountedAt
	for _, m := range mounts {
		switch m.Kind {
		case "cgroup2":
			list = append(list, mountedAt{root: m.Path, point: m.Target, v2: true})
		case "cgroup":
			list = append(list, mountedAt{root: m.Path, point: m.Target, controllers: strings.Split(m.Super, ",")})
		}
	}
	return list
}

// ownGroups reads /proc/PID/cgroup. A line is "hierarchy:controllers:path", for version 2 "0::path".
func ownGroups(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			own[c] = parts[2]
		}
	}
	return own
}

// dir is where a group is in the file tree, if it is in what is mounted. A cgroup namespace shows but a part of the tree, and
// paths that lead out of that begin with "/..".
func (m mountedAt) dir(group string) (string, bool) {
	if group == "" || strings.HasPrefix(group, "/..") || strings.HasPrefix(m.root, "/..") {
		return "", false
	}
	rest, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return filepath.Join(m.point, rest), true
}

// onCgroup makes sure that a path is in the file system that it should be in: another one may be mounted over it.
func onCgroup(path string, magic int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == magic
}
