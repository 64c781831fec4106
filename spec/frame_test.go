package spec

import (
	"testing"

	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// TestForeseeFrame: the frame is known before the plan, but for a program that gets the caller's id after all.
func TestForeseeFrame(t *testing.T) {
	for _, tt := range plans {
		plan, err := resolve(t, tt.policy, tt.host)
		if err != nil {
			t.Fatal(err)
		}
		h := madeUpHost()
		if tt.host != nil {
			tt.host(h)
		}
		p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte(tt.policy), Dir: "/home/ada"})
		if err != nil {
			t.Fatal(err)
		}
		frame, err := ForeseeFrame(p, h)
		if err != nil {
			t.Fatal(err)
		}
		if same, want := frame.Equal(plan.Frame()), tt.name != "machine_root_best_effort"; same != want {
			t.Errorf("%s: foreseen %+v, became %+v", tt.name, frame, plan.Frame())
		}
	}
	p := &policy.Policy{User: policy.User{Kind: "number", ID: 5}}
	if _, err := ForeseeFrame(p, &Host{UID: 1000}); err == nil {
		t.Error("a user becomes somebody else")
	}
}
