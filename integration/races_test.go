package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// lifecycles is how many workers make and delete sandboxes at once, and how often each does.
func lifecycles(t *testing.T) (workers, times int) {
	t.Helper()
	if soak(t) > 0 {
		return 64, 50
	}
	if testing.Short() { // an emulated guest is slow
		return 3, 4
	}
	return 12, 4
}

// TestLoadLifecycles: creates, execs, deletes and runs of many callers at once, some of whose sandboxes die by themselves, while
// others sweep, list and look. What happens to one sandbox is no error of another.
func TestLoadLifecycles(t *testing.T) {
	workers, times := lifecycles(t)
	flavours(t, func(b *box) {
		t := b.t
		policies := []string{b.limits(object{"memory": "64M", "pids": 20}), b.files("", object{})}
		before := b.census0(policies[0])
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for _, look := range [][]string{{"list", "--json"}, {"list"}, {"sweep"}} {
			readers.Go(func() { b.lookUntil(stop, look...) })
		}
		start := time.Now()
		atOnce(workers, workers*times, func(i int) { b.lifecycle(i, policies[i%2]) })
		t.Logf("%d lifecycles in %v", workers*times, time.Since(start).Round(time.Millisecond))
		close(stop)
		readers.Wait()
		b.run("sweep").exits(0)
		same(t, "sandboxes left", "", strings.Join(b.ids(), " "))
		b.settles("lifecycles", before)
	})
}

// lifecycle is one sandbox's: made, used, and deleted or left to a sweep.
func (b *box) lifecycle(i int, policy string) {
	id := fmt.Sprintf("box%d", i)
	switch i % 4 {
	case 0:
		b.quiet("run", "--policy", policy, "--", "sh", "-c", "exit 7").exits(7)
	case 1: // its owner has ended by the time that it is there
		b.createDying(policy, id)
	default:
		b.quiet("create", "--policy", policy, "--owner", strconv.Itoa(os.Getpid()), id).exits(0)
		b.quiet("exec", id, "--", "echo", id).exits(0).prints(id)
		b.quiet("state", id).exits(0).prints(id)
		b.quiet("ps", id).exits(0)
		if i%4 == 2 {
			b.quiet("delete", id).exits(0)
			return
		}
		// Two delete it at once: one of them may find nothing.
		atOnce(2, 2, func(int) {
			if a := b.run("delete", "--force", id).exits(0); a.stderr != "" {
				b.t.Errorf("it complains: %v", a)
			}
		})
	}
}

// createDying makes a sandbox whose owner ends at once.
func (b *box) createDying(policy, id string) {
	b.t.Helper()
	wrap := []string{"sh", "-c", `"$0" "$1" --owner $$ "$2" "$3" "$4"; s=$?; exit $s`}
	b.call(call{wrap: wrap}, "create", "--policy", policy, id).exits(0)
}

// quiet calls the launcher, which has nothing to complain of.
func (b *box) quiet(args ...string) *answer {
	b.t.Helper()
	a := b.run(args...)
	if a.stderr != "" {
		b.t.Errorf("it complains: %v", a)
	}
	return a
}

// lookUntil calls the launcher again and again.
func (b *box) lookUntil(stop chan struct{}, args ...string) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
		}
		a := b.quiet(args...).exits(0)
		var list []map[string]any
		if args[len(args)-1] != "--json" {
			continue
		}
		if err := json.Unmarshal([]byte(a.stdout), &list); err != nil {
			b.t.Errorf("%v: %v", a, err)
		}
	}
}

// TestLoadOneID: one id is created and deleted by many at once. Of the creates at one time one wins, and the others say that it
// exists; no other error comes.
func TestLoadOneID(t *testing.T) {
	workers, times := lifecycles(t)
	flavours(t, func(b *box) {
		t := b.t
		p := b.limits(object{"memory": "64M", "pids": 20})
		before := b.census0(p)
		times *= 4
		won := 0
		var mu sync.Mutex
		atOnce(workers, workers*times, func(i int) {
			a := b.run("create", "--policy", p, "--owner", strconv.Itoa(os.Getpid()), "one")
			switch {
			case a.status == 0:
				mu.Lock()
				won++
				mu.Unlock()
				b.quiet("exec", "one", "--", "true").exits(0)
				b.quiet("delete", "one").exits(0)
			case !strings.Contains(a.stderr, "id_in_use"):
				t.Errorf("neither made nor there already: %v", a)
			default:
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
			}
		})
		t.Logf("%d of %d creates", won, workers*times)
		same(t, "one was made again", true, won > 1)
		b.settles("creates of one id", before)
	})
}

// TestSweepGoesOn: a sandbox that cannot be removed is no trouble for others, and is told of by sweep.
func TestSweepGoesOn(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		owner := exec.Command("sleep", "100")
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"aaa", "mmm", "zzz"} {
			b.run("create", "--policy", p, "--owner", strconv.Itoa(owner.Process.Pid), id).exits(0)
		}
		_ = owner.Process.Kill()
		_ = owner.Wait()
		eventually(t, "they have ended", func() bool { return strings.Count(b.run("list").stdout, "stopped") == 3 })
		// Its groups are said to be where there are none.
		if err := os.WriteFile(b.path("state", "aaa", "cgroups"), []byte(b.dir+"/sandboxrun-none\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.mkdir("sandboxrun-none")
		b.quiet("run", "--policy", p, "--", "echo", "ran").exits(0).prints("ran")
		same(t, "left", "aaa", strings.Join(b.ids(), " "))
		b.run("sweep").exits(125).complains("aaa", "no control group")
		b.quiet("create", "--policy", p, "--owner", strconv.Itoa(os.Getpid()), "other").exits(0)
		if err := os.Remove(b.path("sandboxrun-none")); err != nil {
			t.Fatal(err)
		}
		b.quiet("sweep").exits(0).prints("aaa")
		b.quiet("delete", "other").exits(0)
	})
}
