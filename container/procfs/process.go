package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Pids lists the processes that /proc shows.
func Pids() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var list []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			list = append(list, pid)
		}
	}
	return list, err
}

// StartTime is when a process started, in clock ticks since boot, for every process of the machine: in a time namespace /proc has
// other numbers.
func StartTime(pid int) (uint64, error) {
	fields, err := Stat(pid)
	if err != nil {
		return 0, err
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return SinceBoot(start), err
}

// SinceBoot is a start time as /proc shows it to this process, less the offset of its time namespace.
func SinceBoot(start uint64) uint64 { return start - uint64(bootOffset()) }

// bootOffset is what the time namespace of this process adds to times since boot, in clock ticks. It is 0 where the kernel has none.
var bootOffset = sync.OnceValue(func() int64 { //nolint:gochecknoglobals // read once
	const ticks = 100 // a second: USER_HZ of every architecture here
	data, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "boottime")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	seconds, _ := strconv.ParseInt(fields[0], 10, 64)
	nanos, _ := strconv.ParseInt(fields[1], 10, 64)
	return seconds*ticks + nanos*ticks/1e9
})

// Exiting reports whether a process has begun to end: then it has no descriptors and namespaces any more, but its pidfd says
// nothing until all that is in its PID namespace is gone.
func Exiting(pid int) bool {
	const pfExiting = 4
	fields, err := Stat(pid)
	if err != nil {
		return true
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return err == nil && flags&pfExiting != 0
}

// Stat gives the fields of /proc/PID/stat that follow the command's name, the state first.
func Stat(pid int) ([]string, error) {
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

// PidfdAlive reports whether a process has not ended.
func PidfdAlive(f *os.File) bool { return !PidfdWait(f, 0) }

// PidfdAwait waits until a process has ended, without a thread of its own.
func PidfdAwait(f *os.File) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
		polled := os.NewFile(uintptr(fd), "pidfd")
		defer polled.Close()
		conn, cerr := polled.SyscallConn()
		if err == nil && cerr == nil && conn.Read(func(uintptr) bool { return !PidfdAlive(f) }) == nil {
			return
		}
	}
	PidfdWait(f, -1)
}

// PidfdWait waits until a process has ended, for so many milliseconds at most (-1: for ever), and says whether it has.
func PidfdWait(f *os.File, ms int) bool {
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

// Status reads /proc/PID/status; who is a number, "self" or "thread-self".
func Status(who string) (map[string]string, error) {
	text, err := os.ReadFile("/proc/" + who + "/status")
	return StatusFields(string(text)), err
}

// StatusFields reads the text of /proc/PID/status.
func StatusFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// Gone reports whether an error of looking for a process means that there is none.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}
