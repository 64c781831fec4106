package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// ground answers spec's questions of what the launcher trusts and where that is.
type ground struct {
	mounts []hostfs.Mount
	uid    int
	known  []spec.Trusted // that the command names
	inUse  func() inUse
}

// Known is what a command believes, beside what every command does.
type Known struct {
	State      string   // the state directory
	RuntimeDir string   // $XDG_RUNTIME_DIR
	Policy     []string // the policy's file and those that it extends; absolute
	Key        string   // the signing key's file
	Record     string   // directories that are written to
	Output     string
}

// NewGround begins to look for sandboxes that run while other work is done.
func NewGround() (*ground, error) {
	mounts, err := hostfs.OwnMounts()
	if err != nil {
		return nil, fmt.Errorf("list host mounts: %w", err)
	}
	g := &ground{mounts: mounts, uid: os.Geteuid()}
	g.inUse = sync.OnceValue(g.statesInUse)
	go g.inUse()
	self, err := forkexec.ReadSelf()
	if err == nil {
		err = g.file("the sandboxrun binary", self.Path, true)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a binary that was removed cannot be changed by its name
		return nil, err
	}
	return g, nil
}

// Add adds to a Host the files that a command trusts.
func Add(h *spec.Host, t Known) error {
	g, ok := h.Ground.(*ground)
	if !ok {
		return nil
	}
	for _, p := range t.Policy {
		if err := g.file("the policy", p, true); err != nil {
			return err
		}
	}
	if t.Key != "" {
		key, err := filepath.Abs(t.Key)
		if err != nil {
			return err
		}
		t.Key = key
		if err := g.file("the signing key", t.Key, false); err != nil {
			return err
		}
	}
	dirs := map[string]string{
		StatePath("", "", g.uid): ownState, StatePath("", t.RuntimeDir, g.uid): ownState, t.State: ownState,
		t.Record: "record directory", t.Output: "output directory",
	}
	if g.uid != 0 {
		dirs["/tmp/sandboxrun-"+strconv.Itoa(g.uid)] = ownState
		dirs["/run/user/"+strconv.Itoa(g.uid)+"/sandboxrun"] = ownState
	}
	for dir, what := range dirs {
		if dir == "" {
			continue
		}
		if err := g.directory(what, dir); err != nil {
			return err
		}
	}
	return nil
}

const ownState = "the state directory"

// CheckView refuses a view that shows a state directory itself, whichever policy the plan is of. It returns what the view lets programs write.
func CheckView(state string, root *os.Root, v *rootfs.View) ([]string, error) {
	mounts, err := hostfs.OwnMounts()
	if err != nil {
		return nil, fmt.Errorf("list host mounts: %w", err)
	}
	g := &ground{mounts: mounts, uid: os.Geteuid(), inUse: func() inUse { return inUse{} }}
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", fault.Cause(err))
	}
	defer dir.Close()
	t := spec.Trusted{What: ownState, Path: state, State: true}
	if t.Location, err = procfs.LocationOf(dir, mounts); err != nil {
		return nil, fmt.Errorf("find out where the state directory is: %w", err)
	}
	g.known = append(g.known, t)
	if err := spec.CheckTrusted(v, g); err != nil {
		return nil, err
	}
	return g.writable(v)
}

// File adds a file that the launcher reads, with the links on the way. What is no regular file, as a pipe, cannot be changed
// by its name.
func (g *ground) file(what, path string, readable bool) error {
	t := spec.Trusted{What: what, Path: path, Readable: readable}
	f, err := g.walk(path, &t, true)
	if err != nil {
		return fmt.Errorf("find out where %s %q is: %w", what, path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	g.known = append(g.known, t)
	return nil
}

// directory adds a directory, which need not exist yet: a program could make it first.
func (g *ground) directory(what, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	t := spec.Trusted{What: what, Path: path, State: what == ownState, Output: what != ownState}
	var missing []string
	for at := path; ; at = filepath.Dir(at) {
		f, err := g.walk(at, &t, false)
		if err == nil {
			f.Close()
			t.Absent = len(missing) > 0
			t.Location.Path = filepath.Join(append([]string{t.Location.Path}, missing...)...)
			g.known = append(g.known, t)
			return nil
		}
		if at == "/" || errors.Is(err, unix.EACCES) {
			return nil // neither can a program reach it, which has no other user's rights
		}
		missing = append([]string{filepath.Base(at)}, missing...)
		t.Links = nil
	}
}

// Go goes to a path as the kernel does, and notes where it is and in which directories the links on the way are.
func (g *ground) walk(path string, t *spec.Trusted, file bool) (*os.File, error) {
	w := Walk{Rest: strings.Split(path, "/"), File: file, Follow: func(dir *os.File) error {
		location, err := procfs.LocationOf(dir, g.mounts)
		t.Links = append(t.Links, location)
		return err
	}}
	missing, err := w.Go()
	if err == nil && missing != "" {
		err = unix.ENOENT
	}
	if err == nil {
		t.Location, err = procfs.LocationOf(w.At, g.mounts)
	}
	if err != nil {
		if w.At != nil {
			w.At.Close()
		}
		return nil, err
	}
	return w.At, nil
}

// Shown lists what a bind mount of a host path shows.
func (g *ground) Shown(path string) ([]spec.Shown, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return nil, err
	}
	var list []spec.Shown
	for _, m := range g.mounts {
		if l, ok := m.Locate(path); ok && uint64(m.ID) == st.Mnt_id {
			list = append(list, spec.Shown{Path: path, Location: l})
			break
		}
	}
	if list == nil {
		return nil, fmt.Errorf("%q is on no mount that can be seen", path)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return list, nil
	}
	below := strings.TrimSuffix(path, "/") + "/"
	for _, m := range g.mounts {
		if strings.HasPrefix(m.Target, below) {
			list = append(list, spec.Shown{Path: m.Target, Location: m.Location})
		}
	}
	return list, nil
}

// Trusted lists what the launcher believes.
func (g *ground) Trusted(near []hostfs.Location) ([]spec.Trusted, error) {
	list := append(slices.Clip(g.known), g.inUse().trusted...)
	if tmp, ok := g.stateAt("/tmp"); ok {
		for _, name := range statesBelow(tmp.Location, near) {
			list = g.appendState(list, filepath.Join("/tmp", name))
		}
	}
	list = g.appendState(list, "/run/sandboxrun")
	users, _ := os.ReadDir("/run/user") // without it there are none
	for _, u := range users {
		list = g.appendState(list, filepath.Join("/run/user", u.Name(), "sandboxrun"))
	}
	return list, nil
}

// statesBelow lists the state directories in /tmp that matter: all, where /tmp itself is near, else those that something near
// lies in.
func statesBelow(tmp hostfs.Location, near []hostfs.Location) []string {
	var names []string
	for _, n := range near {
		if tmp.Within(n) {
			names = nil
			if dir, err := os.Open("/tmp"); err == nil {
				names, _ = dir.Readdirnames(-1)
				dir.Close()
			}
			break
		}
		if n.Within(tmp) {
			first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(n.Path, tmp.Path), "/"), "/")
			names = append(names, first)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "sandboxrun-") })
}

// appendState adds a user's state directory if it is there. OpenStore takes none that is another user's than its name says.
func (g *ground) appendState(list []spec.Trusted, path string) []spec.Trusted {
	t, ok := g.stateAt(path)
	if !ok {
		return list
	}
	return append(list, t)
}

// stateAt finds a directory that is no link.
func (g *ground) stateAt(path string) (spec.Trusted, bool) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return spec.Trusted{}, false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	_, uid, named := strings.Cut(filepath.Base(path), "sandboxrun-")
	if unix.Fstat(fd, &st) != nil || named && uid != strconv.Itoa(int(st.Uid)) {
		return spec.Trusted{}, false
	}
	location, err := procfs.LocationOf(f, g.mounts)
	return spec.Trusted{What: "the state directory of uid " + strconv.Itoa(int(st.Uid)), Path: path, Location: location, State: true}, err == nil
}

// StatePath is where the state is: dir if it is given, else a directory that belongs to the caller alone.
func StatePath(dir, runtimeDir string, uid int) string {
	switch {
	case dir != "":
		return dir
	case uid == 0 && unix.Access("/run", unix.W_OK) == nil: // not so for the root of a user namespace of somebody's
		return "/run/sandboxrun"
	case OwnedDir(runtimeDir, uid):
		return filepath.Join(runtimeDir, "sandboxrun")
	}
	return "/tmp/sandboxrun-" + strconv.Itoa(uid)
}

// OwnedDir keeps a runtime directory out that sudo or su left behind from somebody else.
func OwnedDir(path string, uid int) bool {
	var st unix.Stat_t
	return path != "" && unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == uid
}
