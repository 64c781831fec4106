package spec

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

const testProgram = 2020000000

func asMachineRoot(h *Host) {
	asRoot(h)
	h.Program, h.Idmap = testProgram, func(string) ([]LeftOut, error) { return nil, nil }
}

const machineRootPolicy = `version = 1
workspace = { source = "/home/ada/work/out" }
files = { read = ["/home/ada/work"], deny = ["/home/ada/work/in/answers.csv", "/home/ada/work/out/.env"] }
`

func TestExchange(t *testing.T) {
	all := func(list []specs.LinuxIDMapping) (n uint64) {
		for i, m := range list {
			n += uint64(m.Size)
			if i > 0 && m.ContainerID != list[i-1].ContainerID+list[i-1].Size {
				t.Errorf("%v is not whole", list)
			}
		}
		return n
	}
	got := Exchange(0, 7)
	want := []specs.LinuxIDMapping{
		{ContainerID: 0, HostID: 7, Size: 1},
		{ContainerID: 1, HostID: 1, Size: 6},
		{ContainerID: 7, HostID: 0, Size: 1},
		{ContainerID: 8, HostID: 8, Size: 4294967287},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, list := range [][]specs.LinuxIDMapping{got, Exchange(5, 7), Exchange(5, 6), Exchange(0, 4294967294)} {
		if n := all(list); n != 1<<32-1 {
			t.Errorf("%v maps %d ids", list, n)
		}
	}
}

func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		user       string
		host       func(*Host)
		uid, shown int
		own        bool
		name       string
	}{
		{`"caller"`, nil, 0, 1000, false, "ada"},
		{`"root"`, nil, 0, 0, false, "root"},
		{`1000`, nil, 0, 1000, false, "ada"},
		{`"caller"`, asRoot, 0, 0, false, "root"},
		{`7`, asRoot, 7, 7, false, "user7"},
		{`"caller"`, asMachineRoot, testProgram, 1000, true, "sandbox"},
		{`"root"`, asMachineRoot, testProgram, 0, true, "root"},
		{`0`, asMachineRoot, testProgram, 0, true, "root"},
		{`7`, asMachineRoot, 7, 7, false, "user7"},
		{`1000`, asMachineRoot, 1000, 1000, false, "user1000"},
	} {
		plan, err := resolve(t, "version = 1\nfiles.write = [\"/home/ada/work/out\"]\nuser = "+c.user, c.host)
		if err != nil {
			t.Fatal(err)
		}
		e := plan.Exec
		if e.UID != c.uid || e.GID != c.uid || e.ShownUID != c.shown || e.OwnID != c.own || e.Env["USER"] != c.name {
			t.Errorf("%s: %+v", c.user, e)
		}
		if maps := len(plan.Spec.Linux.UIDMappings); (maps == 2) != (c.uid != 0) {
			t.Errorf("%s: %d maps", c.user, maps)
		}
		for i, m := range plan.View.Mounts {
			mount := plan.Spec.Mounts[len(plan.Spec.Mounts)-len(plan.View.Mounts)+i]
			if want := c.own && m.Target == "/home/ada/work/out"; m.Idmapped != want || (len(mount.UIDMappings) > 0) != want || (len(mount.GIDMappings) > 0) != want {
				t.Errorf("%s: %s is idmapped: %t", c.user, m.Target, m.Idmapped)
			}
		}
	}
}

// Where a grant cannot be idmapped: who may write is refused or root, who may read reads less.
func TestNotIdmapped(t *testing.T) {
	reason := errors.New("fuse")
	not := func(path string) func(*Host) {
		return func(h *Host) {
			asMachineRoot(h)
			h.Idmap = func(p string) ([]LeftOut, error) {
				if p == path {
					return nil, reason
				}
				return nil, nil
			}
		}
	}
	_, err := resolve(t, machineRootPolicy, not("/home/ada/work/out"))
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != "grant_not_idmapped" || !strings.Contains(e.Error(), "/home/ada/work/out") || !strings.Contains(e.Hint, "best_effort") {
		t.Errorf("%v", err)
	}
	plan, err := resolve(t, machineRootPolicy+"enforce = \"best_effort\"\n", not("/home/ada/work/out"))
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Weaker) != 1 || plan.Exec.UID != 0 || plan.Exec.OwnID || plan.Exec.ShownUID != 1000 || plan.Checks.MayOwn == "" ||
		slices.ContainsFunc(plan.View.Mounts, func(m rootfs.Mount) bool { return m.Idmapped }) {
		t.Errorf("%+v", plan)
	}
	plan, err = resolve(t, machineRootPolicy, not("/home/ada/work"))
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Weaker) != 1 || len(plan.Warnings) != 1 || !plan.Exec.OwnID || plan.Checks.MayOwn != "" {
		t.Errorf("%+v", plan)
	}
}
