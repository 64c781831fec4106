package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Without a policy the program may write the current directory. A caller in the wrong directory must not give the program every home
// or the system by mistake. (navikt/cplt#377)

// systemDirs are directories that no program needs as a whole.
func systemDirs() []string {
	return []string{
		"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys",
		"/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/local", "/usr/sbin", "/usr/share", "/var", "/var/lib",
	}
}

// sharedDirs are directories that other users use too, or that have parts of the system.
func sharedDirs() []string {
	return []string{"/dev/shm", "/media", "/mnt", "/opt", "/srv", "/tmp", "/usr/src", "/var/tmp", "/var/log", "/var/spool", "/var/cache"}
}

// systemTrees are directories that have no projects, except below projectTrees.
func systemTrees() []string { return []string{"/boot", "/dev", "/etc", "/proc", "/sys", "/usr"} }

func projectTrees() []string { return []string{"/dev/shm", "/usr/src", "/usr/local/src"} }

// directory is the current directory, which may become the workspace.
type directory struct {
	cwd      string // without symlinks
	same     func(a, b string) bool
	homes    []string // the caller's homes, without symlinks: the account's, then $HOME if that is another
	writable bool
}

// judge returns why the directory cannot be the default workspace, or a warning about it, or neither.
func (w directory) judge() (refusal, warning string) {
	is := func(dir string) bool { return w.same(w.cwd, dir) }
	for i, home := range w.homes {
		if refusal, warning := w.judgeHome(home, i == 0); refusal != "" || warning != "" {
			return refusal, warning
		}
	}
	if slices.ContainsFunc(systemDirs(), is) {
		return fmt.Sprintf("the current directory is %s, which cannot be a workspace", w.cwd), ""
	}
	if slices.ContainsFunc(sharedDirs(), is) {
		return "", fmt.Sprintf("the current directory is %s: the program can read and change all that you can there", w.cwd)
	}
	below := func(dir string) bool { return strings.HasPrefix(w.cwd, dir+"/") }
	if w.writable && slices.ContainsFunc(systemTrees(), below) && !slices.ContainsFunc(projectTrees(), below) {
		return "", fmt.Sprintf("the current directory is %s, a part of the system: the program can change everything in it", w.cwd)
	}
	return "", ""
}

// judgeHome judges a directory that is, or has below it, a home of the caller.
func (w directory) judgeHome(home string, account bool) (refusal, warning string) {
	if home == "/" {
		return "", "" // system accounts have this home
	}
	if w.same(w.cwd, home) {
		return "", "the current directory is your home directory: the program can read and change everything in it"
	}
	for up := filepath.Dir(home); up != "/"; up = filepath.Dir(up) {
		switch {
		case !w.same(w.cwd, up):
		case account:
			return fmt.Sprintf("the current directory is %s, which holds your home directory and cannot be a workspace", w.cwd), ""
		default:
			return "", fmt.Sprintf("the current directory holds your home directory, %s: the program can read and change everything in it", home)
		}
	}
	return "", ""
}

// checkWorkspace refuses the current directory as a workspace, or warns.
func checkWorkspace(p *caller.Caller) error {
	w := directory{cwd: withoutLinks(p.Cwd), same: sameFile(), writable: unix.Access(p.Cwd, unix.W_OK) == nil}
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		w.homes = append(w.homes, withoutLinks(u.HomeDir))
	} else {
		w.homes = append(w.homes, "/") // none
	}
	// Harnesses set $HOME to an empty or missing directory below their own.
	if home := p.Env["HOME"]; filepath.IsAbs(home) && hasEntries(home) {
		w.homes = append(w.homes, withoutLinks(filepath.Clean(home)))
	}
	refusal, warning := w.judge()
	if refusal != "" {
		return fault.Usage(refusal, "change to the directory that the program is to work in, or give a policy with --policy")
	}
	if warning != "" {
		p.Warn(warning)
	}
	return nil
}

func withoutLinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func hasEntries(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return err == nil
}

// sameFile compares by device and inode, because a directory can be mounted at two paths. It looks once at each first directory.
func sameFile() func(a, b string) bool {
	one := map[string]fs.FileInfo{}
	return func(a, b string) bool {
		if _, known := one[a]; !known {
			one[a], _ = os.Stat(a)
		}
		two, err := os.Stat(b)
		return one[a] != nil && err == nil && os.SameFile(one[a], two)
	}
}
