package container

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/idmap"
	"github.com/sandboxrun/sandboxrun/spec"
)

// No two sandboxes of a state directory have programs of one id.
func TestReserveID(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := &spec.Plan{Exec: spec.Exec{UID: idmap.FirstID, OwnID: true}}
	for i, name := range []string{"one", "two"} {
		lock, err := s.reserve(name)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		err = s.reserveID(name, plan)
		var e *Error
		if (i == 0) != (err == nil) || i == 1 && (!errors.As(err, &e) || e.Hint == "") {
			t.Error(name, err)
		}
	}
	plan.Exec.OwnID = false
	if err := s.reserveID("two", plan); err != nil {
		t.Error(err)
	}
}

// TestAwaitLock: it waits for who tells something, as long as that takes.
func TestAwaitLock(t *testing.T) {
	s := newStore(t)
	deadSandbox(t, s, "x", nil)
	s.awaitLock("x", "never-made")()
	f, err := s.root.OpenFile("x/some.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = flock.Lock(f, unix.LOCK_SH)
	}
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	go func() {
		time.Sleep(30 * time.Millisecond)
		close(told)
		f.Close()
	}()
	release := s.awaitLock("x", "some.lock")
	select {
	case <-told:
	default:
		t.Error("it did not wait")
	}
	other, err := s.root.Open("x/some.lock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	if flock.Lock(other, unix.LOCK_SH|unix.LOCK_NB) == nil {
		t.Error("another got the lock before it was released")
	}
	release()
	if err := flock.Lock(other, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		t.Errorf("after its release: %v", err)
	}
}
