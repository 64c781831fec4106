package explain

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/compile"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/survey"
)

// systemRule says which rule of base "system" shows a path, or "".
func (x *Explainer) systemRule(p string) string {
	if cmp.Or(x.Policy.Base.Kind, rootfs.BaseSystem) != rootfs.BaseSystem {
		return ""
	}
	for up := range pathname.Ups(p) {
		if why := x.systemRuleOf(up); why != "" {
			return why
		}
	}
	return ""
}

func (x *Explainer) systemRuleOf(target string) string {
	s := survey.Surveyor{Tree: x.seen.Tree}
	name := path.Base(target)
	switch {
	case slices.Contains(compile.SystemDirs, target):
		return "it has the programs and libraries of the host"
	case slices.Contains(survey.PackageData, target):
		return "it is a part of the list of installed packages, which every user of the host may read"
	case strings.HasPrefix(target, "/etc/") && slices.ContainsFunc(compile.EtcShown, func(pattern string) bool {
		ok, _ := path.Match(pattern, strings.TrimPrefix(target, "/etc/"))
		return ok
	}):
		return "it is one of the files of /etc that libraries and shells read"
	case slices.Contains(survey.DataParents, pathname.Parent(target)) && s.Program(name) != "":
		return pathname.Printable(s.Program(name)) + " is an installed program's, " + pathname.Printable(name) + " is no service, and all that " + pathname.Printable(target) +
			" has is root's and can be read by every user of the host"
	}
	return ""
}

// whyNoData says why base "system" does not show a path below one of dataParents that the host has.
func (x *Explainer) whyNoData(e *Explanation) {
	if cmp.Or(x.Policy.Base.Kind, rootfs.BaseSystem) != rootfs.BaseSystem {
		return
	}
	for _, dir := range survey.DataParents {
		if !pathname.Below(e.Real, dir) {
			continue
		}
		first, _, _ := strings.Cut(e.Real[len(dir)+1:], "/")
		p := pathname.Join(dir, first)
		info, err := x.seen.Tree.Lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil || !info.Mode.IsDir():
			e.say("of files in %s it shows those alone that libraries and shells read", dir)
		default:
			if _, why := survey.New(x.Tree).Judge(p, info); why != "" {
				e.say("of directories in %s it shows the data of installed programs: %s", dir, why)
			}
		}
	}
}
