package integration

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLoadServe: many clients at once, some of which go away in the middle, and many execs of each kind leave the server no descriptor,
// thread or mount namespace more than it had, and the machine nothing. With scripts/soak: 64 clients, 10,000 execs.
func TestLoadServe(t *testing.T) {
	clients, each := 8, 8
	if soak(t) > 0 {
		clients, each = 64, 53
	}
	flavours(t, func(b *box) {
		before := b.census0(b.policy(tmpfsPolicy()))
		path, pid, stop := b.socketOf()
		work := func(times int) {
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() { b.loadClient(path, i, times) })
			}
			all.Wait()
			b.untilNone()
		}
		work(1) // Go keeps threads, and the server what it finds out once
		had := b.held(pid)
		work(each)
		var has held
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if has = b.held(pid); has.descriptors <= had.descriptors && has.namespaces <= had.namespaces {
				break
			}
		}
		// A thread more is Go's, which has as many as were in system calls at one time.
		if has.descriptors > had.descriptors || has.namespaces > had.namespaces || has.threads > had.threads+clients {
			b.t.Errorf("the server has %+v, before %+v", has, had)
		}
		stop()
		b.settles("clients of a server", before)
		b.t.Logf("%d clients, %d execs", clients, clients*each*3)
	})
}

// loadClient is one client, which makes a sandbox, uses it, and leaves it in one of several ways.
func (b *box) loadClient(path string, i, times int) {
	s := b.dial(path)
	id := fmt.Sprint("box", i)
	s.create(id)
	for n := range times {
		name := fmt.Sprint("f", n)
		r := s.exec(id, object{"put": object{name: "x"}, "collect": []string{name}, "fresh": []string{"/tmp"}, "answer": true}, "cat", name)
		if r.Stdout != "x" || len(r.Collected) != 1 {
			b.t.Errorf("%+v", r)
		}
		s.does("put", object{"sandbox": id, "files": object{name: "y"}}, nil)
		s.does("get", object{"sandbox": id, "path": name}, nil)
		s.exec(id, object{"timeout": 0.05}, "sleep", "300")
		running, done := s.ask("exec", object{"sandbox": id, "argv": []string{"sleep", "300"}, "stream": true, "stdin_open": true})
		s.ask("cancel", object{"id": running})
		s.wait(done)
	}
	switch i % 3 {
	case 0:
		s.does("delete", object{"sandbox": id}, nil)
	case 1:
		s.ask("exec", object{"sandbox": id, "argv": []string{"sleep", "300"}})
	case 2:
		fmt.Fprint(s.in, "garbage\n")
	}
	_ = s.in.Close()
}

// held is what a server holds.
type held struct{ descriptors, namespaces, threads int }

func (b *box) held(pid int) held {
	b.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		b.t.Fatal(err)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		b.t.Fatal(err)
	}
	h := held{descriptors: len(fds), threads: len(tasks)}
	for _, fd := range fds {
		if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())); strings.HasPrefix(to, "mnt:") {
			h.namespaces++
		}
	}
	return h
}

// untilNone waits until no sandbox is left.
func (b *box) untilNone() {
	b.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end) && len(b.ids()) > 0; time.Sleep(10 * time.Millisecond) {
	}
	same(b.t, "sandboxes left", "", strings.Join(b.ids(), " "))
}
