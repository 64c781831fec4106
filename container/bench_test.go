package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/check"
	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// newSandbox makes a sandbox of the default preset that lives as long as the test.
func newSandbox(tb testing.TB) *Sandbox {
	tb.Helper()
	p, err := policy.Load(policy.Default(tb.TempDir()))
	if err != nil {
		tb.Fatal(err)
	}
	return sandboxFor(tb, p)
}

// policyOf is a policy that says this and its version.
func policyOf(tb testing.TB, text string) *policy.Policy {
	tb.Helper()
	p, err := policy.Load(policy.Input{Name: "test.toml", Data: []byte("version = 1\n" + text), Dir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// planFor is what a policy becomes on this machine, where these limits are looked into.
func planFor(tb testing.TB, p *policy.Policy, limits policy.Limits) *spec.Plan {
	tb.Helper()
	host, err := machine.Probe(limits)
	if err != nil {
		tb.Fatal(err)
	}
	plan, err := spec.Resolve(p, host)
	if err != nil {
		tb.Fatal(err)
	}
	return plan
}

func sandboxFor(tb testing.TB, p *policy.Policy) *Sandbox {
	tb.Helper()
	plan := planFor(tb, p, policy.Limits{})
	store, err := OpenStore(filepath.Join(tb.TempDir(), "state"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(store.Close)
	sb, err := store.Create("test", plan, Options{Owner: &owner.Owner{PID: os.Getpid()}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := sb.Delete(nil); err != nil {
			tb.Error(err)
		}
	})
	return sb
}

func runTrue(tb testing.TB, sb *Sandbox) {
	tb.Helper()
	r, err := sb.Start(Request{Args: []string{"/bin/true"}})
	if err != nil {
		tb.Fatal(err)
	}
	if res, err := r.Wait(); err != nil || res.ExitCode != 0 {
		tb.Fatal(res, err)
	}
}

// BenchmarkExec compares an exec in a live sandbox, from a process that stays, with a bare spawn of the same program.
func BenchmarkExec(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sandbox", func(b *testing.B) {
		sb := newSandbox(b)
		for b.Loop() {
			runTrue(b, sb)
		}
	})
	b.Run("sandbox8", func(b *testing.B) {
		sb := newSandbox(b)
		var group sync.WaitGroup
		share := b.N/8 + 1
		for range 8 {
			group.Go(func() {
				for range share {
					runTrue(b, sb)
				}
			})
		}
		group.Wait()
	})
}

// BenchmarkChecks is what the checks add to each start.
func BenchmarkChecks(b *testing.B) {
	p, err := policy.Load(policy.Default(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	plan := planFor(b, p, policy.Limits{})
	sb := sandboxFor(b, p)
	filter, err := sb.loadFilter()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := check.New(plan.Checks, plan.View, sb.store.path).Run(sb.checked(filter)); err != nil {
			b.Fatal(err)
		}
	}
}
