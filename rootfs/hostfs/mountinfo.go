package hostfs

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// MayBeSilent reports whether a file system of a kind, as mountinfo names it, has a server that may not answer.
func MayBeSilent(kind string) bool {
	const local = ` ext2 ext3 ext4 xfs btrfs f2fs zfs bcachefs tmpfs ramfs devtmpfs overlay squashfs erofs iso9660 vfat exfat ntfs3 proc sysfs` +
		` cgroup cgroup2 devpts mqueue hugetlbfs securityfs selinuxfs debugfs tracefs bpf pstore configfs binfmt_misc fusectl nsfs efivarfs `
	return !strings.Contains(local, " "+kind+" ")
}

// Mount is a mount, as a line of mountinfo describes it.
type Mount struct {
	ID, Parent int
	Location          // what is mounted: the directory or file of the file system
	Target     string // the mount point, for the process whose mounts these are
	Writable   bool   // the mount is; its file system may be read-only all the same
	Kind       string // of the file system; empty where the line does not say
	Super      string // the options of the file system
}

// OwnMounts are the mounts of the mount namespace that this thread is in. Not of /proc/self, which is the first thread: where this
// process has made the sandbox, libcontainer may have left that one in the sandbox's mount namespace. It spoils a thread for this, and Go
// can end any but the first.
func OwnMounts() ([]Mount, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return ParseMounts(string(text)), nil
}

// ParseMounts reads the text of a mountinfo file. Lines of an unknown form are left out. See proc_pid_mountinfo(5): the fields are
// id, parent, major:minor, root, mount point, options, any number of tags, "-", type, source and the file system's options. A
// space separates fields, and nothing else does, because the kernel escapes no other white space than tab and newline.
func ParseMounts(mountinfo string) []Mount {
	list := make([]Mount, 0, strings.Count(mountinfo, "\n"))
	const first = 7 // the fields before the tags, and the rest
	for line := range strings.Lines(mountinfo) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", first)
		if len(f) < first {
			continue
		}
		id, err := strconv.Atoi(f[0])
		parent, err2 := strconv.Atoi(f[1])
		if err != nil || err2 != nil {
			continue
		}
		m := Mount{ID: id, Parent: parent, Location: Location{f[2], unescape(f[3])}, Target: unescape(f[4])}
		m.Writable = f[5] == "rw" || strings.HasPrefix(f[5], "rw,")
		if _, after, ok := strings.Cut(" "+f[6], " - "); ok {
			m.Kind, after, _ = strings.Cut(after, " ")
			_, m.Super, _ = strings.Cut(after, " ")
		}
		list = append(list, m)
	}
	return list
}

// unescape undoes what the kernel does in mountinfo to space, tab, newline and backslash in a path: "\040".
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
