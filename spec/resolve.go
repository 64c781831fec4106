package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

const (
	hostname   = "sandbox"
	defaultEnv = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	umask      = 0o022
)

// Resolve decides everything about a sandbox. The error is an *Error, a *rootfs.Error or a *PolicyError.
func Resolve(p *Policy, h *Host) (*Plan, error) {
	ids, err := identify(p.User, h)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Name: p.Name, PolicyFile: p.File, PolicyDigest: p.Digest, Network: p.Network.Mode, BestEffort: p.Enforce == EnforceBestEffort}
	home := "/home/" + ids.name
	if ids.shownUID == 0 {
		home = "/root"
	}
	plan.View, err = rootfs.Compile(rootfs.Request{
		Policy: p.Files, Tree: h.Tree, Hostname: hostname, ResolvConf: resolvConf(p.Network.Mode, h.Resolv),
		TmpfsSize: tmpfsSize(p.Limits.Memory),
		User: rootfs.Identity{
			UID: ids.shownUID, GID: ids.shownGID, Name: ids.name, Group: ids.group, Home: home, Privileged: h.Root,
		},
	})
	if err != nil {
		return nil, err
	}
	if _, err := plan.View.Lookup(h.Tree, home); err != nil {
		home = "/tmp" // a grant is in its place that lacks it
	}
	plan.Exec = execOf(p, h, ids, plan.View.Workdir, home)
	plan.Warnings = append(network(&p.Network), plan.View.Skipped...)
	if err := limits(p, h, plan); err != nil {
		return nil, err
	}
	plan.Spec = ociSpec(plan, h, ids)
	return plan, nil
}

// identity is as whom the program runs: to the kernel, and as it sees itself.
type identity struct {
	uid, gid           int // in the sandbox's user namespace
	shownUID, shownGID int
	name, group        string
	maps               [2][]specs.LinuxIDMapping // uid, gid
}

// identify maps the caller to root of the sandbox's user namespace, which only our own set-up ever is. The program is
// in a namespace nested in that one, where it is shown under the number that it should see. A root launcher that runs
// the program as somebody else maps that number too.
func identify(u User, h *Host) (identity, error) {
	id := identity{shownUID: h.UID, shownGID: h.GID, name: h.User, group: h.Group}
	id.maps = [2][]specs.LinuxIDMapping{
		{{ContainerID: 0, HostID: uint32(h.UID), Size: 1}}, {{ContainerID: 0, HostID: uint32(h.GID), Size: 1}},
	}
	switch u.Kind {
	case "root":
		id.shownUID, id.shownGID, id.name, id.group = 0, 0, "root", "root"
	case "number":
		if u.ID == h.UID {
			break
		}
		if !h.Root {
			return id, &Error{
				Code:    "policy_invalid",
				Message: fmt.Sprintf("%s = %d: only root may run a program as somebody else", u.From, u.ID),
				Hint:    `use user = "caller", or start sandboxrun as root`,
			}
		}
		id = identity{uid: u.ID, gid: u.ID, shownUID: u.ID, shownGID: u.ID, maps: id.maps}
		id.name = "user" + strconv.Itoa(u.ID)
		id.group = id.name
		for i := range id.maps {
			n := uint32(u.ID)
			id.maps[i] = append(id.maps[i], specs.LinuxIDMapping{ContainerID: n, HostID: n, Size: 1})
		}
	}
	return id, nil
}

// resolvConf is what the program finds in /etc/resolv.conf.
func resolvConf(mode, host string) string {
	if (mode == netpolicy.Public || mode == netpolicy.Host) && host != "" {
		return host
	}
	return "# There are no name servers here: the sandbox's network is " + mode + ".\n"
}

func execOf(p *Policy, h *Host, id identity, dir, home string) Exec {
	e := Exec{
		UID: id.uid, GID: id.gid, ShownUID: id.shownUID, ShownGID: id.shownGID, Dir: dir, Umask: umask,
		DropGroups: h.Setgroups,
		Env: map[string]string{
			"PATH": defaultEnv, "HOME": home, "USER": id.name, "LOGNAME": id.name, "LANG": "C.UTF-8",
		},
		EnvAllow: slices.Clone(p.Env.Allow), EnvSet: maps.Clone(p.Env.Set),
	}
	for _, f := range h.ProcFiles {
		switch {
		case slices.Contains(HiddenProc(), f):
			e.Hide = append(e.Hide, f)
		case slices.Contains(ReadonlyProc(), f):
			e.Readonly = append(e.Readonly, f)
		}
	}
	return e
}

// network says what the sandbox's network will not do yet. Whatever it does not do is refused to the program, never
// allowed: without a relay the sandbox has loopback and nothing else.
func network(n *netpolicy.Policy) []string {
	switch n.Mode {
	case netpolicy.Host:
		return []string{"network: the program has the host's own network and every service on it"}
	case netpolicy.Allowlist, netpolicy.Public:
		return []string{fmt.Sprintf("network.mode = %q is not supported yet: the program reaches its own loopback only, "+
			"no allowed host and no forwarded port", n.Mode)}
	}
	if len(n.Ports) > 0 || len(n.Services) > 0 {
		return []string{"network.ports and network.services are not supported yet: nothing is forwarded"}
	}
	return nil
}
