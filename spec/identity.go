package spec

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// The user that a program of the machine's root sees itself as by default.
const (
	plainID   = 1000
	plainName = "sandbox"
)

// identity has the user ids of the program: to the kernel, and as the program sees them.
type identity struct {
	uid, gid           int // in the sandbox's user namespace
	shownUID, shownGID int
	name, group        string
	maps               [2][]specs.LinuxIDMapping // uid, gid: of the sandbox's user namespace
	own                bool                      // uid and gid are Host.Program
	grants             [2][]specs.LinuxIDMapping // of idmapped grants, where own is set
}

// identify plans the ids. The caller is root of the sandbox's user namespace; only the launcher's set-up runs as that root. The
// program is in a user namespace nested in that one, where its id has the number that it should see.
//
// A program of the machine's root must not be root to the host, even without capabilities: root owns nearly every file, and the
// owner of a file may change its mode through every writable mount, also that of a device. So the program gets an id that owns no
// file, and the grants are idmapped mounts, in which the caller's files belong to that id. If the policy names a number, that
// number is mapped instead, and the grants are not idmapped.
func identify(u policy.User, h *Host) (identity, error) {
	id := identity{shownUID: h.UID, shownGID: h.GID, name: h.User, group: h.Group, own: h.Program != 0}
	id.maps = [2][]specs.LinuxIDMapping{
		{{ContainerID: 0, HostID: uint32(h.UID), Size: 1}}, {{ContainerID: 0, HostID: uint32(h.GID), Size: 1}},
	}
	if id.own {
		id.shownUID, id.shownGID, id.name, id.group = plainID, plainID, plainName, plainName
	}
	switch {
	case u.Kind == "root", u.Kind == "number" && u.ID == 0 && h.UID == 0:
		id.shownUID, id.shownGID, id.name, id.group = 0, 0, "root", "root"
	case u.Kind == "number" && u.ID != h.UID:
		if !h.Root {
			return id, fault.New(fault.PolicyInvalid, `use user = "caller", or start sandboxrun as root`, "%s = %d: only root may run a program as somebody else", u.From, u.ID)
		}
		id.own = false
		id.shownUID, id.shownGID, id.name = u.ID, u.ID, "user"+strconv.Itoa(u.ID)
		id.group = id.name
		id.become(u.ID)
	}
	if id.own {
		id.become(h.Program)
		for i, caller := range []int{h.UID, h.GID} {
			id.grants[i] = Exchange(uint32(caller), uint32(h.Program))
		}
	}
	return id, nil
}

// become gives the program the id n, in the sandbox's user namespace and outside.
func (id *identity) become(n int) {
	id.uid, id.gid = n, n
	for i := range id.maps {
		id.maps[i] = append(id.maps[i], specs.LinuxIDMapping{ContainerID: uint32(n), HostID: uint32(n), Size: 1})
	}
}

// asCaller is the identity with the caller's id instead of an own one.
func (id identity) asCaller() identity {
	id.uid, id.gid, id.own = 0, 0, false
	for i := range id.maps {
		id.maps[i] = id.maps[i][:1]
	}
	return id
}

// Exchange maps all ids to themselves, except a and b, which it exchanges; a is less than b. All ids need a mapping, because the
// kernel refuses changes to files whose owner has none.
func Exchange(a, b uint32) []specs.LinuxIDMapping {
	var list []specs.LinuxIDMapping
	add := func(from, to, n uint32) {
		if n > 0 {
			list = append(list, specs.LinuxIDMapping{ContainerID: from, HostID: to, Size: n})
		}
	}
	add(0, 0, a)
	add(a, b, 1)
	add(a+1, a+1, b-a-1)
	add(b, a, 1)
	add(b+1, b+1, math.MaxUint32-b-1) // the last number is not an id
	return list
}

// granted reports whether a mount belongs to a grant of the policy, not to the base or to every sandbox.
func granted(p *policy.Policy, m rootfs.Mount) bool {
	if m.Kind != rootfs.MountBind || m.Source == "" {
		return false
	}
	return m.Writable || m.From != rootfs.FromDefault && m.From != p.Files.Base.From
}

// idmap plans which mounts are idmapped. If a file system cannot be idmapped, the program sees a read-only grant as a stranger, and
// can read less. It could not write a writable grant at all, so there the program gets the caller's id, if the policy is
// best_effort.
func idmap(p *policy.Policy, h *Host, id identity, plan *Plan) (identity, error) {
	if h.NotApart != "" && id.uid == 0 {
		return id, programIsRoot(p, h, plan)
	}
	if !id.own {
		return id, nil
	}
	var weaker []Weakness
	var covers []cover
	mounts := slices.Clone(plan.View.Mounts)
	for i := range mounts {
		m := &mounts[i]
		if !granted(p, *m) {
			continue
		}
		left, err := h.Idmap(m.Source)
		if err == nil {
			m.Idmapped = true
			covers = append(covers, coversOf(plan.View, *m, left)...)
			continue
		}
		what := fmt.Sprintf("%s %q", m.From, m.Source)
		if !m.Writable {
			weaker = append(weaker, Weakness{what, fmt.Sprintf(
				"it cannot be idmapped: %v. The program can read only the files there that everybody may read", err)})
			continue
		}
		if p.Enforce != policy.EnforceBestEffort {
			return id, fault.New(fault.GrantNotIdmapped, "grant a directory of another file system; or name a user who may write there (user = N); "+
				`or accept a program that is root to the host, without capabilities: enforce = "best_effort" in the policy`,
				"%s: it cannot be idmapped: %v: only a program that is root to the host could write there", what, err)
		}
		plan.weaken(Weakness{what, fmt.Sprintf(
			"it cannot be idmapped: %v. To write there the program is root to the host, without capabilities", err)})
		return id.asCaller(), nil
	}
	plan.View.Mounts = mounts
	plan.weaken(weaker...)
	return id, leaveOut(plan, covers)
}

// programIsRoot handles a launcher that cannot give the program another id: the program is root to the host, if the policy is
// best_effort.
func programIsRoot(p *policy.Policy, h *Host, plan *Plan) error {
	if p.Enforce == policy.EnforceBestEffort {
		plan.weaken(Weakness{"user", "the program is root to the host, without capabilities: " + h.NotApart})
		return nil
	}
	return fault.New(fault.ProgramIsRoot, "give the launcher these capabilities, start it as another user, "+
		`or accept a program that is root to the host, without capabilities: enforce = "best_effort" in the policy`,
		"%s", "the program would be root to the host: "+h.NotApart)
}

// weaken adds protections that are weaker than asked, with a warning for each.
func (p *Plan) weaken(list ...Weakness) {
	for _, w := range list {
		p.Weaker = append(p.Weaker, w)
		p.Warnings = append(p.Warnings, w.What+": "+w.Reason)
	}
}
