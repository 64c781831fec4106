package idmap

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Ids of programs of the machine's root. Nobody gives these to users or containers: SSSD and FreeIPA go up to 2000200000,
// systemd's containers up to 1879048191, and its "foreign" ids begin at 2147352576 (systemd's UIDS-GIDS.md); useradd's
// subordinate ids end at 600100000.
const (
	FirstID = 0x78000000 // 2013265920
	lastID  = 0x7ffdffff // 2147352575
)

// initialUserNamespace is the number of the machine's own user namespace, the same on every Linux (PROC_USER_INIT_INO).
const initialUserNamespace = 0xeffffffd

// MachineRoot reports whether the caller is the root of the machine, and not only of a user namespace, where uid 0 is a number
// that somebody has been given and that owns nothing of the host's.
func MachineRoot() bool {
	var st unix.Stat_t
	return os.Geteuid() == 0 && unix.Stat("/proc/self/ns/user", &st) == nil && st.Ino == initialUserNamespace
}

// NotApart says which capabilities this root lacks to give programs an id of their own; empty: none.
func NotApart() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Sprintf("its capabilities cannot be read: %v", err)
	}
	var lacks []string
	for _, c := range []struct {
		bit  int
		name string
	}{{unix.CAP_SETUID, "CAP_SETUID"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_CHOWN, "CAP_CHOWN"}, {unix.CAP_SETFCAP, "CAP_SETFCAP"}} {
		if sets[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			lacks = append(lacks, c.name)
		}
	}
	if len(lacks) == 0 {
		return ""
	}
	return "the launcher is root without " + strings.Join(lacks, " and ")
}

// ProgramID chooses an id for the program of one sandbox. Processes of one id share their user's limits in the kernel, and may
// signal each other where they can see each other, so no two sandboxes should have the same: it is random, nobody runs with it, and
// create looks for it among the sandboxes of its state directory (reserveID).
func ProgramID() (int, error) {
	for range 100 {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("choose an id for the program: %w", err)
		}
		id := FirstID + int(binary.NativeEndian.Uint32(b[:])%(lastID-FirstID+1))
		if _, err := unix.Getpriority(unix.PRIO_USER, id); errors.Is(err, unix.ESRCH) { // it has no process
			return id, nil
		}
	}
	return 0, errors.New("choose an id for the program: all that were tried are in use")
}

// namespaces are the user namespaces that idmapped mounts take their maps from, by those maps: one for a sandbox is enough.
type namespaces struct {
	mu   sync.Mutex
	made map[string]*os.File
}

var userNamespaces namespaces //nolint:gochecknoglobals // what was probed before is used again when the sandbox is made

func (c *namespaces) get(uids, gids []specs.LinuxIDMapping) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, g := mapText(uids), mapText(gids)
	if f := c.made[u+g]; f != nil {
		return f, nil
	}
	f, err := forkexec.UserNamespace(u, g)
	if err != nil {
		return nil, err
	}
	for _, old := range c.made { // of a sandbox that has been made
		old.Close()
	}
	c.made = map[string]*os.File{u + g: f}
	return f, nil
}

// mapText is a map as /proc/PID/uid_map takes it.
func mapText(list []specs.LinuxIDMapping) string {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "%d %d %d\n", m.ContainerID, m.HostID, m.Size)
	}
	return b.String()
}

// Tester finds out which grants can be idmapped, and what below them cannot, by doing it to a copy of their mounts.
func Tester(id, uid, gid int) func(string) ([]spec.LeftOut, error) {
	uids, gids := spec.Exchange(uint32(uid), uint32(id)), spec.Exchange(uint32(gid), uint32(id))
	return func(path string) ([]spec.LeftOut, error) {
		return tryIdmap(Grant{Source: path, UIDs: uids, GIDs: gids})
	}
}

// errRefused is wrapped by what openTree says of a tree that cannot be idmapped.
var errRefused = errors.New("idmap")

// tryIdmap says why the mount at m.Source cannot be idmapped, or what below it cannot. What is not there, or no place for a mount,
// is for others to say.
func tryIdmap(m Grant) ([]spec.LeftOut, error) {
	f, err := openTree(m)
	if err == nil {
		f.Close()
		return nil, nil
	}
	var left []spec.LeftOut
	if errors.Is(err, errRefused) {
		var parts []Part
		if parts, left, err = openParts(m, func(string) bool { return false }); err == nil {
			Close(parts)
			return left, nil
		}
	}
	switch {
	case errors.Is(err, errRefused) && errors.Is(err, unix.EPERM):
		return nil, errors.New("its mount is idmapped already, or its file system belongs to another user namespace")
	case errors.Is(err, unix.EPERM):
		return nil, errors.New("the launcher is root without CAP_SYS_ADMIN")
	case !errors.Is(err, errRefused):
		return nil, nil
	case !errors.Is(err, unix.EINVAL):
		return nil, err
	}
	name := ""
	var st unix.Statfs_t
	if unix.Statfs(m.Source, &st) == nil {
		name = " (" + procfs.FSName(st.Type) + ")"
	}
	return nil, errors.New("its file system" + name + " does not allow it on this kernel")
}
