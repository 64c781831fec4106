package integration

import "testing"

// TestMadeUpLimit: a limit that was decided and that nothing enforces refuses the start.
func TestMadeUpLimit(t *testing.T) {
	binary := sabotagedBinary(t)
	flavours(t, func(b *box) {
		product := w.binary
		w.binary = binary
		defer func() { w.binary = product }()
		p := b.policy(object{"limits": object{"nofile": 100}})
		b.call(call{}, "run", "--policy", p, "--", "true").exits(0)
		a := b.call(call{env: []string{"SANDBOXRUN_SABOTAGE=enforcement"}}, "run", "--policy", p, "--", "true").exits(125)
		a.complains("limit_unenforceable", "made_up")
	})
}
