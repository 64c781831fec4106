package integration

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/doctor/escapes"
)

// attacks are those that say something where the caller is who it is.
func attacks() []escapes.Attack { return escapes.Of(w.uid) }

// play runs attacks by a command.
func (s *stage) play(cmd *exec.Cmd, list []escapes.Attack, inside bool) escapes.Outcomes {
	s.t.Helper()
	got, err := s.Play(cmd, list, inside, false)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range list {
		if !got.Ran(a.Name) {
			s.t.Errorf("%s did not run: %s", a.Name, got[a.Name])
		}
	}
	return got
}

// outside runs attacks without a sandbox.
func (s *stage) outside(list []escapes.Attack) escapes.Outcomes {
	s.t.Helper()
	cmd := exec.Command("python3", "-c", escapes.Program())
	cmd.Dir, cmd.Env = s.path("work"), append(slices.Clone(s.env), escapes.Environ())
	return s.play(cmd, list, false)
}

// inside runs them in a sandbox; without names layers that are left out, where the binary can do that.
func (s *stage) inside(list []escapes.Attack, without string) escapes.Outcomes {
	s.t.Helper()
	c := call{env: []string{escapes.Environ()}}
	if without != "" {
		c.env = append(c.env, "SANDBOXRUN_SABOTAGE=refusal of broken checks,"+without)
	}
	return s.play(s.command(c, "run", "-p", s.policy, "--", "python3", "-c", escapes.Program()), list, true)
}

// TestEscapes runs every attack without a sandbox and in one.
func TestEscapes(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		list := attacks()
		control, got := newStage(t).outside(list), newStage(t).inside(list, "")
		for _, a := range list {
			t.Run(strings.ReplaceAll(a.Name, " ", "-"), func(t *testing.T) {
				if got.Broke(a.Name) {
					t.Errorf("it succeeded:\n%s", got[a.Name])
				}
				met, allowed := got.Met(a.Name), strings.Fields(a.Fails)
				if len(met) == 0 && len(allowed) > 0 && !slices.Contains(allowed, "none") || slices.ContainsFunc(met, func(e string) bool { return !slices.Contains(allowed, e) }) {
					t.Errorf("it met %q, want of %q:\n%s", met, allowed, got[a.Name])
				}
				if !control.Broke(a.Name) { // a hardened kernel, or one that was built without
					t.Logf("without a sandbox: %s", control[a.Name])
					need(t, "control:"+strings.ReplaceAll(a.Name, " ", "-"), false)
				}
			})
		}
	})
}

// TestEnoughAttacks keeps the table from shrinking, and its names apart.
func TestEnoughAttacks(t *testing.T) {
	const most = 60
	list := escapes.All()
	if len(list) < most {
		t.Errorf("only %d attacks", len(list))
	}
	seen := map[string]bool{}
	for _, a := range list {
		if seen[a.Name] {
			t.Errorf("%q is there twice", a.Name)
		}
		seen[a.Name] = true
	}
}
