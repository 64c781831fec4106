package spec

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

const hiding = "version = 1\n[files]\nhide_modules = ['torch', 'sys']\nread = ['/home/ada/work']\nwrite = ['/home/ada/work/out']\n"

// withModules is a machine with modules in its grants; overlays can be had but over the directories that are refused.
func withModules(refused ...string) func(*Host) {
	return func(h *Host) {
		tree, _ := h.Tree.(roottest.Files)
		maps.Copy(tree, roottest.Files{
			"/home/ada/work/torch": "/", "/home/ada/work/torch/__init__.py": "1\n", "/home/ada/work/__pycache__": "/",
			"/home/ada/work/__pycache__/torch.cpython-311.pyc": "1\n", "/home/ada/work/out/torch.py": "1\n",
			"/home/ada/more": "/", "/home/ada/more/torch.py": "1\n",
		})
		h.Overlays = func(dirs []string) []string {
			why := make([]string, len(dirs))
			for i, dir := range dirs {
				if slices.Contains(refused, dir) {
					why[i] = "no such device"
				}
			}
			return why
		}
	}
}

func TestHideModules(t *testing.T) {
	plan, err := resolve(t, hiding, withModules())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range plan.View.Mounts {
		if want := map[string]int{"/home/ada/work": 2}[m.Target]; len(m.Without) != want {
			t.Errorf("%s is without %q", m.Target, m.Without)
		}
	}
	var looked, weaker []string
	for _, p := range plan.Checks.Paths {
		if p.Kind == hooks.Gone || p.Kind == hooks.Mask {
			looked = append(looked, p.Inside)
		}
		if p.Overlay != (p.Inside == "/home/ada/work") {
			t.Errorf("%+v", p)
		}
	}
	slices.Sort(looked)
	if want := []string{"/home/ada/work/__pycache__/torch.cpython-311.pyc", "/home/ada/work/out/torch.py", "/home/ada/work/torch"}; !slices.Equal(looked, want) {
		t.Errorf("looked for are %q", looked)
	}
	for _, w := range plan.Weaker {
		weaker = append(weaker, w.What+": "+w.Reason)
	}
	if len(weaker) != 2 || !strings.Contains(weaker[0], `p.toml:3:26: files.hide_modules: interpreters have "sys"`) ||
		!strings.Contains(weaker[1], `p.toml:3:17: files.hide_modules: a program finds empty what should be absent in "/home/ada/work/out" (torch.py)`) ||
		!strings.Contains(weaker[1], "programs write there") {
		t.Errorf("weaker: %q", weaker)
	}
	for _, w := range weaker {
		if !slices.Contains(plan.Warnings, w) {
			t.Errorf("no warning says %q: %q", w, plan.Warnings)
		}
	}
}

// Where no overlay can be had, and on a machine that was not asked, modules are empty, and that is said.
func TestHideModulesWithoutOverlays(t *testing.T) {
	for why, change := range map[string]func(*Host){
		"no such device": withModules("/home/ada/work"),
		"not known":      func(h *Host) { withModules()(h); h.Overlays = nil },
	} {
		plan, err := resolve(t, hiding, change)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.View.Gone) > 0 || slices.ContainsFunc(plan.View.Mounts, func(m rootfs.Mount) bool { return len(m.Without) > 0 }) {
			t.Errorf("%s: %+v", why, plan.View.Gone)
		}
		masks := 0
		for _, m := range plan.View.Mounts {
			if m.Kind == rootfs.MountMask && m.Empty {
				masks++
			}
		}
		if masks != 3 || !slices.ContainsFunc(plan.Weaker, func(w Weakness) bool { return strings.Contains(w.Reason, why) }) {
			t.Errorf("%s: %d masks, %v", why, masks, plan.Weaker)
		}
	}
}

// What one exec alone sees has no overlay: modules in it are empty. The sandbox's own stay absent.
func TestHideModulesInViews(t *testing.T) {
	text := hiding + "[[views.v.bind]]\nsource = '/home/ada/work'\ntarget = '/again'\n[[views.v.bind]]\nsource = '/home/ada/more'\ntarget = '/more'\n"
	h := madeUpHost()
	withModules()(h)
	p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte(text), Dir: "/home/ada"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Resolve(p, h)
	if err != nil {
		t.Fatal(err)
	}
	x, err := plan.Kept.Extra(plan.Kept.Views["v"], h, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range x.Mounts {
		got = append(got, roottest.MountLine(m))
	}
	want := []string{
		"ro /again/ from /home/ada/work", "ro /more/ from /home/ada/more",
		"mask /again/torch/", "mask /again/out/torch.py", "mask /again/__pycache__/torch.cpython-311.pyc", "mask /more/torch.py",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, m := range x.Masked {
		if !m.Empty {
			t.Errorf("%s refuses", m.Target)
		}
	}
	if !slices.ContainsFunc(x.Warnings, func(s string) bool { return strings.Contains(s, `"/more"`) && strings.Contains(s, "one exec alone") }) {
		t.Errorf("%q", x.Warnings)
	}
}

// Another runtime has masks where a sandbox has overlays.
func TestHideModulesForOtherRuntimes(t *testing.T) {
	plan, err := resolve(t, hiding, withModules())
	if err != nil {
		t.Fatal(err)
	}
	masks := map[string]string{}
	for _, m := range plan.OCI().Mounts {
		masks[m.Destination] = m.Source
	}
	for target, source := range map[string]string{
		"/home/ada/work/torch": EmptyDir, "/home/ada/work/__pycache__/torch.cpython-311.pyc": EmptyFile, "/home/ada/work/out/torch.py": EmptyFile,
	} {
		if masks[target] != source {
			t.Errorf("%s is %q", target, masks[target])
		}
	}
}
