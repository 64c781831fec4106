package pool

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// poolOf makes a pool of one sandbox of the files "system" that shows a directory.
func poolOf(t testing.TB, shown string) (*Pool, *container.Store) {
	t.Helper()
	store, err := container.OpenStore(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	decide := func() (*Decision, error) {
		p, err := policy.Load(policy.Input{Name: "test.toml", Data: []byte("version = 1\nfiles.read = ['" + shown + "']\n"), Dir: shown})
		if err != nil {
			return nil, err
		}
		p.Paths = nil // there is no file
		host, trace, err := machine.ProbeTraced(policy.Limits{})
		if err != nil {
			return nil, err
		}
		host.Env = map[string]string{}
		plan, err := spec.Resolve(p, host)
		return &Decision{Policy: p, Host: host, Plan: plan, Trace: trace, Env: host.Env}, err
	}
	p, err := New(Config{Store: store, Size: 1, Decide: decide, Trouble: func(err error) { t.Log(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, store
}

func mine() container.Options { return container.Options{Owner: &owner.Owner{PID: os.Getpid()}} }

func full(t testing.TB, p *Pool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); p.Ready() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no other sandbox was made")
		}
	}
}

// TestTake: what is ready is handed over once, and replaced. An id that is in use costs nothing. Where a file has changed nothing is handed
// over, and what was ready is gone.
func TestTake(t *testing.T) {
	shown := t.TempDir()
	p, store := poolOf(t, shown)
	sb, _, err := p.Take("one", mine())
	if err != nil {
		t.Fatal(err)
	}
	if got := sb.State(); got.ID != "one" || got.Pool == nil || got.Owner == nil || got.Owner.PID != os.Getpid() {
		t.Errorf("it is %q, of %v, from %v", got.ID, got.Owner, got.Pool)
	}
	if other, err := store.Open("one"); err != nil {
		t.Error("others cannot open it: ", err)
	} else {
		other.Close()
	}
	full(t, p)
	if _, _, err := p.Take("one", mine()); err == nil || p.Ready() != 1 {
		t.Errorf("an id in use: %v, and %d are ready", err, p.Ready())
	}
	if err := os.Chmod(shown, 0o711); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Take("two", mine()); !errors.Is(err, errChanged) {
		t.Errorf("a grant has changed: %v", err)
	}
	if _, err := store.Open("two"); err == nil {
		t.Error("what was refused can be opened")
	}
	full(t, p)
	if err := sb.Delete(nil); err != nil {
		t.Error(err)
	}
	two, _, err := p.Take("two", mine())
	if err != nil {
		t.Fatal("the next one: ", err)
	}
	if err := two.Delete(nil); err != nil {
		t.Error(err)
	}
}

// TestRefusedIsKept: a caller who differs from the pool gets nothing, and what was ready stays for others.
func TestRefusedIsKept(t *testing.T) {
	p, _ := poolOf(t, t.TempDir())
	refused := errors.New("another caller")
	if _, err := p.take("one", mine(), false, func(*entry) error { return refused }); !errors.Is(err, refused) || p.Ready() != 1 {
		t.Errorf("%v, and %d are ready", err, p.Ready())
	}
	p.ready[0].made.files++ // it was built under another limit than the pool has now
	if _, err := p.take("one", mine(), false, func(*entry) error { return refused }); !errors.Is(err, errChanged) {
		t.Errorf("one that was built by another process: %v", err)
	}
}

// TestKeptAfterEarly: what an early claim did not get, because its owner has ended, is given to the next one as ever: compared, and with its state.
func TestKeptAfterEarly(t *testing.T) {
	shown := t.TempDir()
	p, store := poolOf(t, shown)
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	fits := func(*entry) error { return nil }
	early := container.Options{Owner: &owner.Owner{PID: ended.Process.Pid}}
	if _, err := p.take("one", early, true, fits); err == nil || p.Ready() != 1 {
		t.Fatalf("an owner that has ended: %v, and %d are ready", err, p.Ready())
	}
	g, err := p.take("two", mine(), false, fits)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := store.Open("two"); err != nil {
		t.Error("others cannot open it: ", err)
	} else {
		other.Close()
	}
	if err := g.Delete(nil); err != nil {
		t.Error(err)
	}
}

// TestEarly: an early claim has its sandbox before it is compared, and the comparison decides.
func TestEarly(t *testing.T) {
	shown := t.TempDir()
	p, store := poolOf(t, shown)
	fits := func(*entry) error { return nil }
	g, err := p.take("one", mine(), true, fits)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.settle(); err != nil {
		t.Error(err)
	}
	if other, err := store.Open("one"); err != nil {
		t.Error("others cannot open it: ", err)
	} else {
		other.Close()
	}
	if err := g.Delete(nil); err != nil {
		t.Error(err)
	}
	full(t, p)
	if err := os.Chmod(shown, 0o711); err != nil {
		t.Fatal(err)
	}
	if g, err = p.take("two", mine(), true, fits); err != nil {
		t.Fatal(err)
	}
	if err := g.settle(); !errors.Is(err, errChanged) {
		t.Errorf("a grant has changed: %v", err)
	}
	g.drop()
	if _, err := store.Open("two"); err == nil {
		t.Error("what was refused can be opened")
	}
	p.more()
	full(t, p)
	if g, err = p.take("three", mine(), true, fits); err != nil {
		t.Fatal(err)
	}
	g.drop()
	if list, err := store.List(); err != nil || len(list) != 0 {
		t.Errorf("what nobody has taken is left: %v, %v", list, err)
	}
}
