package container

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/journal"
)

// TestWarmAtOnce: programs that ask at the same time each get an interpreter of their own, waiting or not, and nothing is left.
func TestWarmAtOnce(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("there is no python3")
	}
	sb := sandboxOf(t, "[limits]\npids = 200\n")
	sb.Warm(map[string]int{"python3": 3}, nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for i := range 12 {
		all.Go(func() {
			r, err := sb.Start(Request{Args: []string{"python3", "-c", "import sys; print(sys.argv[1])", fmt.Sprint(i)}, Warm: true})
			if err != nil {
				t.Error(err)
				return
			}
			res, err := r.Wait()
			if err != nil || res.Stdout != fmt.Sprintln(i) || res.Warm == nil || *res.Warm != (res.WarmWhy == "") {
				t.Errorf("%d: %+v %v", i, res, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[res.Exec] {
				t.Errorf("%s twice", res.Exec)
			}
			seen[res.Exec] = true
		})
	}
	all.Wait()
	if len(seen) != 12 || !seen["e000012"] { // those that wait have no number
		t.Errorf("execs %v", seen)
	}
	started := 0
	if err := sb.store.Events(t.Context(), sb.state.ID, false, func(e journal.Event) error {
		if e.Event == journal.Started {
			started++
		}
		return nil
	}); err != nil || started != 12 {
		t.Errorf("%d were started: %v", started, err)
	}
	// Of an interpreter that waited longer than the program may take, only the program's time counts.
	time.Sleep(300 * time.Millisecond)
	res := run(t, sb, Request{Args: []string{"python3", "-c", "import time\nend = time.process_time() + .2\nwhile time.process_time() < end: pass"}, Warm: true})
	if !*res.Warm || res.Usage.CPUMS < 195 || res.Usage.CPUMS > 260 {
		t.Errorf("%+v", res.Usage)
	}
}

// TestWarmEndsWithItsSandbox: also one that is just being started.
func TestWarmEndsWithItsSandbox(t *testing.T) {
	for _, wait := range []time.Duration{0, 3 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(wait.String(), func(t *testing.T) { // its end deletes the sandbox
			sandboxOf(t, "").Warm(map[string]int{"python3": 2}, nil)
			time.Sleep(wait)
		})
	}
	names, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		line, _ := os.ReadFile("/proc/" + n.Name() + "/cmdline")
		stat, _ := os.ReadFile("/proc/" + n.Name() + "/stat")
		if strings.HasPrefix(string(line), "python3\x00-S\x00-c\x00") && strings.Contains(string(stat), fmt.Sprintf(" %d ", os.Getpid())) {
			t.Errorf("%s is left: %q", n.Name(), stat)
		}
	}
}
