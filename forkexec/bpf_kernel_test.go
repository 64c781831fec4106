package forkexec

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childEnv makes TestFilterChild the body of a child process.
const childEnv = "FORKEXEC_TEST_FILTER_CHILD"

// loadFilter puts the process, with all its threads, under a filter for good.
func loadFilter(filter []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if e != 0 {
		return e
	}
	return nil
}

// tries are system calls and how they end. Without a filter none of those with EPERM or EAFNOSUPPORT would end so when
// the caller is root, except where the kernel has been told to refuse them to everyone.
func tries() map[string]struct {
	want   unix.Errno
	number uintptr
	args   []uintptr
} {
	type try = struct {
		want   unix.Errno
		number uintptr
		args   []uintptr
	}
	const high = 1 << 32
	return map[string]try{
		"getpid":                 {0, unix.SYS_GETPID, nil},
		"socket AF_UNIX":         {0, unix.SYS_SOCKET, []uintptr{unix.AF_UNIX, unix.SOCK_STREAM, 0}},
		"socket AF_INET":         {0, unix.SYS_SOCKET, []uintptr{unix.AF_INET, unix.SOCK_STREAM, 0}},
		"socket AF_NETLINK":      {0, unix.SYS_SOCKET, []uintptr{unix.AF_NETLINK, unix.SOCK_RAW, 0}},
		"socket AF_VSOCK":        {unix.EAFNOSUPPORT, unix.SYS_SOCKET, []uintptr{unix.AF_VSOCK, unix.SOCK_STREAM, 0}},
		"socket AF_PACKET":       {unix.EAFNOSUPPORT, unix.SYS_SOCKET, []uintptr{unix.AF_PACKET, unix.SOCK_RAW, 0}},
		"ioctl TCGETS":           {unix.EBADF, unix.SYS_IOCTL, []uintptr{^uintptr(0), unix.TCGETS}},
		"ioctl TIOCSTI":          {unix.EPERM, unix.SYS_IOCTL, []uintptr{^uintptr(0), unix.TIOCSTI}},
		"ioctl TIOCSTI, high":    {unix.EPERM, unix.SYS_IOCTL, []uintptr{^uintptr(0), unix.TIOCSTI | high}},
		"ioctl TIOCLINUX":        {unix.EPERM, unix.SYS_IOCTL, []uintptr{^uintptr(0), 0x541C}},
		"unshare CLONE_NEWUSER":  {unix.EPERM, unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWUSER}},
		"clone CLONE_NEWUSER":    {unix.EPERM, unix.SYS_CLONE, []uintptr{unix.CLONE_NEWUSER | unix.CLONE_THREAD}},
		"clone3":                 {unix.ENOSYS, unix.SYS_CLONE3, nil},
		"unknown":                {unix.ENOSYS, 9999, nil},
		"setns":                  {unix.EPERM, unix.SYS_SETNS, []uintptr{^uintptr(0), 0}},
		"io_uring_setup":         {unix.EPERM, unix.SYS_IO_URING_SETUP, nil},
		"keyctl":                 {unix.EPERM, unix.SYS_KEYCTL, nil},
		"add_key":                {unix.EPERM, unix.SYS_ADD_KEY, nil},
		"bpf":                    {unix.EPERM, unix.SYS_BPF, []uintptr{^uintptr(0)}},
		"perf_event_open":        {unix.EPERM, unix.SYS_PERF_EVENT_OPEN, nil},
		"userfaultfd":            {unix.EPERM, unix.SYS_USERFAULTFD, []uintptr{^uintptr(0)}},
		"mount":                  {unix.EPERM, unix.SYS_MOUNT, nil},
		"open_tree":              {unix.EPERM, unix.SYS_OPEN_TREE, []uintptr{^uintptr(0)}},
		"socket MPTCP":           {unix.EPROTONOSUPPORT, unix.SYS_SOCKET, []uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}},
		"socket SCTP":            {unix.ESOCKTNOSUPPORT, unix.SYS_SOCKET, []uintptr{unix.AF_INET, unix.SOCK_SEQPACKET, 0}},
		"socket netfilter":       {unix.EPROTONOSUPPORT, unix.SYS_SOCKET, []uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}},
		"fcntl F_SETLEASE":       {unix.EINVAL, unix.SYS_FCNTL, []uintptr{^uintptr(0), unix.F_SETLEASE}},
		"fcntl F_GETFD":          {unix.EBADF, unix.SYS_FCNTL, []uintptr{^uintptr(0), unix.F_GETFD}},
		"inotify IN_OPEN":        {unix.ENOSPC, unix.SYS_INOTIFY_ADD_WATCH, []uintptr{^uintptr(0), 0, unix.IN_OPEN}},
		"mmap, huge":             {unix.ENOMEM, unix.SYS_MMAP, []uintptr{0, 1 << 21, 3, unix.MAP_HUGETLB, ^uintptr(0), 0}},
		"prlimit64 of process 1": {unix.EPERM, unix.SYS_PRLIMIT64, []uintptr{1, unix.RLIMIT_NOFILE, ^uintptr(0), 0}},
		"prlimit64, core":        {0, unix.SYS_PRLIMIT64, []uintptr{0, unix.RLIMIT_CORE, ^uintptr(0), 0}},
		"personality, asked":     {0, unix.SYS_PERSONALITY, []uintptr{0xffffffff}},
		"personality, no random": {unix.EPERM, unix.SYS_PERSONALITY, []uintptr{0x40000}},
	}
}

// TestFilterChild is the child process of TestFilterInKernel: it prints how each try ended.
func TestFilterChild(t *testing.T) {
	file := os.Getenv(childEnv)
	if file == "" {
		t.Skip("only as a child of TestFilterInKernel")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := DecodeFilter(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := loadFilter(filter); err != nil {
		t.Fatal(err)
	}
	got := map[string]unix.Errno{}
	for name, try := range tries() {
		a := append(try.args, make([]uintptr, 6)...)
		_, _, got[name] = unix.Syscall6(try.number, a[0], a[1], a[2], a[3], a[4], a[5])
	}
	var threads sync.WaitGroup
	for range 8 {
		threads.Go(func() {
			runtime.LockOSThread() // and so every one is a new thread, which ends with its goroutine
			time.Sleep(time.Millisecond)
		})
	}
	threads.Wait()
	if err := exec.Command("true").Run(); err != nil {
		t.Errorf("start a program: %v", err)
	}
	b, _ = json.Marshal(got)
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// runChild runs TestFilterChild under a filter and returns what it found.
func runChild(t *testing.T, filter []unix.SockFilter) (map[string]unix.Errno, error) {
	t.Helper()
	file := t.TempDir() + "/filter"
	if err := os.WriteFile(file, EncodeFilter(filter), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-test.run=^TestFilterChild$")
	c.Env = append(os.Environ(), childEnv+"="+file)
	out, err := c.CombinedOutput()
	if err != nil {
		return nil, errors.Join(err, errors.New(strings.TrimSpace(string(out))))
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]unix.Errno
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%v; output %s", err, out)
	}
	return got, nil
}

func TestFilterInKernel(t *testing.T) {
	got, err := runChild(t, mustCompile(t, ourProfile(t)))
	if err != nil {
		t.Fatal(err)
	}
	// The control: with a filter that allows everything the same calls end otherwise.
	free := profileOf()
	free.DefaultAction = "SCMP_ACT_ALLOW"
	control, err := runChild(t, mustCompile(t, &free))
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range tries() {
		if got[name] != try.want {
			t.Errorf("%s: %v, want %v", name, got[name], try.want)
		}
		if try.want != 0 && control[name] == try.want {
			t.Logf("%s: %v also without a filter: nothing is shown", name, try.want)
		}
	}
}

// A wrong architecture in the check ends the process: here the filter takes the native one for a foreign one.
func TestFilterKillsOtherArchitecture(t *testing.T) {
	filter := mustCompile(t, ourProfile(t))
	filter[1].K = unix.AUDIT_ARCH_RISCV64
	_, err := runChild(t, filter)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
		t.Errorf("the child ended with %v, want SIGSYS", err)
	}
}

// How long the kernel takes to load the filter, in a process that exists for that only: filters stay.
func BenchmarkLoad(b *testing.B) {
	if os.Getenv(childEnv) == "" {
		b.Skipf("set %s=1: the benchmark puts its own process under its filters", childEnv)
	}
	filter := mustCompile(b, ourProfile(b))
	runtime.LockOSThread()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		b.Fatal(err)
	}
	for range b.N {
		b.StopTimer()
		done := make(chan struct{})
		go func() { // in a thread of its own, which ends with its filter
			runtime.LockOSThread()
			defer close(done)
			b.StartTimer()
			_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
			b.StopTimer()
			if e != 0 {
				panic(e)
			}
		}()
		<-done
	}
}
