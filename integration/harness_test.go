package integration

import (
	"os/exec"
	"path/filepath"
	"testing"

	goclient "github.com/sandboxrun/sandboxrun/client"
)

// withPythonClient runs Python with the client, as a harness would.
func (b *box) withPythonClient(args ...string) {
	b.t.Helper()
	cmd := exec.Command("python3", args...)
	cmd.Dir = b.dir
	cmd.Env = append(b.env, "SANDBOXRUN_BIN="+w.binary, "PYTHONPATH="+filepath.Join(w.shared, "clients", "python"), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Errorf("python3 %v: %v\n%s", args, err, out)
	}
}

// TestPythonClient runs the tests of clients/python with the built command.
func TestPythonClient(t *testing.T) {
	needProgram(t, "python3")
	flavours(t, func(b *box) {
		b.withPythonClient("-m", "unittest", "discover", "-s", filepath.Join(w.shared, "clients", "python", "tests"))
		same(b.t, "sandboxes left", 0, len(b.ids()))
	})
}

// TestNodeClient runs the tests of clients/typescript with the built command.
func TestNodeClient(t *testing.T) {
	needProgram(t, "node")
	flavours(t, func(b *box) {
		cmd := exec.Command("node", "--test", filepath.Join(w.shared, "clients", "typescript", "test"))
		cmd.Dir = b.dir
		cmd.Env = append(b.env, "SANDBOXRUN_BIN="+w.binary)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.t.Errorf("node: %v\n%s", err, out)
		}
		same(b.t, "sandboxes left", 0, len(b.ids()))
	})
}

// TestGoClient: what client/client_test.go has in detail, as everybody, by a server of its own and by one at a socket.
func TestGoClient(t *testing.T) {
	flavours(t, func(b *box) {
		socket, stop := b.socket()
		for _, o := range []goclient.Options{{Path: w.binary, Root: b.state, Env: b.env}, {Address: socket}} {
			c, err := goclient.Start(o)
			if err != nil {
				b.t.Fatal(err)
			}
			sb, err := c.Create(b.t.Context(), goclient.Policy{Inline: tmpfsPolicy()})
			if err != nil {
				b.t.Fatal(err)
			}
			cmd := sb.Command("cat", "f")
			cmd.Put = map[string][]byte{"f": []byte("typed")}
			out, err := cmd.Output()
			if err != nil || string(out) != "typed" {
				b.t.Errorf("%q %v", out, err)
			}
			same(b.t, "sandboxes", 1, len(b.ids()))
			if err := c.Close(); err != nil {
				b.t.Error(err)
			}
			same(b.t, "sandboxes left", 0, len(b.ids()))
		}
		stop()
	})
}

// TestHarnesses runs examples/harness.
func TestHarnesses(t *testing.T) {
	needProgram(t, "python3")
	flavours(t, func(b *box) {
		list, err := filepath.Glob(filepath.Join(w.shared, "examples", "harness", "*.py"))
		if err != nil || len(list) < 5 {
			b.t.Errorf("harnesses: %v %v", list, err)
		}
		for _, harness := range list {
			b.withPythonClient(harness)
		}
		same(b.t, "sandboxes left", 0, len(b.ids()))
	})
}
