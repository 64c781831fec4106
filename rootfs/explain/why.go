package explain

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/compile"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/units"
)

// Keys of the policy that rules stand under.
const (
	keyRead, keyWrite, keyDeny, keyTmpfs = "files.read", "files.write", "files.deny", "files.tmpfs"
	keyBase, keyBind, keyWorkspace       = "files.base", "bind", "workspace"
	keyInterpreters                      = "files.interpreters"
	keyHideModules, keyProc              = "files.hide_modules", "processes.proc"
)

// rule is what a From stands for.
type rule struct{ key, from, path string }

// rulesOf finds the rules of a policy by their From.
func rulesOf(p rootfs.Policy) map[string]rule {
	rules := map[string]rule{}
	add := func(key, from, path string) {
		if _, ok := rules[from]; !ok && from != "" {
			rules[from] = rule{key, rootfs.PlaceOf(from), path}
		}
	}
	for key, list := range map[string][]rootfs.Grant{keyRead: p.Read, keyWrite: p.Write, keyDeny: p.Denies(), keyInterpreters: p.Empty, keyHideModules: p.Gone} {
		for _, g := range list {
			if _, other, found := strings.Cut(g.From, ": files."); found && key == keyRead {
				add("files."+other, g.From, g.Path) // files.interpreters shows by grants too
				continue
			}
			add(key, g.From, g.Path)
		}
	}
	for _, b := range p.Binds {
		add(keyBind, b.From, b.Target)
	}
	for _, t := range p.Tmpfs {
		add(keyTmpfs, t.From, t.Path)
	}
	if w := p.Workspace; w != nil {
		add(keyWorkspace, w.From, w.Path)
	}
	if p.Base.From != rootfs.FromDefault {
		add(keyBase, p.Base.From, "")
	}
	return rules
}

// ruleOf says which rule asked for a mount. What is pinned is shown by the grant around.
func (x *Explainer) ruleOf(m *rootfs.Mount) rule {
	if m.From == rootfs.FromState {
		return rule{key: rootfs.FromDefault}
	}
	r, ok := x.rules[m.From]
	for m.Pin && m.Target != "/" {
		m = x.seen.Cover(pathname.Parent(m.Target))
		if m == nil {
			return rule{key: keyBase, from: rootfs.FromDefault}
		}
		r, ok = x.rules[m.From]
	}
	switch {
	case ok:
		return r
	case m.Kind == rootfs.MountTmpfs && m.Mode != compile.HiddenMode, m.Kind == rootfs.MountBind && (m.Source == "" || m.Target == x.Tool):
		return rule{key: rootfs.FromDefault}
	}
	return rule{key: keyBase, from: rootfs.FromDefault}
}

// String names the rule and where it stands.
func (r rule) String() string {
	switch {
	case r.key == rootfs.FromDefault:
		return "every sandbox has it"
	case r.from == "", r.from == rootfs.FromDefault:
		return r.key + " (the default)"
	}
	return r.key + " at " + r.from
}

func (e *Explanation) say(format string, args ...any) {
	e.Why = append(e.Why, fmt.Sprintf(format, args...))
}

// sayIf says a sentence that may be empty.
func (e *Explanation) sayIf(text string) {
	if text != "" {
		e.say("%s", text)
	}
}

// reasons fills in why.
func (x *Explainer) reasons(e *Explanation) {
	if e.Rule == rootfs.FromDefault || e.Rule == keyProc { // own has said all
		return
	}
	switch e.Verdict {
	case VerdictInside:
		x.whyInside(e)
		if e.unlisted {
			e.say("it cannot be executed, because processes.execute names other files")
		}
	case VerdictDenied, VerdictHidden:
		if e.Kind == rootfs.PlaceHost {
			e.decidedBy(x.ruleOf(e.spot.Mount))
			if d := x.coversShut(e.spot, e.info); d != nil {
				e.say("the launcher cannot search it for %s, which %s denies, so it is covered", pathname.Printable(d.Inside), d.From)
				break
			}
			e.say("it is a named pipe in a directory that can only be read: a program could write to it all the same, so it is masked")
			break
		}
		x.whyHidden(e)
	case VerdictLoop:
		e.say("it goes through more than %d symbolic links, as many as the kernel follows", pathname.MaxLinks)
	case VerdictClosed:
		d := e.stop.dir
		e.say("%s is %s: the program runs as %s and cannot search it", pathname.Printable(d.Path), x.owned(x.infoOf(d)), x.Who)
	case VerdictMissing:
		x.whyMissing(e)
	}
	for _, l := range e.Links {
		e.say("%s is a link to %s", pathname.Printable(l.At), pathname.Printable(l.Text))
	}
	x.also(e)
}

// String is the user's number, as the host counts.
func (w Who) String() string { return fmt.Sprintf("uid %d, gid %d", w.UID, w.GID) }

// owned says whose a file is on disk, and its mode.
func (x *Explainer) owned(info hostfs.Info) string {
	if x.OwnID && info.UID == x.Who.UID {
		info.UID = x.Launcher.UID
	}
	if x.OwnID && info.GID == x.Who.GID {
		info.GID = x.Launcher.GID
	}
	return fmt.Sprintf("%s of uid %d, gid %d", info.Mode, info.UID, info.GID)
}

// sayLeftOut is about a mount of the host that a grant does not take along.
func (e *Explanation) sayLeftOut(m *rootfs.Mount, r rule) {
	e.say("%s shows nothing of what the host has mounted at %s: that cannot be idmapped, as the grant is", r, pathname.Printable(m.Target))
}

func (e *Explanation) decidedBy(r rule) { e.Rule, e.From = r.key, r.from }

func (x *Explainer) whyInside(e *Explanation) {
	m := e.spot.Mount
	switch e.Kind {
	case rootfs.PlaceRoot:
		x.whyEntry(e)
		return
	case rootfs.PlaceGenerated:
		e.decidedBy(x.ruleOf(m))
		e.say("sandboxrun writes it for each sandbox; the host's own is not shown")
		return
	case rootfs.PlaceTmpfs:
		r := x.ruleOf(m)
		e.decidedBy(r)
		if m.LeftOut {
			e.sayLeftOut(m, r)
			break
		}
		e.say("%s of memory at %s: %s", units.Size(m.Size), pathname.Printable(m.Target), r)
		if e.Real != m.Target {
			e.say("it was made there as the way to what is mounted below it")
		}
	default:
		x.whyShown(e, m)
	}
	if !e.Readable || m.Writable && !e.Writable {
		what := "write"
		if !e.Readable {
			what = "read"
		}
		e.say("it is %s: the program runs as %s and cannot %s it", x.owned(e.info), x.Who, what)
	}
}

// whyShown is about what a bind shows.
func (x *Explainer) whyShown(e *Explanation, m *rootfs.Mount) {
	r := x.ruleOf(m)
	e.decidedBy(r)
	if r.key == rootfs.FromDefault {
		e.say("it is sandboxrun itself, by which programs reach hosts through the proxy")
		return
	}
	kind := "read-only"
	if m.Writable {
		kind = "writable"
	}
	text := x.baseText(r)
	if target := x.grantTarget(m, r); target == e.Real {
		e.say("%s shows it, %s", text, kind)
	} else {
		e.say("%s shows %s, %s", text, pathname.Printable(target), kind)
	}
	if e.Host != e.Real {
		e.say("it is the host's %s", pathname.Printable(e.Host))
	}
	if r.key == keyBase {
		e.sayIf(x.systemRule(m.Target))
	}
	if up := x.seen.Cover(pathname.Parent(m.Target)); m.Target != "/" && up != nil && up.Kind == rootfs.MountBind && up.Writable != m.Writable {
		if other := x.ruleOf(up); other != r {
			e.say("that wins over %s, which shows %s: the nearer rule decides", other, pathname.Printable(up.Target))
		}
	}
	x.sayMore(e, m)
}

// sayMore is what else decides, or should be known.
func (x *Explainer) sayMore(e *Explanation, m *rootfs.Mount) {
	if t, ok := x.Tree.(hostfs.MountFlags); ok && m.Writable {
		if readOnly, _ := t.MountFlags(e.Host); readOnly {
			e.say("the host's file system there is mounted read-only")
		}
	}
	if t, ok := x.Tree.(hostfs.AccessLists); ok && t.HasACL(e.Host) {
		e.say("it has an access control list, which may let the program do more or less than is said here")
	}
	if e.Type == "socket" {
		e.say("it is a socket, so the program can talk to the process that listens there")
	}
}

// baseText names a rule, and of the base which one it is.
func (x *Explainer) baseText(r rule) string {
	if r.key != keyBase {
		return r.String()
	}
	return strings.Replace(r.String(), keyBase, fmt.Sprintf("%s = %q", keyBase, cmp.Or(x.Policy.Base.Kind, rootfs.BaseSystem)), 1)
}

// grantTarget is where the rule behind a mount of a deny's sake begins.
func (x *Explainer) grantTarget(m *rootfs.Mount, r rule) string {
	for m.Target != "/" {
		up := x.seen.Cover(pathname.Parent(m.Target))
		if up == nil || !m.Pin || x.ruleOf(up) != r {
			break
		}
		m = up
	}
	return m.Target
}

// whyEntry is about what stands in the sandbox's own root.
func (x *Explainer) whyEntry(e *Explanation) {
	entry := x.seen.Entries[e.Real]
	e.decidedBy(rule{key: rootfs.FromDefault})
	switch {
	case entry.Kind == rootfs.EntryDir && e.Real == "/":
		e.say("it is the sandbox's own root: in memory, read-only, and empty but for what is shown in it")
	case entry.Kind == rootfs.EntryDir && x.seen.Above[e.Real]:
		e.say("it is a directory of the sandbox's own root, the way to what is shown below it")
	case entry.Kind == rootfs.EntryDir:
		e.say("it is a directory of the sandbox's own root")
		e.sayIf(x.systemRule(e.Real))
	case compile.IsGenerated(e.Real):
		e.say("sandboxrun writes it for each sandbox; the host's own is not shown")
	default:
		r := x.ruleOf(&rootfs.Mount{Kind: rootfs.MountBind, Source: e.Real, From: cmp.Or(x.Policy.Base.From, rootfs.FromDefault)})
		e.decidedBy(r)
		e.say("it is a copy of the host's, made with the sandbox: %s", r)
		e.sayIf(x.systemRule(e.Real))
	}
}

// whyHidden names the rule behind a mask.
func (x *Explainer) whyHidden(e *Explanation) {
	m := e.spot.Mount
	r := x.ruleOf(m)
	e.decidedBy(r)
	what := "it"
	if e.Real != m.Target {
		what = pathname.Printable(m.Target) + ", above it"
	}
	if m.LeftOut {
		e.sayLeftOut(m, r)
		return
	}
	if m.From == rootfs.FromState {
		e.say("%s is a state directory of sandboxrun, which no program may see", pathname.Printable(m.Target))
		return
	}
	if r.key == keyHideModules {
		e.say("%s hides %s, which belongs to a module that it names", r, pathname.Printable(m.Target))
		e.Hint = "remove the module from files.hide_modules at " + r.from
		return
	}
	if e.Verdict == VerdictHidden {
		e.say("%s hides %s%s", x.baseText(r), what, x.whyLeftOut(m.Target))
		e.Hint = grantHint(e.Real)
		return
	}
	e.say("%s names %s%s", r, pathname.Printable(r.path), x.denyRelation(m, r))
	e.Hint = "remove " + strconv.Quote(r.path) + " from files.deny at " + r.from
}

// denyRelation says how a masked place is what the deny names.
func (x *Explainer) denyRelation(m *rootfs.Mount, r rule) string {
	host := ""
	for _, d := range x.View.Masked {
		if d.Inside == m.Target {
			host = d.Host
		}
	}
	t, _ := hostfs.Follow(x.seen.Tree, r.path)
	switch {
	case m.Target == r.path:
		return ""
	case pathname.Within(m.Target, r.path):
		return ", which holds " + pathname.Printable(m.Target)
	case host == "":
		return ", and " + pathname.Printable(m.Target) + " lies in what that is"
	case host == t.Real:
		return ", and " + pathname.Printable(m.Target) + " is another name of it"
	case pathname.Within(host, t.Real):
		return ", and " + pathname.Printable(m.Target) + " lies in what that is"
	}
	return ", and " + pathname.Printable(m.Target) + " is another hard link of a file that it hides"
}

// also finds under which names inside the host's file of the name that was asked for is shown.
func (x *Explainer) also(e *Explanation) {
	if !path.IsAbs(e.Path) || e.Kind == rootfs.PlaceOwn {
		return
	}
	t, err := hostfs.Follow(x.seen.Tree, path.Clean(e.Path))
	if err != nil {
		return
	}
	for _, name := range x.View.Inside(t.Real) {
		if name != e.Real {
			e.Also = append(e.Also, name)
		}
	}
	if len(e.Also) == 0 {
		return
	}
	list := make([]string, len(e.Also))
	for i, name := range e.Also {
		list[i] = pathname.Printable(name)
	}
	e.say("the host's %s is inside as %s", pathname.Printable(t.Real), strings.Join(list, ", "))
}
