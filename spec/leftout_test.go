package spec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// leavingOut is a machine on which these mounts below /home/ada/work cannot be idmapped.
func leavingOut(left ...LeftOut) func(*Host) {
	return func(h *Host) {
		asMachineRoot(h)
		h.Idmap = func(p string) ([]LeftOut, error) {
			if p == "/home/ada/work" {
				return left, nil
			}
			return nil, nil
		}
	}
}

// What cannot be idmapped below a grant is covered, with the denies in it; what another grant shows there is left to that.
func TestLeftOut(t *testing.T) {
	in, out := LeftOut{"/home/ada/work/in", true, "fuse"}, LeftOut{"/home/ada/work/out", true, "fuse"}
	plan, err := resolve(t, machineRootPolicy, leavingOut(in, out))
	if err != nil {
		t.Fatal(err)
	}
	at := func(target string) int {
		return slices.IndexFunc(plan.View.Mounts, func(m rootfs.Mount) bool { return m.Target == target && !m.Pin })
	}
	i := at(in.Path)
	if i < 0 || i != at("/home/ada/work")+1 {
		t.Fatalf("%+v", plan.View.Mounts)
	}
	if m := plan.View.Mounts[i]; m.Kind != rootfs.MountTmpfs || !m.LeftOut || m.Owned || m.Mode&0o222 != 0 || writableTmpfs(m) {
		t.Errorf("%+v", m)
	}
	if m := plan.View.Mounts[at(out.Path)]; m.LeftOut || !m.Idmapped {
		t.Errorf("%+v", m)
	}
	for _, m := range plan.View.Mounts {
		if m.Kind == rootfs.MountMask && pathname.Within(m.Target, in.Path) {
			t.Errorf("%s has a mask", m.Target)
		}
	}
	if !slices.ContainsFunc(plan.View.Absent, func(d rootfs.Denied) bool { return pathname.Within(d.Inside, out.Path) }) {
		t.Error("the deny in what is shown is gone")
	}
	if slices.ContainsFunc(plan.View.Masked, func(d rootfs.Denied) bool { return pathname.Within(d.Inside, in.Path) }) {
		t.Errorf("%+v", plan.View.Masked)
	}
	said := slices.DeleteFunc(slices.Clone(plan.Warnings), func(s string) bool { return !strings.Contains(s, "left out") })
	if len(said) != 1 || !strings.Contains(said[0], `"/home/ada/work/in"`) || !strings.Contains(said[0], "fuse") || len(plan.Weaker) != 0 {
		t.Errorf("%q %v", plan.Warnings, plan.Weaker)
	}
}

func TestLeftOutFileAndWorkdir(t *testing.T) {
	plan, err := resolve(t, machineRootPolicy, leavingOut(LeftOut{"/home/ada/work/in/data.csv", false, "nfs"}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(plan.View.Mounts, func(m rootfs.Mount) bool {
		return m.Target == "/home/ada/work/in/data.csv" && m.Kind == rootfs.MountMask && m.LeftOut && !m.Dir
	}) {
		t.Errorf("%+v", plan.View.Mounts)
	}
	_, err = resolve(t, "version = 1\nworkdir = \"/home/ada/work/in\"\nfiles.write = [\"/home/ada/work\"]\n", leavingOut(LeftOut{"/home/ada/work/in", true, "nfs"}))
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.GrantNotIdmapped || !strings.Contains(e.Error(), "/home/ada/work/in") || !strings.Contains(e.Hint, "files.read") {
		t.Error(err)
	}
}

// Many are warned of in few words, and the same mount once.
func TestLeftOutMany(t *testing.T) {
	var list []cover
	for name := range strings.FieldsSeq("a a b c d e f g") {
		list = append(list, cover{LeftOut: LeftOut{Path: "/" + name}})
	}
	if said := warningsOf(list); len(said) != 6 || !strings.Contains(said[5], "2 more") {
		t.Errorf("%q", said)
	}
}
