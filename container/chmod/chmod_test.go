package chmod

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec/seccomp"
)

// TestAskingFilter: it differs from the profile's own filter in what it asks, and in nothing else.
func TestAskingFilter(t *testing.T) {
	profile := seccomp.Profile(runtime.GOARCH, 6, 1)
	asking, err := Filter(profile, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	own, err := forkexec.CompileSeccomp(profile, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	count := func(f []unix.SockFilter, k uint32) int {
		n := 0
		for _, i := range f {
			if i.Code == unix.BPF_RET|unix.BPF_K && i.K == k {
				n++
			}
		}
		return n
	}
	if count(asking, unix.SECCOMP_RET_USER_NOTIF) == 0 || count(own, unix.SECCOMP_RET_USER_NOTIF) != 0 ||
		count(asking, unix.SECCOMP_RET_ERRNO|askErrno) != 0 {
		t.Errorf("the filters ask at %d and %d places", count(asking, unix.SECCOMP_RET_USER_NOTIF), count(own, unix.SECCOMP_RET_USER_NOTIF))
	}
	for _, r := range profile.Syscalls {
		if slices.Contains(r.Names, "creat") && refusesMode(r) {
			return // what makes files is refused as ever
		}
	}
	t.Error("the profile's rules are not those that are looked for")
}

func TestOwnDescriptor(t *testing.T) {
	for name, want := range map[string]int{
		"/proc/self/fd/7": 7, "/proc/thread-self/fd/0": 0, "/dev/fd/12": 12, "/proc/self/fd/": -1, "/proc/self/fd/7/x": -1, "/proc/self/fd/-1": -1,
		"/proc/self/fd/99999999999": -1, "proc/self/fd/7": -1, "/proc/1/fd/7": -1, "/dev/fd/x": -1, "": -1,
	} {
		if n, ok := ownDescriptor(name); ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d %v, not %d", name, n, ok, want)
		}
	}
}
