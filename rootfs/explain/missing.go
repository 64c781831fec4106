package explain

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

func grantHint(p string) string { return "files.read = [" + tomlString(p) + "]" }

// tomlString writes a TOML basic string. A path that is not UTF-8 cannot be written in a policy.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f || !strconv.IsPrint(r):
			fmt.Fprintf(&b, "\\U%08X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// whyMissing finds the most particular reason for which nothing is there.
func (x *Explainer) whyMissing(e *Explanation) {
	if errors.Is(e.stop.err, errNotDir) {
		e.say("%s is no directory", pathname.Printable(e.stop.dir.Path))
		return
	}
	t, hostErr := hostfs.Follow(x.seen.Tree, e.Real)
	if x.whyRefused(e, t) || x.whySkipped(e) {
		return
	}
	switch m := x.seen.Cover(e.Real); {
	case m == nil:
		x.whyNotGranted(e)
	case m.LeftOut:
		r := x.ruleOf(m)
		e.decidedBy(r)
		e.sayLeftOut(m, r)
	case m.Kind == rootfs.MountTmpfs:
		r := x.ruleOf(m)
		e.decidedBy(r)
		e.say("%s is memory of the sandbox, empty when that is made: %s", pathname.Printable(m.Target), r)
	default:
		r := x.ruleOf(m)
		e.decidedBy(r)
		host := pathname.Rebase(e.Real, m.Target, m.Source)
		if !errors.Is(e.stop.err, fs.ErrNotExist) {
			e.say("the host cannot tell what %s is: %v", pathname.Printable(host), e.stop.err)
			return
		}
		e.say("%s shows the host's %s, and there is no %s there", r, pathname.Printable(m.Source), pathname.Printable(host))
	}
	dir := e.stop.dir
	if dir.Writable && x.Who.may(x.infoOf(dir), 2|1) {
		e.say("the program can make it: %s is writable", pathname.Printable(dir.Path))
	}
	if hostErr == nil && pathname.KernelPlace(t.Real) == "" {
		if m := x.seen.Cover(e.Real); m != nil {
			e.say("the host's own %s is not shown", pathname.Printable(e.Real))
		}
		e.Hint = grantHint(e.Real)
	}
}

func (x *Explainer) infoOf(p rootfs.Place) hostfs.Info {
	_, info, _ := x.at(p.Path)
	return info
}

// whyRefused is for what the policy keeps out by name.
func (x *Explainer) whyRefused(e *Explanation, t hostfs.Trail) bool {
	for _, d := range x.View.Absent {
		if pathname.Within(e.Real, d.Inside) && d.From == rootfs.FromState {
			e.decidedBy(rule{key: rootfs.FromDefault})
			e.say("%s is a place for a state directory of sandboxrun, and it does not exist: should it appear, each exec that starts then has it covered",
				pathname.Printable(d.Inside))
			return true
		}
		if pathname.Within(e.Real, d.Inside) {
			e.decidedBy(x.rules[d.From])
			e.say("%s names %s, and it does not exist: should it appear, each exec that starts then has it covered",
				x.rules[d.From], pathname.Printable(x.rules[d.From].path))
			return true
		}
	}
	for _, g := range x.View.Gone {
		if pathname.Within(e.Real, g.Inside) {
			e.decidedBy(x.rules[g.From])
			e.say("%s hides %s, which belongs to a module that it names", x.rules[g.From], pathname.Printable(g.Inside))
			return true
		}
	}
	for _, s := range x.Policy.Secrets {
		real, _ := hostfs.Follow(x.seen.Tree, s.Path)
		if pathname.Within(t.Real, real.Real) {
			e.Rule, e.From = "files.secrets", rootfs.PlaceOf(s.From)
			e.say("files.secrets at %s keeps %s out: no grant may hold it", e.From, pathname.Printable(s.Path))
			return true
		}
	}
	return false
}

// whySkipped is for grants of what the host does not have.
func (x *Explainer) whySkipped(e *Explanation) bool {
	if x.Policy.Missing != "skip" {
		return false
	}
	left := func(key, source, target, from string) bool {
		if !pathname.Within(e.Real, target) {
			return false
		}
		if _, err := hostfs.Follow(x.seen.Tree, source); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		e.Rule, e.From = key, rootfs.PlaceOf(from)
		e.say("%s at %s would show it, but the host has no %s (files.missing = %q)", key, e.From, pathname.Printable(source), "skip")
		return true
	}
	for key, list := range map[string][]rootfs.Grant{keyRead: x.Policy.Read, keyWrite: x.Policy.Write} {
		for _, g := range list {
			if left(key, g.Path, g.Path, g.From) {
				return true
			}
		}
	}
	return slices.ContainsFunc(x.Policy.Binds, func(b rootfs.Bind) bool { return left(keyBind, b.Source, b.Target, b.From) })
}

// whyNotGranted is for what nothing shows: the sandbox's own root would hold it.
func (x *Explainer) whyNotGranted(e *Explanation) {
	base := rule{keyBase, rootfs.PlaceOf(cmp.Or(x.Policy.Base.From, rootfs.FromDefault)), ""}
	e.decidedBy(base)
	what := map[string]string{
		rootfs.BaseSystem: "shows /usr, /lib*, /bin, and of /etc and /var what installed programs keep there for every user",
		rootfs.BaseHost:   "shows no homes, run directories, mounts and directories of users",
		rootfs.BaseNone:   "shows nothing",
		rootfs.BaseRootfs: "shows what lies in " + pathname.Printable(x.Policy.Base.Dir),
	}
	e.say("no rule shows it, and %s %s", x.baseText(base), what[cmp.Or(x.Policy.Base.Kind, rootfs.BaseSystem)]+x.whyLeftOut(e.Real))
	if _, err := hostfs.Follow(x.seen.Tree, e.Real); errors.Is(err, fs.ErrNotExist) {
		e.say("nor does the host have it")
		return
	}
	x.whyNoData(e)
}
