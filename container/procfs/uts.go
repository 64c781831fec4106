package procfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// All processes of a sandbox share its UTS namespace, which no program can leave: by its number they are found.

// InUTS lists the processes in a UTS namespace, "uts:[4026531838]". One that has ended is in none.
func InUTS(namespace string) ([]int, error) {
	var list []int
	pids, err := Pids()
	for _, pid := range pids {
		if link, e := os.Readlink(fmt.Sprintf("/proc/%d/ns/uts", pid)); e == nil && link == namespace {
			list = append(list, pid)
		}
	}
	return list, err
}

// LeftInUTS lists the processes that are left of a sandbox whose process 1 has ended. They are in our own PID namespace: with process 1 the
// kernel has ended all in the sandbox's. The kernel gives a namespace's number to another one as soon as it is gone, and most of those
// that get it are of other sandboxes, with a PID namespace of their own.
func LeftInUTS(number uint64) []int {
	var list []int
	ours, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil
	}
	pids, _ := InUTS(fmt.Sprintf("uts:[%d]", number)) // without /proc there is nothing to be found
	for _, pid := range pids {
		if own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil && own == ours && !ending(pid) {
			list = append(list, pid)
		}
	}
	return list
}

// endsWithin is how long a process that has begun to end may take.
const endsWithin = 2000 // milliseconds

// ending reports whether a process ends by itself: it has given up its files, by which others know that the sandbox has ended, before
// it gives up its namespaces.
func ending(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return Gone(err)
	}
	f := os.NewFile(uintptr(fd), "process")
	defer f.Close()
	return Exiting(pid) && PidfdWait(f, endsWithin)
}

// KeepUTS keeps the kernel from giving the number of a process' UTS namespace to another one, until release. proc is its directory in /proc.
// It gives the namespace's name, or none where the process has ended.
func KeepUTS(proc *os.File) (namespace string, release func()) {
	fd, err := unix.Openat(int(proc.Fd()), "ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", func() {}
	}
	namespace, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return namespace, func() { unix.Close(fd) }
}
