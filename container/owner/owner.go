package owner

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Owner is the process that a sandbox belongs to, and ends with.
type Owner struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// StartTime, in clock ticks since boot, and BootID distinguish it from a later process with its pid.
	StartTime uint64 `json:"start_time,omitempty"`
	BootID    string `json:"boot_id,omitempty"`
}

// FindOwner is the process that called this command. What only ran it on that process' behalf is passed over, or a
// sandbox would end with the very command line that made it:
//   - a wrapper, such as timeout, whose own arguments end with this command's;
//   - a copy that a program forked of itself and that has not executed anything else, such as a shell's ( … ).
//
// It is nil where that is process 1, which never ends. A caller that has ended is an error: to the kernel its children
// are process 1's too, and what it started would never end.
func FindOwner(args []string) (*Owner, error) {
	self := CommandLine(os.Getpid())
	if len(self) == 0 {
		self = args
	}
	return findOwner(os.Getpid(), os.Getppid(), forkexec.FirstParent(), self)
}

// FindOwnerOf is the same for another process that is this command. first is who called it: by now that process may have ended.
func FindOwnerOf(command, first int) (*Owner, error) {
	return findOwner(command, parent(command), first, CommandLine(command))
}

func findOwner(command, pid, first int, self []string) (*Owner, error) {
	if pid != first || orphaned(command, pid) {
		return nil, fault.New(fault.OwnerGone, ownerHint, "find owner: the process that called this command has ended")
	}
	for pid > 1 {
		up := parent(pid)
		if up <= 1 || (!wraps(CommandLine(pid), self) && !forked(pid, up)) {
			break
		}
		pid = up
	}
	if pid <= 1 {
		return nil, nil
	}
	start, _ := procfs.StartTime(pid) // 0: it has ended, as Open will see
	return &Owner{PID: pid, Name: Comm(pid), StartTime: start}, nil
}

const ownerHint = "name a process that lives as long as the sandbox should, or none: --owner none"

// orphaned reports whether a command's parent is not the one that called it. That may have ended before the command could look at
// all: then the command is still in its session, which is not process 1's.
func orphaned(command, parent int) bool {
	if parent != 1 {
		return false
	}
	own, err := unix.Getsid(command)
	first, err1 := unix.Getsid(1)
	return err == nil && err1 == nil && own != 0 && own != command && own != first
}

// Comm is the short name of a process, empty where it has gone.
func Comm(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(data))
}

func parent(pid int) int {
	fields, err := procfs.Stat(pid)
	if err != nil {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// CommandLine is the arguments of a process, nil where it has gone.
func CommandLine(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	data = bytes.TrimSuffix(data, []byte{0})
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(string(data), "\x00")
}

// wraps reports whether a command line only adds something before this command: "timeout 60 sandboxrun create x".
func wraps(outer, self []string) bool {
	at := len(outer) - len(self)
	if at < 1 || len(self) == 0 {
		return false
	}
	return filepath.Base(outer[at]) == filepath.Base(self[0]) && slices.Equal(outer[at+1:], self[1:])
}

// forked reports whether a process is a copy of its parent that has executed nothing else since. Another user's processes
// show no more than their command lines.
func forked(pid, up int) bool {
	line := CommandLine(pid)
	if len(line) == 0 || !slices.Equal(line, CommandLine(up)) || Comm(pid) != Comm(up) {
		return false
	}
	exe, err1 := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	upExe, err2 := os.Readlink(fmt.Sprintf("/proc/%d/exe", up))
	return err1 != nil || err2 != nil || exe == upExe
}

// Open opens the owner so that its end can be seen, whatever becomes of its pid, and notes which process it is.
func Open(o *Owner) (*os.File, error) {
	fd, err := unix.PidfdOpen(o.PID, 0)
	if err != nil {
		return nil, fault.New(fault.OwnerGone, ownerHint, "open owner, process %d: %w", o.PID, err)
	}
	pidfd := os.NewFile(uintptr(fd), "owner")
	start, err := procfs.StartTime(o.PID)
	if err != nil && o.StartTime == 0 && hiddenProcess(err) && procfs.PidfdAlive(pidfd) {
		err = nil // it lives; that is all that can be known of it
	}
	if err != nil && !procfs.Gone(err) {
		pidfd.Close()
		return nil, fault.New(fault.SandboxUnavailable, "", "open owner, process %d: %w", o.PID, err)
	}
	boot := bootID()
	otherBoot := o.BootID != "" && boot != "" && o.BootID != boot
	if err != nil || o.StartTime != 0 && o.StartTime != start || otherBoot || !procfs.PidfdAlive(pidfd) {
		pidfd.Close()
		return nil, fault.New(fault.OwnerGone, ownerHint, "open owner: process %d has ended", o.PID)
	}
	o.StartTime, o.BootID = start, boot
	o.Name = cmp.Or(o.Name, Comm(o.PID), "hidden")
	return pidfd, nil
}

// hiddenProcess reports whether /proc may only not show a process: with the mount option hidepid it does not show other users'.
func hiddenProcess(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// bootID is what the kernel calls this start of the machine; empty where /proc does not say.
func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}
