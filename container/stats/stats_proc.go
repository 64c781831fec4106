package stats

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/procfs"
)

// userHZ is how many clock ticks a second has in /proc/PID/stat, on every machine that we run on.
const userHZ = 100

const kib = 1024

// byProcesses sums up over the processes of the sandbox's execs, as forkexec/limits.c does for one exec.
func (m *Meter) byProcesses() (used, error) {
	var u used
	var shares shares
	reapers := []int{}
	cpu := map[uint64]time.Duration{}
	err := EachProcess(m.sb.PID, func(pid int, exec uint64) {
		number := insidePID(pid)
		t, ok := timesOf(pid)
		if number == 0 || !ok {
			return // it has ended
		}
		cpu[exec] += t.waited
		if number == 1 {
			reapers = append(reapers, pid)
			return
		}
		cpu[exec] += t.own
		u.tasks += t.threads
		shares.add(pid, t.resident)
	})
	if errors.Is(err, ErrEnded) {
		return used{}, m.sb.Lost()
	}
	if err != nil {
		return used{}, err
	}
	u.execs = len(reapers)
	u.memory = shares.rest + max(shares.files, m.inMemory(reapers)) // a file in memory may be mapped too
	u.busy = m.busy
	for exec, now := range cpu {
		u.cpu += now
		u.busy += max(0, now-m.execs[exec]) // less where a process has ended that nobody has waited for
	}
	m.execs = cpu
	return u, nil
}

// times is what /proc/PID/stat has of a process.
type times struct {
	own, waited time.Duration // its processor time, and that of children that it has waited for
	threads     int
	resident    int64
}

func timesOf(pid int) (times, bool) {
	const utime, stime, cutime, cstime, threads, rss = 11, 12, 13, 14, 17, 21 // see proc(5), less the three fields before
	f, err := procfs.Stat(pid)
	if err != nil || len(f) <= rss {
		return times{}, false
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(f[i], 10, 64)
		return n
	}
	const tick = time.Second / userHZ
	return times{
		own: time.Duration(number(utime)+number(stime)) * tick, waited: time.Duration(number(cutime)+number(cstime)) * tick,
		threads: int(number(threads)), resident: number(rss) * int64(os.Getpagesize()),
	}, true
}

// shares is memory, of which each page that several processes have mapped counts for each in part.
type shares struct{ files, rest int64 } // of files in memory, and of all else

// add counts the resident memory where the kernel does not show the shares.
func (s *shares) add(pid int, resident int64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	all, ok := procfs.NumberAfter(string(data), "Pss:")
	if err != nil || !ok {
		s.rest += resident
		return
	}
	files, _ := procfs.NumberAfter(string(data), "Pss_Shmem:")
	s.files += files * kib
	s.rest += (all - files) * kib
}

// inMemory is what lies in the file systems in memory, of the sandbox and of each exec.
func (m *Meter) inMemory(reapers []int) int64 {
	seen := map[uint64]bool{}
	var sum int64
	if in, err := m.sb.Inside(); err == nil {
		sum += tmpfsUsed(in, m.sb.Tmpfs, seen)
		unix.Close(in.FD)
	}
	for _, pid := range reapers {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // its exec has ended
		}
		sum += tmpfsUsed(lookup.Root{FD: fd}, m.sb.Tmpfs, seen)
		unix.Close(fd)
	}
	return sum
}

// tmpfsUsed leaves out what it has seen already: most of them all execs share.
func tmpfsUsed(in lookup.Root, paths []string, seen map[uint64]bool) int64 {
	var sum int64
	for _, p := range paths {
		f, err := in.Open(p, unix.O_PATH)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		var fs unix.Statfs_t
		if unix.Fstat(int(f.Fd()), &st) == nil && unix.Fstatfs(int(f.Fd()), &fs) == nil &&
			fs.Type == unix.TMPFS_MAGIC && !seen[st.Dev] {
			seen[st.Dev] = true
			sum += int64(fs.Blocks-fs.Bfree) * fs.Bsize
		}
		f.Close()
	}
	return sum
}
