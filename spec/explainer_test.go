package spec

import (
	"slices"
	"testing"

	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// The program's numbers are the caller's unless the policy says otherwise, and so are its groups unless they are dropped.
func TestExplainer(t *testing.T) {
	h := madeUpHost()
	p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte("version = 1\n"), Dir: "/home/ada"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Resolve(p, h)
	if err != nil {
		t.Fatal(err)
	}
	x := Explainer(p, plan, h, []int{4, 5})
	if x.Who.UID != h.UID || x.Who.GID != h.GID || !slices.Equal(x.Who.Groups, []int{4, 5}) || x.Launcher.UID != h.UID {
		t.Errorf("%+v", x)
	}
	plan.Exec.UID, plan.Exec.GID, plan.Exec.DropGroups = 7, 8, true
	x = Explainer(p, plan, h, []int{4, 5})
	if x.Who.UID != 7 || x.Who.GID != 8 || x.Who.Groups != nil || x.Launcher.UID != h.UID {
		t.Errorf("%+v", x)
	}
}
