package container

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// startTime is when a process started, in clock ticks since boot.
func startTime(pid int) (uint64, error) {
	fields, err := procStat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// exiting says whether a process has begun to end: then it has no descriptors and namespaces any more, but its pidfd says
// nothing until all that is in its PID namespace is gone.
func exiting(pid int) bool {
	const pfExiting = 4
	fields, err := procStat(pid)
	if err != nil {
		return true
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err == nil && flags&pfExiting != 0
}

// procStat gives the fields of /proc/PID/stat that follow the command's name, the state first.
func procStat(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The name may hold anything, parentheses and spaces too: it ends at the last one.
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	if end < 0 || len(fields) < 20 {
		return nil, fmt.Errorf("read /proc/%d/stat: unknown form", pid)
	}
	return fields, nil
}

// pidfdAlive says whether a process has not ended.
func pidfdAlive(f *os.File) bool { return !pidfdWait(f, 0) }

// pidfdWait waits until a process has ended, for so many milliseconds at most (-1: for ever), and says whether it has.
func pidfdWait(f *os.File, ms int) bool {
	defer runtime.KeepAlive(f) // or it may be closed, and its number another file's, when a signal has interrupted poll
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, ms)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0
	}
}
