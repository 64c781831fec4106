package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	plan.View, err = view(rootfs.Request{
		Policy: p.Files, Tree: h.Tree, Hostname: hostname, ResolvConf: resolvConf(&p.Network, h.Resolv),
		TmpfsSize: tmpfsSize(p.Limits.Memory),
		User: rootfs.Identity{
			UID: ids.shownUID, GID: ids.shownGID, Name: ids.name, Group: ids.group, Home: home, Privileged: h.Root,
		},
	}, connector(&p.Network, h.Self))
	if err != nil {
		return nil, err
	}
	if _, err := plan.View.Lookup(h.Tree, home); err != nil {
		home = "/tmp" // a grant is in its place that lacks it
	}
	plan.Exec = execOf(p, h, ids, plan.View.Workdir, home)
	plan.Warnings = slices.Clone(plan.View.Skipped)
	if err := network(p, h, plan); err != nil {
		return nil, err
	}
	sockets(h, plan)
	if err := limits(p, h, plan); err != nil {
		return nil, err
	}
	plan.Spec = ociSpec(plan, h, ids)
	plan.Checks = checks(p, h.Tree, plan)
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

// view compiles what the program sees. The connector is left out where the policy leaves no room for it.
func view(req rootfs.Request, connector *rootfs.Bind) (*rootfs.View, error) {
	if connector != nil {
		with := req
		with.Policy.Binds = append(slices.Clone(req.Policy.Binds), *connector)
		if v, err := rootfs.Compile(with); err == nil {
			return v, nil
		}
	}
	return rootfs.Compile(req)
}

// resolvConf is what the program finds in /etc/resolv.conf.
func resolvConf(n *netpolicy.Policy, host string) string {
	switch {
	case n.Mode == netpolicy.Host && host != "":
		return host
	case proxied(n.Mode) && n.Transparent:
		return "nameserver " + resolver().String() + "\n" + outside(n.Mode, host)
	case proxied(n.Mode):
		return "# There are no name servers here: the proxy, see HTTPS_PROXY, resolves the names of allowed hosts.\n"
	}
	return "# There are no name servers here: the sandbox's network is " + n.Mode + ".\n"
}

// outside tells, in mode public, whom the host asks: programs that show their name servers are not to look misconfigured.
func outside(mode, host string) string {
	if mode != netpolicy.Public {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(host) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			fmt.Fprintf(&b, "# outside: nameserver %s\n", f[1])
		}
	}
	return b.String()
}

func execOf(p *Policy, h *Host, id identity, dir, home string) Exec {
	e := Exec{
		UID: id.uid, GID: id.gid, ShownUID: id.shownUID, ShownGID: id.shownGID, Dir: dir, Umask: umask,
		DropGroups: h.Setgroups,
		Env: map[string]string{
			"PATH": defaultEnv, "HOME": home, "USER": id.name, "LOGNAME": id.name, "LANG": "C.UTF-8",
		},
		EnvAllow: slices.Clone(p.Env.Allow), EnvSet: maps.Clone(p.Env.Set), Redact: p.Env.Redact,
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
