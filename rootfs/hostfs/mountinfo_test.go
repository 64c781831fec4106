package hostfs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

func TestParseMounts(t *testing.T) {
	var got []string
	for _, m := range hostfs.ParseMounts("22 1 0:21 / /proc rw,nosuid - proc proc rw\n" +
		"30 1 8:1 /x /mnt/a\\040b\\011c\\012d\\134e rw shared:1 master:2 - ext4 /dev/sda1 rw,errors=remount-ro\n" +
		"33 1 8:1 / /odd\u00a0\r\\x\\9 ro - ext4 x rw\n34 1 0:5 / /net/a\\040b rw shared:4 - nfs4 srv:/x rw\n" +
		"36 1 0:7 / /a\\040-\\040b rw - cgroup cgroup rw,cpu,cpuacct\n37 1 0:8 / /x rw shared:1\n38 1 0:8 /\\04 /\\999x\\134040 rw - ext4 x rw\n" +
		"no 1 0:9 / /x rw - ext4 x rw\nshort line\n") {
		got = append(got, fmt.Sprintf("%d %d %s %s %s %v %s %s", m.ID, m.Parent, m.Dev, m.Path, m.Target, m.Writable, m.Kind, m.Super))
	}
	roottest.Same(t, "mounts", got, []string{
		"22 1 0:21 / /proc true proc rw", "30 1 8:1 /x /mnt/a b\tc\nd\\e true ext4 rw,errors=remount-ro",
		"33 1 8:1 / /odd\u00a0\r\\x\\9 false ext4 rw", "34 1 0:5 / /net/a b true nfs4 rw", "36 1 0:7 / /a - b true cgroup rw,cpu,cpuacct",
		"37 1 0:8 / /x true  ", `38 1 0:8 /\04 /\999x\040 true ext4 rw`,
	})
}

// TestOwnMounts: the machine's own are read.
func TestOwnMounts(t *testing.T) {
	mounts, err := hostfs.OwnMounts()
	if err != nil || !slices.ContainsFunc(mounts, func(m hostfs.Mount) bool { return m.Target == "/proc" && m.Kind == "proc" }) {
		t.Errorf("%+v, %v", mounts, err)
	}
}
