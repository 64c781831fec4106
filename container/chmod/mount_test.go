package chmod

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/spec/seccomp"
)

// TestAskingForMounts: only with processes.userns some rules are taken for those of new file systems, and the filter can be compiled.
func TestAskingForMounts(t *testing.T) {
	for _, userns := range []bool{false, true} {
		profile, want := seccomp.Profile(runtime.GOARCH, 6, 1), 0
		if userns {
			seccomp.AllowNamespaces(profile)
			want = 2
		}
		if n := len(slices.DeleteFunc(slices.Clone(profile.Syscalls), func(r specs.LinuxSyscall) bool { return !refusesNew(r) })); n != want {
			t.Errorf("userns %v: %d rules are taken for those of new file systems, want %d", userns, n, want)
		}
		if _, err := Filter(profile, runtime.GOARCH); err != nil {
			t.Error(err)
		}
	}
}

func TestOwnLink(t *testing.T) {
	for name, want := range map[string][2]string{
		"/proc/self/fd/7": {"fd/7", ""}, "/proc/thread-self/fd/7/dev/pts": {"fd/7", "dev/pts"}, "/dev/fd/9/x": {"fd/9", "x"}, "/proc/self/cwd/a": {"cwd", "a"},
		"/proc/self/root": {"root", ""}, "/proc/self/fd/": {}, "/proc/self/fd/../x": {}, "/proc/self/fd/-1": {}, "/proc/self/../1/root": {}, "/proc/self": {},
		"/proc/self/task/1/root": {}, "/proc/7/fd/7": {}, "proc/self/fd/7": {}, "/proc/self/fd/7x": {},
	} {
		if link, beyond, ok := ownLink(name); ok != (want[0] != "") || ok && (link != want[0] || beyond != want[1]) {
			t.Errorf("%q: %q %q %v, want %q", name, link, beyond, ok, want)
		}
	}
}

// TestPace: what a program may have done for it is bounded, and few calls never wait.
func TestPace(t *testing.T) {
	var p pace
	const call = 25 * time.Microsecond
	thread, rested := 3*time.Second, time.Duration(0)
	p.thread = thread
	for range 20_000 {
		thread += call
		rested += p.after(thread, 0)
	}
	if rested != 0 {
		t.Errorf("few calls rested %v", rested)
	}
	for range 1000 {
		thread += call
		rested += p.after(thread, 3*call)
	}
	if rested < 8*4*1000*call {
		t.Errorf("%v of work rested %v", 4*1000*call, rested)
	}
	if long := p.after(thread+time.Hour, 0); long > time.Second {
		t.Errorf("one call rests %v: its program could not be ended meanwhile", long)
	}
}
