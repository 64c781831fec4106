package rootfs

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// systemRule says which rule of base "system" shows a path, or "".
func (x *Explainer) systemRule(p string) string {
	if cmp.Or(x.Policy.Base.Kind, BaseSystem) != BaseSystem {
		return ""
	}
	for up := range ups(p) {
		if why := x.systemRuleOf(up); why != "" {
			return why
		}
	}
	return ""
}

func (x *Explainer) systemRuleOf(target string) string {
	s := surveyor{tree: x.seen.tree}
	name := path.Base(target)
	switch {
	case slices.Contains(systemDirs, target):
		return "it has the programs and libraries of the host"
	case slices.Contains(packageData, target):
		return "it is a part of the list of installed packages, which every user of the host may read"
	case strings.HasPrefix(target, "/etc/") && slices.ContainsFunc(etcShown, func(pattern string) bool {
		ok, _ := path.Match(pattern, strings.TrimPrefix(target, "/etc/"))
		return ok
	}):
		return "it is one of the files of /etc that libraries and shells read"
	case slices.Contains(dataParents, parent(target)) && s.program(name) != "":
		return shown(s.program(name)) + " is an installed program's, " + shown(name) + " is no service, and all that " + shown(target) +
			" has is root's and can be read by every user of the host"
	}
	return ""
}

// whyNoData says why base "system" does not show a path below one of dataParents that the host has.
func (x *Explainer) whyNoData(e *Explanation) {
	if cmp.Or(x.Policy.Base.Kind, BaseSystem) != BaseSystem {
		return
	}
	for _, dir := range dataParents {
		if !below(e.Real, dir) {
			continue
		}
		first, _, _ := strings.Cut(e.Real[len(dir)+1:], "/")
		p := join(dir, first)
		info, err := x.seen.tree.Lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil || !info.Mode.IsDir():
			e.say("of files in %s it shows those alone that libraries and shells read", dir)
		default:
			if _, why := newSurveyor(x.Tree).judge(p, info); why != "" {
				e.say("of directories in %s it shows the data of installed programs: %s", dir, why)
			}
		}
	}
}
