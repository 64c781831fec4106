package integration

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/doctor/escapes"
)

// TestDoctorEscapes: the command holds what the suite holds, says of a policy that gives something away that it does, and leaves nothing.
func TestDoctorEscapes(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		tmp, err := os.MkdirTemp("/tmp", "e") //nolint:usetesting // the path of a socket has at most 107 bytes
		b.mustDo(err)
		b.t.Cleanup(func() { _ = os.RemoveAll(tmp) })
		for name, c := range map[string]struct {
			policy object
			status int
			broken string
			notes  string
		}{
			"default":  {object{"extends": "default"}, 0, "", ""},
			"no spawn": {object{"processes": object{"spawn": false}}, 0, "", ""},
			"guard":    {object{"limits": object{"wall": "1s", "idle": "1s"}, "processes": object{"guard": "python", "steps": 5}}, 0, "", "processes.guard is off"},
			"host":     {object{"network": object{"mode": "host"}}, 1, "reach a port of the host's loopback", ""},
		} {
			a := b.call(call{env: []string{"TMPDIR=" + tmp}}, "doctor", "--escapes", "--json", "-p", b.policy(c.policy)).exits(c.status)
			var r escapes.Report
			if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
				b.t.Fatalf("%s: %v: %v", name, err, a)
			}
			broken := slices.ContainsFunc(r.Rows, func(r escapes.Row) bool { return r.Result == escapes.Broken && r.Name == c.broken })
			if r.Count(escapes.Held) < 60 || broken != (c.broken != "") || c.broken == "" && r.Count(escapes.Broken) > 0 || !strings.Contains(strings.Join(r.Notes, " "), c.notes) {
				b.t.Errorf("%s: %v", name, a)
			}
			for _, row := range r.Rows {
				if row.Result == escapes.NotTested && !strings.Contains(row.Output, "without a sandbox") {
					b.t.Errorf("%s: %+v", name, row)
				}
			}
			same(b.t, "left in the temporary directory", 0, len(entries(b.t, tmp)))
		}
		b.run("doctor", "--policy", "default").exits(125).complains("usage")
		b.run("doctor", "--escapes", "--policy", "-").exits(125).complains("usage")
	})
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
