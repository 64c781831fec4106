package hostfs

import (
	"fmt"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// The server of a network or FUSE file system may be gone or stuck, and then a look at a file waits for ever, in a thread that nothing but
// the end of the process stops. So such a look has a thread of its own and a deadline, and a mount that has not answered once is not asked again.

// answerWithin is how long a file system has for one look.
const answerWithin = 3 * time.Second

// servers are the mounts of a tree that may not answer. The root's is not among them: without it nothing runs.
type servers struct {
	targets []string
	mu      sync.Mutex
	silent  map[string]bool
}

// of is the mount that a path is on, if it may not answer.
func (s *servers) of(p string) string {
	longest := ""
	if s == nil {
		return longest
	}
	for _, t := range s.targets {
		if pathname.Within(p, t) && len(t) > len(longest) {
			longest = t
		}
	}
	return longest
}

// ask has look look at a path, with a deadline where that is needed.
func ask[T any](s *servers, p string, look func() (T, error)) (T, error) {
	mount := s.of(p)
	if mount == "" {
		return look()
	}
	type answer struct {
		value T
		err   error
	}
	s.mu.Lock()
	silent := s.silent[mount]
	s.mu.Unlock()
	if !silent {
		done := make(chan answer, 1)
		go func() {
			value, err := look()
			done <- answer{value, err}
		}()
		select {
		case a := <-done:
			return a.value, a.err
		case <-time.After(answerWithin):
		}
		s.mu.Lock()
		s.silent[mount] = true
		s.mu.Unlock()
	}
	var none T
	return none, fmt.Errorf("the file system at %q does not answer", mount)
}
