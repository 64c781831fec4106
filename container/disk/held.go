package disk

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// HeldBy makes a watch count the files that processes have open and that have no name any more, as temporary files often
// are. What can be held and not be seen makes a walk incomplete: files in flight between sockets, and mappings of files
// that nobody has open.
func HeldBy(pids func() []int) func(*walker) {
	return func(w *walker) {
		for _, pid := range pids() {
			if w.ended() {
				return
			}
			w.process(pid)
		}
	}
}

func (w *walker) process(pid int) {
	w.open(fmt.Sprintf("/proc/%d/exe", pid))
	w.task(pid, pid)
	tids, err := dirNames(fmt.Sprintf("/proc/%d/task", pid))
	w.failed(err)
	for _, name := range tids {
		const kcmpFiles = 2
		tid, err := strconv.Atoi(name)
		if err != nil || tid == pid {
			continue
		}
		if w.ended() {
			return
		}
		// A thread may have a table of descriptors for itself, and outlive the first thread.
		same, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(tid), kcmpFiles, 0, 0, 0)
		if errno != 0 || same != 0 {
			w.task(pid, tid)
		}
	}
}

func (w *walker) task(pid, tid int) {
	dir := fmt.Sprintf("/proc/%d/task/%d", pid, tid)
	names, err := dirNames(dir + "/fd")
	w.failed(err)
	for _, name := range names {
		if w.ended() {
			return
		}
		if w.open(dir+"/fd/"+name) == unix.S_IFSOCK {
			w.socket(dir + "/fdinfo/" + name)
		}
	}
	w.mappings(dir + "/maps")
}

func dirNames(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// failed takes note of an error, unless the process has ended: then it holds no file.
func (w *walker) failed(err error) {
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH) {
		w.use.Incomplete = true
	}
}

// open counts the file behind a magic link if it has no name, and says of what kind it is.
func (w *walker) open(link string) uint16 {
	// Do not ask the file's server: it might be the program.
	if err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &w.st); err != nil {
		w.failed(err)
		return 0
	}
	kind := w.st.Mode & unix.S_IFMT
	if kind == unix.S_IFREG && w.st.Nlink == 0 && (w.grants.devices[statxID(&w.st).dev] || onDisk(link)) {
		w.add()
	}
	return kind
}

// onDisk reports whether a file is not in memory, as a memfd is. Its device number does not help on btrfs and overlayfs, where it
// may not be the grant's.
func onDisk(link string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(link, &fs) == nil && fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC
}

// socket looks for descriptors that were sent and not received yet.
func (w *walker) socket(info string) {
	data, err := os.ReadFile(info)
	w.failed(err)
	for line := range strings.Lines(string(data)) {
		n, ok := strings.CutPrefix(line, "scm_fds:")
		w.use.Incomplete = w.use.Incomplete || ok && strings.TrimSpace(n) != "0"
	}
}

// mappings looks for files without a name that no descriptor has shown. How much they take only root could see.
func (w *walker) mappings(maps string) {
	f, err := os.Open(maps)
	if err != nil {
		w.failed(err)
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() && !w.ended() {
		fields := strings.Fields(lines.Text()) // addresses, mode, offset, device, inode, name
		if len(fields) < 7 || fields[len(fields)-1] != "(deleted)" {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(fields[3], "%x:%x", &major, &minor); err != nil {
			continue
		}
		ino, err := strconv.ParseUint(fields[4], 10, 64)
		if err == nil && !w.shown(ino) && (w.grants.devices[unix.Mkdev(major, minor)] || onBtrfs(fields[3])) {
			w.use.Incomplete = true
		}
	}
	w.failed(lines.Err())
}

// shown reports whether a file of the grants' file systems has been counted.
func (w *walker) shown(ino uint64) bool {
	for dev := range w.grants.devices {
		if w.linked[inode{dev, ino}] {
			return true
		}
	}
	return false
}

// onBtrfs reports whether a device, as /proc writes it, is a btrfs: the one that stat gives for a file there is another.
func onBtrfs(device string) bool {
	major, minor, _ := strings.Cut(device, ":")
	a, err := strconv.ParseUint(major, 16, 32)
	b, err2 := strconv.ParseUint(minor, 16, 32)
	mounts, err3 := hostfs.OwnMounts()
	if err != nil || err2 != nil || err3 != nil {
		return false
	}
	want := fmt.Sprintf("%d:%d", a, b)
	return slices.ContainsFunc(mounts, func(m hostfs.Mount) bool { return m.Dev == want && m.Kind == "btrfs" })
}
