package interp

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
)

// normal is a distribution's name as pip compares it.
func (f *finder) normal(name string) string {
	return strings.ToLower(f.re.separator.ReplaceAllString(name, "-"))
}

// addPackage shows a distribution: what .pth files add for an editable one, or where it is on the caller's PYTHONPATH. One that is
// installed as usual is shown already.
func (f *finder) addPackage(it Item) error {
	found := false
	for _, py := range f.named {
		for _, site := range f.ownSites(py) {
			for _, meta := range f.metadataOf(site, it.Name) {
				found = true
				if err := f.addEditable(it, site, meta); err != nil {
					return err
				}
			}
		}
	}
	for dir := range strings.SplitSeq(f.Env["PYTHONPATH"], ":") {
		if !found && path.IsAbs(dir) {
			found = f.addFrom(it, path.Clean(dir))
		}
	}
	if !found {
		return fault.New(fault.GrantMissing, "name a distribution, as pip list prints it",
			"%s %q is installed for no interpreter of files.interpreters, and not on PYTHONPATH", it.From, it.Name)
	}
	return nil
}

// metadataOf lists what a site directory has about a distribution.
func (f *finder) metadataOf(site, name string) []string {
	var list []string
	for _, p := range f.matching(site, f.re.metadata) {
		if f.normal(f.re.metadata.FindStringSubmatch(path.Base(p))[1]) == f.normal(name) {
			list = append(list, p)
		}
	}
	return list
}

// addEditable shows the directories that a distribution's .pth files add to sys.path, or those of the modules that its finder maps.
func (f *finder) addEditable(it Item, site, meta string) error {
	files := []string{meta}
	if !strings.HasSuffix(meta, ".egg-link") {
		files = nil
		for line := range strings.Lines(string(f.read(path.Join(meta, "RECORD")))) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), ",")
			if strings.HasSuffix(name, ".pth") && !strings.Contains(name, "/") {
				files = append(files, path.Join(site, name))
			}
		}
	}
	for _, file := range files {
		for _, dir := range f.added(site, file) {
			if f.held(file) {
				return fault.New(fault.PolicyInvalid, fmt.Sprintf("grant it: files.read = [%q]", dir),
					"%s %q: %q lies where the policy lets programs write, so a program may have written what it adds: %q", it.From, it.Name, file, dir)
			}
			f.show(dir, it.From)
			f.trees = append(f.trees, dir)
		}
	}
	return nil
}

// added lists the existing directories and files that a .pth or .egg-link file adds.
func (f *finder) added(site, file string) []string {
	var list []string
	for line := range strings.Lines(string(f.read(file))) {
		line = strings.TrimSpace(line)
		switch m := f.re.finderPth.FindStringSubmatch(line); {
		case m != nil:
			for _, to := range f.re.mapped.FindAllStringSubmatch(string(f.read(path.Join(site, m[1]+".py"))), -1) {
				list = append(list, f.moduleAt(to[1]))
			}
		case path.IsAbs(line):
			list = append(list, path.Clean(line))
		}
	}
	return slices.DeleteFunc(list, func(p string) bool { _, err := f.stat(p); return p == "/" || err != nil })
}

// moduleAt is the file of a module that a finder maps: of one without a directory, the finder leaves ".py" out.
func (f *finder) moduleAt(p string) string {
	if p = path.Clean(p); !f.isDir(p) && f.isFile(p+".py") {
		return p + ".py"
	}
	return p
}

// addFrom shows a distribution that lies in a directory of PYTHONPATH: its metadata and its modules.
func (f *finder) addFrom(it Item, dir string) bool {
	list := f.metadataOf(dir, it.Name)
	modules := []string{it.Name, strings.ReplaceAll(f.normal(it.Name), "-", "_")}
	for _, meta := range list {
		modules = append(modules, strings.Fields(string(f.read(path.Join(meta, "top_level.txt"))))...)
	}
	for _, m := range unique(modules) {
		for _, name := range []string{m, m + ".py"} {
			if _, err := f.stat(path.Join(dir, name)); err == nil && !strings.Contains(name, "/") && name != ".." && name != "." {
				list = append(list, path.Join(dir, name))
			}
		}
	}
	if len(list) == 0 || f.held(dir) {
		return false
	}
	for _, p := range list {
		f.show(p, it.From)
	}
	f.out.PythonPath = append(f.out.PythonPath, dir)
	return true
}
