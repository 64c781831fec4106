package ceiling

import (
	"fmt"
	"slices"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// rule says how one key of a policy is held below the ceiling.
type rule struct {
	why    string // of a rule without a function
	narrow func(n *narrowing, key string)
}

const (
	inside  = "it changes what the sandbox has inside alone"
	checked = "Check compares what it has become"
)

// rules has a rule for each key of the reference. A key without one is refused by a test, and so by nobody at run time: see TestEveryKeyHasARule.
func rules() map[string]rule { //nolint:funlen // a table
	free := func(why string) rule { return rule{why: why} }
	by := func(narrow func(n *narrowing, key string)) rule { return rule{narrow: narrow} }
	list := map[string]rule{
		"version": free("it has one value"),
		"extends": free("what it brings is compared; the server lets a client extend presets alone"),
		"name":    free("it is for people"),
		"workdir": free(inside),
		"enforce": by(enforce),
		"user":    by(user),

		"workspace.source": by(workspace),
		"workspace.path":   free(inside),
		"workspace.parent": by(func(n *narrowing, key string) {
			if w := n.asked.Files.Workspace; w != nil && w.Parent != "" {
				n.refuse(key, w.Parent, onDisk)
			}
		}),
		"workspace.size":     free(checked),
		"workspace.lifetime": free(inside),

		"files.base":         by(base),
		"files.base.rootfs":  free("files.base"),
		"files.interpreters": by(interpreters),
		"files.packages":     by(packages),
		"files.hide_modules": by(func(n *narrowing, _ string) {
			add(&n.asked.Interpreters.HideModules, n.policy.Interpreters.HideModules)
		}),
		"files.read":  by(func(n *narrowing, key string) { n.grants(key, n.asked.Files.Read, rootfs.Readable) }),
		"files.write": by(func(n *narrowing, key string) { n.grants(key, n.asked.Files.Write, rootfs.Writable) }),
		"files.deny": by(func(n *narrowing, _ string) {
			add(&n.asked.Files.Deny, n.policy.Files.Deny)
			add(&n.asked.Files.DenyEmpty, n.policy.Files.DenyEmpty)
		}),
		"files.deny.path":      free("files.deny"),
		"files.deny.as":        free("either hides what is there"),
		"files.secrets":        by(func(n *narrowing, _ string) { add(&n.asked.Files.Secrets, n.policy.Files.Secrets) }),
		"files.missing":        free("a grant that is left out shows nothing"),
		"files.tmpfs.path":     free(inside),
		"files.tmpfs.size":     free(checked),
		"files.tmpfs.inodes":   free(checked),
		"files.tmpfs.lifetime": free(inside),
		"files.home.size":      free(checked),
		"files.home.inodes":    free(checked),
		"files.home.lifetime":  free(inside),
		"bind.copy":            free("bind.source"),
		"bind.source":          by(binds),
		"bind.target":          free(inside),
		"bind.writable":        free("bind.source"),

		"env.allow":  by(variables),
		"env.deny":   by(func(n *narrowing, _ string) { add(&n.asked.Env.Deny, n.policy.Env.Deny) }),
		"env.set":    free("the values are the client's own; network.env_urls has its rule"),
		"env.redact": by(redact),

		"network.mode":           by(mode),
		"network.ports":          free(checked),
		"network.services":       by(services),
		"network.env_urls":       free(checked),
		"network.allowed_hosts":  by(hosts),
		"network.allow_private":  by(private),
		"network.transparent":    free("it is another way to the same hosts"),
		"network.upstream_proxy": by(upstream),
		"network.no_proxy":       by(noProxy),
		"network.explain":        free("it tells the program of its own connections"),

		"processes.spawn":   by(spawn),
		"processes.native":  by(native),
		"processes.proc":    by(proc),
		"processes.userns":  by(userns),
		"processes.execute": by(execute),
		"processes.guard":   by(guard),
		"processes.steps":   by(func(n *narrowing, key string) { atMost(n, key, &n.asked.Processes.Steps, n.policy.Processes.Steps) }),
		"views":             by(views),
	}
	for key, limit := range limits() {
		list["limits."+key] = by(limit)
	}
	return list
}

func limits() map[string]func(n *narrowing, key string) {
	duration := func(at func(*policy.Limits) *time.Duration) func(n *narrowing, key string) {
		return func(n *narrowing, key string) { atMost(n, key, at(&n.asked.Limits), *at(&n.policy.Limits)) }
	}
	number := func(at func(*policy.Limits) *int64) func(n *narrowing, key string) {
		return func(n *narrowing, key string) { atMost(n, key, at(&n.asked.Limits), *at(&n.policy.Limits)) }
	}
	return map[string]func(n *narrowing, key string){
		"wall":   duration(func(l *policy.Limits) *time.Duration { return &l.Wall }),
		"idle":   duration(func(l *policy.Limits) *time.Duration { return &l.Idle }),
		"cpu":    cpu,
		"cpus":   func(n *narrowing, key string) { atMost(n, key, &n.asked.Limits.CPUs, n.policy.Limits.CPUs) },
		"memory": number(func(l *policy.Limits) *int64 { return &l.Memory }),
		"pids":   number(func(l *policy.Limits) *int64 { return &l.Pids }),
		"file":   number(func(l *policy.Limits) *int64 { return &l.File }),
		"disk":   number(func(l *policy.Limits) *int64 { return &l.Disk }),
		"nofile": number(func(l *policy.Limits) *int64 { return &l.Nofile }),
		"output": number(func(l *policy.Limits) *int64 { return &l.Output }),
	}
}

// cpu: without the key a policy has what comes of limits.wall.
func cpu(n *narrowing, key string) {
	is := n.policy.Limits
	if is.CPU == 0 && n.asked.Limits.CPU > 0 {
		is.CPU = spec.CPUTime(is.Wall)
	}
	atMost(n, key, &n.asked.Limits.CPU, is.CPU)
}

// atMost holds a limit: 0 is none, and takes the ceiling's.
func atMost[N int64 | float64 | time.Duration](n *narrowing, key string, asked *N, most N) {
	switch {
	case most == 0:
	case *asked == 0:
		*asked = most
	case *asked > most:
		n.refuse(key, *asked, fmt.Sprintf("at most %v", most))
	}
}

// add adds to a list what it lacks of the ceiling's.
func add[T comparable](asked *[]T, more []T) {
	for _, m := range more {
		if !slices.Contains(*asked, m) {
			*asked = append(*asked, m)
		}
	}
}

// among refuses what the ceiling's list has not.
func (n *narrowing) among(key string, asked, allowed []string) {
	for _, a := range asked {
		if !slices.Contains(allowed, a) {
			n.refuse(key, a, "")
		}
	}
}

func enforce(n *narrowing, key string) {
	if n.asked.Enforce != policy.EnforceRequired && n.policy.Enforce == policy.EnforceRequired {
		n.refuse(key, n.asked.Enforce, "")
	}
}

func user(n *narrowing, key string) {
	asked, is := n.asked.User, n.policy.User
	switch {
	case asked.Kind == is.Kind && asked.ID == is.ID:
	case !n.asked.Sets(key):
		n.asked.User = is
	case asked.Kind == "number":
		n.refuse(key, asked.ID, "")
	default:
		n.refuse(key, asked.Kind, "")
	}
}

// grants compares before anything is looked for, and again with links followed: then the link may be one that a program has made.
func (n *narrowing) grants(key string, list []rootfs.Grant, want rootfs.Access) {
	for _, g := range list {
		n.shows(key, g.Path, want)
	}
}

func (n *narrowing) shows(key, name string, want rootfs.Access) {
	may := n.plan.View.Access(name)
	if n.named(name) {
		may = rootfs.Writable // by a name that is a link; what it leads to is compared below
	}
	if may >= want {
		may = n.plan.View.Access(hostfs.RealPath(n.tree, name))
	}
	switch {
	case may >= want:
	case may == rootfs.Readable:
		n.refuse(key, name, "read-only")
	default:
		n.refuse(key, name, "")
	}
}

// named reports whether a path is, or lies below, one that the ceiling grants, as it is written there.
func (n *narrowing) named(name string) bool {
	f := &n.policy.Files
	var list []string
	for _, g := range slices.Concat(f.Read, f.Write) {
		list = append(list, g.Path)
	}
	for _, b := range f.Binds {
		list = append(list, b.Source)
	}
	if f.Workspace != nil {
		list = append(list, f.Workspace.Source)
	}
	return slices.ContainsFunc(list, func(dir string) bool { return pathname.Within(name, dir) })
}

func binds(n *narrowing, key string) {
	for _, b := range n.asked.Files.Binds {
		n.shows(key, b.Source, rootfs.Readable)
		if b.Copy {
			n.refuse("bind.copy", b.Source, onDisk)
		}
		if b.Writable {
			n.shows("bind.writable", b.Source, rootfs.Writable)
		}
	}
}

// onDisk: what a client has made on the host's disk is held by no limit of the ceiling's.
const onDisk = "nothing is made on the host"

func workspace(n *narrowing, key string) {
	switch w := n.asked.Files.Workspace; {
	case w == nil, w.Source == rootfs.SourceTmpfs:
	case w.Source == rootfs.SourceDisk:
		n.refuse(key, w.Source, onDisk)
	default:
		n.shows(key, w.Source, rootfs.Writable)
	}
}

// base: Check compares what is shown. Here it is said by name, and the ceiling's stands in for the default where that shows more.
func base(n *narrowing, key string) {
	asked, is := n.asked.Files.Base, n.policy.Files.Base
	switch {
	case asked.Kind == rootfs.BaseNone, asked.Kind == is.Kind && asked.Dir == is.Dir, asked.Kind == rootfs.BaseSystem && is.Kind == rootfs.BaseHost:
	case !n.asked.Sets(key):
		n.asked.Files.Base = is
	default:
		n.refuse(key, asked.Kind, "")
	}
}

// interpreters: to name some hides the data of the others.
func interpreters(n *narrowing, key string) {
	if len(n.asked.Interpreters.Show) == 0 {
		n.asked.Interpreters.Show = slices.Clone(n.policy.Interpreters.Show)
	}
	n.among(key, n.asked.Interpreters.Show, n.policy.Interpreters.Show)
}

func packages(n *narrowing, key string) {
	n.among(key, n.asked.Interpreters.Packages, n.policy.Interpreters.Packages)
}

// variables compares patterns, and not what they match: a refusal would tell which variables the server has.
func variables(n *narrowing, key string) {
	for _, a := range n.asked.Env.Allow {
		if !slices.ContainsFunc(n.policy.Env.Allow, func(p string) bool { return spec.VariableMatches(p, a) }) {
			n.refuse(key, a, "")
		}
	}
}

func redact(n *narrowing, key string) {
	if !n.asked.Env.Redact && n.policy.Env.Redact {
		n.refuse(key, false, "")
	}
}

func mode(n *narrowing, key string) {
	order := netpolicy.Modes()
	if is := n.policy.Network.Mode; slices.Index(order, n.asked.Network.Mode) > slices.Index(order, is) {
		n.refuse(key, n.asked.Network.Mode, "at most "+is)
	}
}

func hosts(n *narrowing, key string) {
	for _, text := range n.asked.Network.AllowedHosts {
		if p, err := netpolicy.ParseHost(text); err != nil || !n.rules.Within(p) {
			n.refuse(key, text, "")
		}
	}
}

func private(n *narrowing, key string) {
	for _, text := range n.asked.Network.AllowPrivate {
		if p, err := netpolicy.ParsePrivateHost(text); err != nil || !n.rules.PrivateWithin(p) {
			n.refuse(key, text, "")
		}
	}
}

// services: those of the loopback are forwarded ports, which Check compares.
func services(n *narrowing, key string) {
	for _, text := range n.asked.Network.Services {
		s, err := netpolicy.ParseService(text)
		if err != nil || !s.Loopback() && !n.rules.Within(netpolicy.Pattern{Name: s.Host, Port: s.Port}) {
			n.refuse(key, text, "")
		}
	}
}

// upstream: all that leaves goes through the ceiling's proxy, and through no other.
func upstream(n *narrowing, key string) {
	asked, is := &n.asked.Network.UpstreamProxy, n.policy.Network.UpstreamProxy
	switch *asked {
	case is:
	case "":
		*asked = is
	default:
		n.refuse(key, *asked, "")
	}
	if *asked == is && len(n.asked.Network.NoProxy) == 0 {
		n.asked.Network.NoProxy = slices.Clone(n.policy.Network.NoProxy)
	}
}

func noProxy(n *narrowing, key string) {
	n.among(key, n.asked.Network.NoProxy, n.policy.Network.NoProxy)
}

func spawn(n *narrowing, key string) {
	if n.asked.Processes.Spawn && !n.policy.Processes.Spawn {
		if n.asked.Sets(key) {
			n.refuse(key, true, "")
		}
		n.asked.Processes.Spawn = false
	}
}

func native(n *narrowing, key string) {
	if n.asked.Processes.Native && !n.policy.Processes.Native {
		if n.asked.Sets(key) {
			n.refuse(key, true, "")
		}
		n.asked.Processes.Native = false
	}
}

func proc(n *narrowing, key string) {
	if n.asked.Processes.Proc && !n.policy.Processes.Proc {
		if n.asked.Sets(key) {
			n.refuse(key, true, "")
		}
		n.asked.Processes.Proc = false
	}
}

func userns(n *narrowing, key string) {
	if n.asked.Processes.Userns && !n.policy.Processes.Userns {
		n.refuse(key, true, "")
	}
}

func execute(n *narrowing, _ string) {
	if len(n.asked.Processes.Execute) == 0 {
		n.asked.Processes.Execute = slices.Clone(n.policy.Processes.Execute)
	}
}

func guard(n *narrowing, key string) {
	if is := n.policy.Processes.Guard; n.asked.Processes.Guard != is && is != "" {
		if n.asked.Sets(key) {
			n.refuse(key, n.asked.Processes.Guard, "")
		}
		n.asked.Processes.Guard = is
	}
}

// views are shown by execs that the plan knows nothing of, so there are none.
func views(n *narrowing, key string) {
	for name := range n.asked.Views {
		n.refuse(key+"."+name, "...", "")
	}
}
