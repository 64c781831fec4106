package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// TestExtra says what one exec has besides, as "kind source on target", what is put on top again with "+", and what must be hidden with "-".
func TestExtra(t *testing.T) {
	const work = "/home/ada/work"
	for _, c := range []struct{ policy, view, want string }{
		{"", "read = ['" + work + "/in']", "bind " + work + "/in on " + work + "/in"},
		{"", "bind = [{ source = '" + work + "/in/data.csv', target = '/opt/x' }]", "bind " + work + "/in/data.csv on /opt/x"},
		{"[files]\nread = ['" + work + "']", "deny = ['" + work + "/in/answers.csv']", "mask on " + work + "/in/answers.csv, -" + work + "/in/answers.csv"},
		// What the policy denies is hidden in what the view shows.
		{
			"[files]\ndeny = ['" + work + "/in/answers.csv']", "read = ['" + work + "']",
			"bind " + work + " on " + work + ", mask on " + work + "/in/answers.csv, -" + work + "/in/answers.csv",
		},
		// What the sandbox has below stays: another mount, and a mask, which is made again.
		{
			"[files]\nread = ['" + work + "/in']\nwrite = ['" + work + "/out']\ndeny = ['" + work + "/in/answers.csv']", "read = ['" + work + "']",
			"bind " + work + " on " + work + ", mask on " + work + "/in/answers.csv, +" + work + "/out, -" + work + "/in/answers.csv",
		},
		// A target of the policy's shows something else; what is shown already adds nothing, and a writable grant stays one.
		{"[[bind]]\nsource = '" + work + "/in'\ntarget = '/opt/x'", "bind = [{ source = '" + work + "/out', target = '/opt/x' }]", "bind " + work + "/out on /opt/x"},
		{"[files]\nread = ['" + work + "']", "read = ['" + work + "']", ""},
		{"[files]\nwrite = ['" + work + "']", "read = ['" + work + "']", ""},
		{"[files]\nsecrets = ['" + work + "/in/answers.csv']", "read = ['" + work + "']", "error grant_holds_secret"},
		{"", "read = ['/none']", "error grant_missing"},
		{"", "deny = ['/etc/services']", "mask on /etc/services, -/etc/services"},
	} {
		got := extraOf(t, "version = 1\n"+c.policy+"\n[views.v]\n"+c.view)
		if got != c.want {
			t.Errorf("%s with %s:\n got %s\nwant %s", c.policy, c.view, got, c.want)
		}
	}
}

func extraOf(t *testing.T, text string) string {
	t.Helper()
	p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte(text), Dir: "/home/ada"})
	if err != nil {
		t.Fatal(err)
	}
	h := madeUpHost()
	views := p.Views
	p.Views = nil // the sandbox is fine without
	plan, err := Resolve(p, h)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(plan.Kept) // as process 1 holds it
	if err != nil {
		t.Fatal(err)
	}
	kept := Kept{}
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	kept.Views = views
	v, err := kept.Named("v", policy.View{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := kept.Extra(v, h, false)
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return "error " + e.Code
	}
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, m := range x.Mounts {
		source := ""
		if m.Source != "" {
			source = " " + m.Source
		}
		if m.Writable {
			t.Errorf("%q can be written", m.Target)
		}
		list = append(list, fmt.Sprintf("%s%s on %s", m.Kind, source, m.Target))
	}
	for _, p := range x.Again {
		list = append(list, "+"+p)
	}
	for _, m := range x.Masked {
		list = append(list, "-"+m.Target)
	}
	return strings.Join(list, ", ")
}
