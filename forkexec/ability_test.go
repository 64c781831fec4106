package forkexec

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Each attempt leaves this process as it was.
func TestTryLeavesNothing(t *testing.T) {
	status := func() string {
		data, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			t.Fatal(err)
		}
		var kept strings.Builder
		for line := range strings.Lines(string(data)) {
			if name, _, _ := strings.Cut(line, ":"); slices.Contains([]string{"NoNewPrivs", "Seccomp", "Seccomp_filters", "CapEff"}, name) {
				kept.WriteString(line)
			}
		}
		return kept.String()
	}
	mounts := func() string {
		data, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	beforeStatus, beforeMounts := status(), mounts()
	filter := mustCompile(t, ourProfile(t))
	for what, name := range map[Ability]string{
		CanOverlay: "overlay", CanMoveTrees: "move trees", CanNoNewPrivs: "no_new_privs", CanFilter: "filter", CanKeyring: "keyring",
	} {
		tried, err := Try(what, filter)
		t.Logf("%s: tried %v, %v", name, tried, err)
		if err == nil && !tried {
			t.Errorf("%s works and was not tried", name)
		}
	}
	if status() != beforeStatus || mounts() != beforeMounts {
		t.Error("something stayed")
	}
}

// A filter that the kernel does not take is told as such, and one that is not there is not taken for one that works.
func TestTryFilterThatFails(t *testing.T) {
	if tried, err := Try(CanFilter, []unix.SockFilter{{Code: 0xffff}}); !tried || !errors.Is(err, unix.EINVAL) {
		t.Errorf("a wrong filter: tried %v, %v", tried, err)
	}
	if tried, err := Try(CanFilter, nil); tried || err == nil {
		t.Errorf("no filter: tried %v, %v", tried, err)
	}
}
