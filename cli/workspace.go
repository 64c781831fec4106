package cli

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
)

// Without a policy the current directory is what the program may change. A caller who stands in the wrong directory by
// mistake must not hand over every home or the system (navikt/cplt#377).

// systemDirs are directories of which no program needs the whole.
func systemDirs() []string {
	return []string{
		"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys",
		"/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/local", "/usr/sbin", "/usr/share", "/var", "/var/lib",
	}
}

// sharedDirs are directories that others use too, or that the system's parts may lie in.
func sharedDirs() []string {
	return []string{"/dev/shm", "/media", "/mnt", "/opt", "/srv", "/tmp", "/usr/src", "/var/tmp", "/var/log", "/var/spool", "/var/cache"}
}

// systemTrees are directories of which no part is a project, unless a tree of projects is named.
func systemTrees() []string { return []string{"/boot", "/dev", "/etc", "/proc", "/sys", "/usr"} }

func projectTrees() []string { return []string{"/dev/shm", "/usr/src", "/usr/local/src"} }

// place is the current directory as the judgement of it needs it.
type place struct {
	cwd      string // without links
	same     func(a, b string) bool
	homes    []string // of the caller, without links: as the system says, then as $HOME says if that is another
	writable bool
}

// judge says why a directory cannot be a workspace that nobody has named, or what is worth a warning; neither where it can.
func (w place) judge() (refusal, warning string) {
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

// judgeHome looks for a home directory, the account's or that of the environment, at or below the directory.
func (w place) judgeHome(home string, account bool) (refusal, warning string) {
	if home == "/" {
		return "", "" // as accounts have it that are no people's
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

// checkWorkspace refuses the current directory as a workspace, or warns of it.
func (p *program) checkWorkspace() error {
	w := place{cwd: withoutLinks(p.cwd), same: sameFile(), writable: unix.Access(p.cwd, unix.W_OK) == nil}
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		w.homes = append(w.homes, withoutLinks(u.HomeDir))
	} else {
		w.homes = append(w.homes, "/") // none
	}
	// Harnesses name an empty directory, or one that does not exist, below the one that they work in.
	if home := p.env["HOME"]; filepath.IsAbs(home) && hasEntries(home) {
		w.homes = append(w.homes, withoutLinks(filepath.Clean(home)))
	}
	refusal, warning := w.judge()
	if refusal != "" {
		return &usage{refusal, "change to the directory that the program is to work in, or give a policy with --policy"}
	}
	if warning != "" {
		p.warn(warning)
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

// sameFile compares by device and number: a directory may be mounted at two places. It is asked about one directory a many times.
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
