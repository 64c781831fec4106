package container

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// A limit that nothing holds, by a name or by a way that nobody knows, is an error and never reported as verified.
func TestMadeUpLimit(t *testing.T) {
	e := &enforced{sb: &Sandbox{state: &State{}}, cmd: &forkexec.Command{Limits: forkexec.Limits{Wall: time.Second}}}
	for _, l := range []spec.Limit{
		{Name: "made_up", Value: 1, EnforcedBy: spec.ByWatcher, Verified: true},
		{Name: "wall", Value: 1, EnforcedBy: spec.ByRlimit, Verified: true},
		{Name: "wall", Value: 0.5, EnforcedBy: spec.ByTimer, Verified: true},
		{Name: "idle", Value: 1, EnforcedBy: spec.ByTimer, Verified: true},
		{Name: "memory", Value: 1 << 20, EnforcedBy: spec.ByWatcher, Verified: true},
		{Name: "memory", Value: 1 << 20, EnforcedBy: spec.ByCgroup1, Verified: true},
		{Name: "nofile", Value: 10, EnforcedBy: spec.ByRlimit, Verified: true},
		{Name: "cpus", Value: 1, EnforcedBy: spec.ByAffinity, Verified: true},
		{Name: "disk", Value: 1, EnforcedBy: spec.ByWatcher, Verified: true},
	} {
		list := []spec.Limit{l}
		if err := e.readBack(list); err == nil || list[0].Verified {
			t.Errorf("%+v: %v", l, err)
		}
	}
	list := []spec.Limit{{Name: "wall", Value: 1, EnforcedBy: spec.ByTimer}}
	if err := e.readBack(list); err != nil || !list[0].Verified {
		t.Errorf("%+v: %v", list, err)
	}
}

// Every limit that a policy can ask for has a row.
func TestEveryLimitHasAnEnforcement(t *testing.T) {
	names := map[string]bool{}
	for _, e := range enforcements() {
		names[e.name] = true
	}
	for f := range reflect.TypeFor[policy.Limits]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !names[name] {
			t.Errorf("nothing enforces limits.%s", name)
		}
	}
}
