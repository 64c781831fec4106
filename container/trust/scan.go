package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// inUse is what was found of the sandboxes that run.
type inUse struct {
	trusted []spec.Trusted
	own     []running // the caller's
}

// running is process 1 of a sandbox.
type running struct {
	proc   string
	sealed *forkexec.Sealed
}

// statesInUse finds the sandboxes that run, with their state directories, wherever --root has put them, their policies and records:
// each process 1 holds the lock file that is in a state directory. Another user's cannot be looked at without privilege, but neither
// could a program change them.
func (g *ground) statesInUse() inUse {
	found := &ground{mounts: g.mounts}
	var own []running
	seen := map[hostfs.Location]bool{}
	EachInit(func(proc string) {
		fd, err := unix.Open(proc+"/fd/"+strconv.Itoa(initLock), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		f := os.NewFile(uintptr(fd), "lock")
		defer f.Close()
		sealed := readSealed(proc)
		var st unix.Stat_t
		// Another user's program has no right to change what is ours, and in a sandbox that is being created none has run.
		if sealed != nil && unix.Fstat(fd, &st) == nil && int(st.Uid) == g.uid {
			own = append(own, running{proc, sealed})
		}
		location, err := procfs.LocationOf(f, g.mounts)
		if err != nil || filepath.Base(location.Path) != "lock" {
			return
		}
		found.ofOther(sealed)
		location.Path = filepath.Dir(filepath.Dir(location.Path))
		if name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil && !seen[location] {
			seen[location] = true
			found.known = append(found.known, spec.Trusted{
				What: "a state directory in use", Path: filepath.Dir(filepath.Dir(name)), Location: location, State: true,
			})
		}
	})
	return inUse{found.known, own}
}

// readSealed reads what a process 1 holds; nil if it is being created or ends.
func readSealed(proc string) *forkexec.Sealed {
	dir, err := os.OpenFile(proc, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	defer dir.Close()
	sealed, err := forkexec.ReadSealed(dir)
	if err != nil {
		return nil
	}
	return sealed
}

// ofOther adds the policy and the record of a sandbox that runs. What cannot be found any more nobody can change.
func (g *ground) ofOther(sealed *forkexec.Sealed) {
	if sealed == nil {
		return
	}
	for _, p := range sealed.Policy {
		_ = g.file("the policy of a sandbox that runs", p, true)
	}
	if sealed.Record != "" {
		_ = g.directory("record directory", sealed.Record)
	}
}

// initLock is the descriptor that process 1 has of the sandbox's lock file; see stub.c.
const initLock = 4

// EachInit calls found with the directory in /proc of everything that looks like process 1 of a sandbox, and that no program in
// a sandbox can be: its user namespace was made in ours, and a program's was made in that.
func EachInit(found func(proc string)) {
	pids, _ := procfs.Pids() // without it nothing can be found
	may := sessionLeaders()
	for _, pid := range pids {
		if !may(pid) {
			continue
		}
		proc := fmt.Sprintf("/proc/%d", pid)
		exe, err := os.Readlink(proc + "/exe")
		if err != nil || !strings.HasPrefix(exe, "/memfd:sandboxrun") {
			continue
		}
		if ours, _ := OwnChild(proc); ours {
			found(proc)
		}
	}
}

// sessionLeaders returns a function that says whether a process may lead a session, as every process 1 does: it was made so by
// libcontainer, and nothing takes that from it. To ask costs a tenth of a look into /proc. Where /proc is that of a PID namespace
// above ours the numbers in it are not ours, and any process may.
func sessionLeaders() func(pid int) bool {
	status, err := procfs.Status("self")
	if err != nil || len(strings.Fields(status["NSpid"])) != 1 {
		return func(int) bool { return true }
	}
	return func(pid int) bool {
		session, err := unix.Getsid(pid)
		return err != nil || session == pid
	}
}

// OwnChild reports whether a process' user namespace was made in ours.
func OwnChild(proc string) (bool, error) {
	ns, err := os.Open(proc + "/ns/user")
	if err != nil {
		return false, err
	}
	defer ns.Close()
	fd, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_PARENT)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var parent, own unix.Stat_t
	return unix.Fstat(fd, &parent) == nil && unix.Stat("/proc/self/ns/user", &own) == nil && parent.Dev == own.Dev && parent.Ino == own.Ino, nil
}
