package integration

import (
	"os"
	"path/filepath"
	"testing"
)

// atTerminal has a person call the launcher from an interactive shell, as testdata/terminal.py says.
func (b *box) atTerminal(scenario string, c call, args ...string) *answer {
	b.t.Helper()
	needProgram(b.t, "python3")
	for _, name := range []string{"beats", "log"} {
		_ = os.Remove(b.path("work", name))
	}
	c.dir = b.mkdir("work")
	c.wrap = []string{"python3", filepath.Join(w.shared, "integration", "testdata", "terminal.py"), scenario}
	return b.call(c, args...)
}

// TestSuspend: Ctrl-Z stops everything that runs inside, and fg lets it go on, with a terminal inside and without one.
func TestSuspend(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.files(b.path("work"), object{"write": []string{b.mkdir("work")}})
		b.create("box", p)
		for _, args := range [][]string{
			{"run", "-p", p, "--"}, {"exec", "-t", "box", "--"}, {"exec", "-i", "box", "--"}, {"exec", "box", "--"},
		} {
			a := b.atTerminal("suspend", call{}, args...)
			a.exits(0).prints("begun True", "stopped True", "quiet True", "beats again True", "interrupted True")
		}
		b.atTerminal("suspend", call{env: []string{longWay}}, "exec", "box", "--").
			prints("stopped True", "quiet True", "beats again True", "interrupted True")
		// The wall clock goes on meanwhile, as that of timeout(1) does.
		b.atTerminal("wall", call{}, "exec", "--timeout", "1.5", "box", "--").prints("timed out True")
		b.atTerminal("shell", call{}, "run", "-p", p, "--").prints("stopped True", "inside True", "exits True")
	})
}

// TestBackground: a launcher in the background leaves the terminal to the shell, and is not stopped.
func TestBackground(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.files(b.path("work"), object{"write": []string{b.mkdir("work")}})
		b.create("box", p)
		for _, args := range [][]string{{"run", "-p", p, "--"}, {"exec", "-i", "box", "--"}, {"exec", "box", "--"}} {
			b.atTerminal("background", call{}, args...).prints("ended True", "stopped False", "typed True")
		}
		for _, args := range [][]string{{"run", "-p", p, "--"}, {"exec", "-i", "box", "--"}} {
			b.atTerminal("both", call{}, args...).prints("writes True", "stopped False", "reads True")
		}
	})
}

// TestTerminalSettings: the program's terminal begins as the caller's is.
func TestTerminalSettings(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.policy(object{})
		b.create("box", p)
		for _, args := range [][]string{{"run", "-p", p, "--"}, {"exec", "-t", "box", "--"}} {
			b.atTerminal("settings", call{}, args...).prints(
				"rows 33 True", "columns 77 True", "erase = ^H True", "intr = ^G True", "iutf8 True", "icanon True", "echo True")
		}
	})
}
