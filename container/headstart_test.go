package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

func headStart(t *testing.T) (*Store, func() error, *spec.Plan) {
	t.Helper()
	p, err := policy.Load(policy.Default(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	host, err := machine.Probe(policy.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := spec.Resolve(p, host)
	if err != nil {
		t.Fatal(err)
	}
	foreseen, err := spec.ForeseeFrame(p, host)
	if err != nil || !foreseen.Equal(plan.Frame()) {
		t.Errorf("foreseen %+v, %v; became %+v", foreseen, err, plan.Frame())
	}
	s, err := OpenStore(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, func() error { return s.CheckState(host) }, plan
}

// TestHeadStart: process 1 is the one that was started early if the plan has the frame that was foreseen, and another one if not.
func TestHeadStart(t *testing.T) {
	s, before, plan := headStart(t)
	other := plan.Frame()
	other.OwnNetwork = false
	for name, frame := range map[string]spec.Frame{"foreseen": plan.Frame(), "another": other} {
		t.Run(name, func(t *testing.T) {
			b := s.Begin("early", before)
			b.Start(frame)
			<-b.started
			if b.err != nil {
				t.Fatal(b.err)
			}
			early := b.m.state.PID
			sb, err := b.Create(plan, Options{Owner: &owner.Owner{PID: os.Getpid()}})
			if err != nil {
				t.Fatal(err)
			}
			if same := sb.state.PID == early; same != (name == "foreseen") {
				t.Errorf("process 1 was %d and is %d", early, sb.state.PID)
			}
			if name != "foreseen" && !ended(early) {
				t.Errorf("process %d still runs", early)
			}
			for ns, own := range map[string]bool{"user": true, "net": true, "pid": true} {
				if ours, theirs := namespaceOf(t, os.Getpid(), ns), namespaceOf(t, sb.state.PID, ns); (ours != theirs) != own {
					t.Errorf("namespace %s: ours %s, the sandbox's %s", ns, ours, theirs)
				}
			}
			runTrue(t, sb)
			if err := sb.Delete(nil); err != nil {
				t.Error(err)
			}
			nothingLeft(t, s, "early")
		})
	}
}

// TestHeadStartDiscard: a plan that cannot be made leaves no process, and no directory.
func TestHeadStartDiscard(t *testing.T) {
	s, before, plan := headStart(t)
	for i := range 4 { // at whatever step it is
		b := s.Begin("early", before)
		if i%2 == 1 {
			b.Start(plan.Frame())
		}
		b.Discard()
		nothingLeft(t, s, "early")
	}
	b := s.Begin("early", before)
	b.Start(plan.Frame())
	<-b.started
	b.Discard()
	nothingLeft(t, s, "early")
	if !ended(b.m.state.PID) {
		t.Errorf("process %d still runs", b.m.state.PID)
	}
	(*HeadStart)(nil).Discard()
}

// TestHeadStartInUse: an id that is in use is refused, and its sandbox stays.
func TestHeadStartInUse(t *testing.T) {
	s, before, plan := headStart(t)
	o := Options{Owner: &owner.Owner{PID: os.Getpid()}}
	sb, err := s.Begin("taken", before).Create(plan, o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Begin("taken", before).Create(plan, o)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != fault.IDInUse {
		t.Errorf("error %v", err)
	}
	s.Begin("taken", before).Discard()
	runTrue(t, sb)
	if err := sb.Delete(nil); err != nil {
		t.Error(err)
	}
	_, err = s.Begin("../x", before).Create(plan, o)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != fault.IDInvalid {
		t.Errorf("error %v", err)
	}
}

func namespaceOf(t *testing.T, pid int, kind string) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func ended(pid int) bool {
	_, err := procfs.StartTime(pid)
	return err != nil
}

func nothingLeft(t *testing.T, s *Store, id string) {
	t.Helper()
	if _, err := s.root.Lstat(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %s: %v", id, err)
	}
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name()[0] != '.' || len(e.Name()) > len(gonePrefix) && e.Name()[:len(gonePrefix)] == gonePrefix {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}
