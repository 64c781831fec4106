package container

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// TestLeaving: when those that are leaving have been waited for, nothing is left of an exec.
func TestLeaving(t *testing.T) {
	sb := sandboxOf(t, "limits.memory = '64M'\nlimits.pids = 16")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				r, err := sb.Start(Request{Args: []string{"/bin/true"}})
				if err == nil {
					_, err = r.Wait()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	sb.leaving.Wait()
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil); pid > 0 || err != nil { // process 1 is our child, and runs
		t.Errorf("process %d was not waited for, error %v", pid, err)
	}
	for _, g := range sb.state.Launch.Held.Groups {
		entries, err := os.ReadDir(g.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), "e0") {
				t.Errorf("%s/%s is left", g.Dir, e.Name())
			}
		}
	}
}

// TestMountFails: the program's process is there before the mounts are. Where one cannot be made it is not executed, and the error says why.
func TestMountFails(t *testing.T) {
	sb := sandboxOf(t, "")
	mounts := sb.state.Launch.Mounts
	sb.state.Launch.Mounts = append(slices.Clip(mounts), forkexec.Mount{Source: "/dev/null", Target: "/no/such/file", Flags: unix.MS_BIND})
	for range 10 {
		r, err := sb.Start(sh("exit 0"))
		if err == nil {
			res, _ := r.Wait()
			t.Fatalf("it was executed: %+v", res)
		}
		if !strings.Contains(err.Error(), `"/dev/null" on "/no/such/file"`) || !strings.Contains(err.Error(), unix.ENOENT.Error()) {
			t.Fatal(err)
		}
	}
	sb.state.Launch.Mounts = mounts
	if res := run(t, sb, sh("exit 3")); res.ExitCode != 3 {
		t.Errorf("afterwards: %+v", res)
	}
}
