package hostfs

import (
	"strconv"
	"strings"
)

// MayBeSilent says whether a file system of a kind, as mountinfo names it, has a server that may not answer.
func MayBeSilent(kind string) bool {
	const local = ` ext2 ext3 ext4 xfs btrfs f2fs zfs bcachefs tmpfs ramfs devtmpfs overlay squashfs erofs iso9660 vfat exfat ntfs3 proc sysfs` +
		` cgroup cgroup2 devpts mqueue hugetlbfs securityfs selinuxfs debugfs tracefs bpf pstore configfs binfmt_misc fusectl nsfs efivarfs `
	return !strings.Contains(local, " "+kind+" ")
}

// Mount is a mount of the host, a line of mountinfo.
type Mount struct {
	ID, Parent int
	Dev        string // of the file system: "8:1"
	Root       string // the directory or file of the file system that is mounted
	Target     string // the mount point
}

// ParseMounts takes the first five fields of each line of /proc/self/mountinfo, and lists the mount points of file systems that may not answer.
func ParseMounts(mountinfo string) (list []Mount, remote []string) {
	const wanted = 6
	for line := range strings.Lines(mountinfo) {
		f := strings.SplitN(line, " ", wanted)
		if len(f) < wanted-1 {
			continue
		}
		id, _ := strconv.Atoi(f[0]) // the kernel writes numbers
		up, _ := strconv.Atoi(f[1])
		m := Mount{id, up, f[2], Unescape(f[3]), Unescape(f[4])}
		list = append(list, m)
		_, kind, found := strings.Cut(line, " - ")
		kind, _, _ = strings.Cut(kind, " ")
		if found && m.Target != "/" && MayBeSilent(kind) {
			remote = append(remote, m.Target)
		}
	}
	return list, remote
}

// Unescape undoes what the kernel does in mountinfo to space, tab, newline and backslash in a path: "\040".
func Unescape(s string) string {
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
