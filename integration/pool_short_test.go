package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/owner"
)

// TestPoolCreate: in a pool create and delete are answered before Go starts. They mean what they mean otherwise: who owns the sandbox, what is an
// error, and what is left.
func TestPoolCreate(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		policy := b.policy(object{"limits": object{"pids": 64}})
		p := b.pool(call{}, "--policy", policy, "--size", "2")
		ownerOf := func(id string) string {
			t.Helper()
			var state struct{ Owner *owner.Owner }
			if err := json.Unmarshal([]byte(b.run("state", id).exits(0).stdout), &state); err != nil {
				t.Fatal(err)
			}
			if state.Owner == nil {
				return "none"
			}
			return fmt.Sprint(state.Owner.PID, " ", state.Owner.Name, " ", state.Owner.StartTime > 0 && state.Owner.BootID != "")
		}
		other := exec.Command("/bin/sleep", "1000")
		b.mustDo(other.Start())
		defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
		for name, c := range map[string]struct {
			wrap  []string
			owner string // option
		}{
			"caller":    {},
			"wrapper":   {wrap: []string{"/usr/bin/timeout", "60"}},
			"wrappers":  {wrap: []string{"/usr/bin/env", "A=b", "/usr/bin/nice", "/usr/bin/timeout", "60"}},
			"named":     {owner: fmt.Sprint(other.Process.Pid)},
			"no one":    {owner: "none"},
			"not there": {owner: "4194304"},
			"no number": {owner: "1x"},
		} {
			var owners, ends []string
			for _, way := range []string{"", longWay} {
				b.full(2)
				args := []string{"create", "--policy", policy}
				if c.owner != "" {
					args = append(args, "--owner", c.owner)
				}
				a := b.call(p.in(call{wrap: c.wrap, env: []string{way}}), append(args, "box")...)
				ends = append(ends, fmt.Sprint(a.status, a.stdout, codeOf(a)))
				if a.status != 0 {
					continue
				}
				same(t, name+": from the pool", true, b.fromPool("box"))
				owners = append(owners, ownerOf("box"))
				b.run("exec", "box", "--", "true").exits(0)
				b.call(p.in(call{env: []string{way}}), "delete", "box").exits(0)
				absent(t, b.state+"/box")
			}
			same(t, name+": the two ends", ends[0], ends[1])
			if len(owners) == 2 {
				same(t, name+": the two owners", owners[0], owners[1])
			}
			if name == "caller" || name == "wrapper" || name == "wrappers" {
				same(t, name+": its owner", fmt.Sprint(os.Getpid(), " ", owner.Comm(os.Getpid()), " true"), owners[0])
			}
		}
		for _, line := range [][]string{
			{"delete", "box"},
			{"delete", "../box"},
			{"delete"},
			{"delete", "--force", "box"},
			{"delete", "box", "more"},
			{"create", "--policy", policy, "../box"},
			{"create", "--policy", policy},
			{"create", "--policy", policy, ".ready-x"},
		} {
			short, long := b.call(p.in(call{}), line...), b.call(p.in(call{env: []string{longWay}}), line...)
			same(t, fmt.Sprint(line), fmt.Sprint(long.status, long.stdout, long.stderr), fmt.Sprint(short.status, short.stdout, short.stderr))
		}
		// One that is not the pool's own, with a program in it.
		b.run("create", "--policy", policy, "other").exits(0)
		b.run("exec", "--detach", "other", "--", "sleep", "1000.125").exits(0)
		same(t, "processes", 1, processes("1000.125"))
		b.call(p.in(call{}), "delete", "other").exits(0)
		absent(t, b.state+"/other")
		same(t, "processes left", 0, processes("1000.125"))
	})
}
