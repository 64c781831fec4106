package container

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/deny"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/puts"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/transfer"
)

// dirOf is a working directory inside.
func (sb *Sandbox) dirOf(dir string) string {
	if path.IsAbs(dir) {
		return path.Clean(dir)
	}
	return path.Join(sb.state.Launch.Dir, dir)
}

// visit enters the sandbox as an exec does, without a program: it writes files, and may keep what an exec sees.
func (sb *Sandbox) visit(dir string, puts []forkexec.Put, keep bool) (view *forkexec.View, err error) {
	for range raceTries {
		view, err = sb.visitOnce(dir, puts, keep)
		if !lostRace(err) {
			break
		}
	}
	if err == nil {
		return view, nil
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return nil, e
	}
	return nil, sb.explain(err, Request{Args: []string{"put"}})
}

func (sb *Sandbox) visitOnce(dir string, list []forkexec.Put, keep bool) (*forkexec.View, error) {
	in, err := sb.inside()
	if err != nil {
		return nil, err
	}
	defer unix.Close(in.FD)
	if err := sb.checkGranted(); err != nil {
		return nil, err
	}
	null, err := sb.null(unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	denied, err := deny.Open(sb.state.Launch.Watch, in)
	if err != nil {
		return nil, err
	}
	cmd := sb.baseCommand(nil) // nothing of the program's runs that a filter could stop
	cmd.Dir, cmd.Puts, cmd.KeepView, cmd.Stdio = sb.dirOf(dir), list, keep, [3]*os.File{null, null, null}
	cmd.Mounts = append(cmd.Mounts, denied.Cover()...)
	sb.limit(&cmd, sb.effective(Request{}), nil)
	cmd.Limits = forkexec.Limits{State: sb.dir, Wall: puts.Time}
	view, err := forkexec.Visit(&cmd)
	moved := denied.MoveAppeared(sb.state.ID + "-put")
	if err == nil && len(moved) > 0 {
		view.Close()
		err = fail(fault.PutFailed, "put it elsewhere", "put: %s", strings.Join(moved, "; "))
	}
	return view, err
}

// Put writes files with the rights of the sandbox's programs, below a working directory inside; an empty one is the policy's.
// Directories of lifetime "exec" end with it.
func (sb *Sandbox) Put(dir string, files []Put) error {
	list, err := puts.Plain(files)
	if err != nil {
		return err
	}
	view, err := sb.visit(dir, list, false)
	view.Close()
	return err
}

// Files reads what programs have made.
type Files struct {
	transfer.Reader
	view *forkexec.View
}

// Files opens what programs see below a working directory inside; an empty one is the policy's. The caller closes it.
func (sb *Sandbox) Files(dir string) (*Files, error) {
	view, err := sb.visit(dir, nil, true)
	if err != nil {
		return nil, err
	}
	return sb.files(view, sb.dirOf(dir))
}

// files takes over the view.
func (sb *Sandbox) files(view *forkexec.View, dir string) (*Files, error) {
	f := &Files{view: view}
	var err error
	if f.Opener, err = transfer.NewOpener(sb.hostIDs()); err != nil {
		view.Close()
		return nil, fmt.Errorf("read files of sandbox %q: take its program's ids: %w", sb.state.ID, err)
	}
	if f.Dir, err = f.Opener.Dir(int(view.Root.Fd()), dir); err != nil {
		view.Close()
		return nil, fail(fault.CwdMissing, "it must be a directory that the policy shows", "working directory %q: %w", dir, err)
	}
	return f, nil
}

// hostIDs are the program's ids on the host: 0 in the sandbox's user namespace is the caller, and other numbers are themselves.
func (sb *Sandbox) hostIDs() (uid, gid int) {
	uid, gid = sb.state.Launch.UID, sb.state.Launch.GID
	if uid == 0 {
		uid = os.Geteuid()
	}
	if gid == 0 {
		gid = os.Getegid()
	}
	return uid, gid
}

// Close lets go of the view, if there is one.
func (f *Files) Close() {
	if f == nil {
		return
	}
	unix.Close(f.Dir)
	f.view.Close()
}

// Get gives a file or directory to a sink.
func (f *Files) Get(name string, limit int64, sink transfer.Sink) ([]transfer.Dropped, error) {
	f.Max = limit
	dropped, err := f.Read(name, sink)
	if err != nil {
		return dropped, puts.TransferError("get", err)
	}
	return dropped, nil
}

// Collect reads what is named below a working directory inside; an empty one is the policy's. What one cannot be read says so itself; a
// single one is an error.
func (sb *Sandbox) Collect(dir string, list []Collect) ([]result.Collected, []transfer.Dropped, error) {
	files, err := sb.Files(dir)
	if err != nil {
		return nil, nil, err
	}
	defer files.Close()
	res, left := &result.Result{Collected: []result.Collected{}}, int64(math.MaxInt64)
	for _, c := range list {
		collect(res, files, sb, c, &left)
	}
	if len(list) == 1 && len(res.Collected) == 1 && res.Collected[0].Error != nil {
		e := res.Collected[0].Error
		return nil, nil, fail(e.Code, e.Hint, "%s", e.Message)
	}
	return res.Collected, res.Dropped, nil
}

// HostSink writes to a path of the host, absolute. No link is followed that stands where a program of the sandbox could have put it.
func (sb *Sandbox) HostSink(name string) (*transfer.HostSink, error) {
	parent, base := filepath.Split(strings.TrimRight(name, "/"))
	if base == "" || base == "." || base == ".." {
		return nil, fail(fault.OutputDirUnusable, "name a file or directory", "%q cannot be written", name)
	}
	at, err := sb.walkHost(parent, false)
	if err != nil {
		return nil, err
	}
	return &transfer.HostSink{Parent: at, Name: base}, nil
}

// ReadHost reads a file or directory of the host, absolute, in the same way: what a program has made a link to is not the caller's
// to hand over.
func (sb *Sandbox) ReadHost(name string, limit int64) ([]transfer.File, []transfer.Dropped, error) {
	at, err := sb.walkHost(name, true)
	if err != nil {
		return nil, nil, err
	}
	defer at.Close()
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(at.Fd())), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fail(fault.FileUnusable, "", "open %q: %w", name, err)
	}
	m := &transfer.Memory{}
	r := transfer.Reader{Opener: &transfer.Opener{}, Max: limit}
	dropped, err := r.ReadOpen(fd, name, m)
	if err != nil {
		return nil, nil, puts.TransferError("read", err)
	}
	return m.Files, dropped, nil
}

func (sb *Sandbox) walkHost(name string, file bool) (*os.File, error) {
	sees, err := sb.grantedPaths()
	if err != nil {
		return nil, fmt.Errorf("look at %q: %w", name, err)
	}
	w := trust.Walk{Rest: strings.Split(name, "/"), File: file, Follow: func(dir *os.File) error {
		return sees.Refuse(dir, "a link on the way to", name)
	}}
	missing, err := w.Go()
	if err == nil && missing != "" {
		err = unix.ENOENT
	}
	if err == nil {
		return w.At, nil
	}
	if w.At != nil {
		w.At.Close()
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return nil, err
	}
	return nil, fail(fault.FileUnusable, "", "open %q: %w", name, err)
}

// freshMounts are the directories that are empty for one exec.
func (sb *Sandbox) freshMounts(req Request, dir string, in lookup.Root) ([]forkexec.Mount, error) {
	var list []forkexec.Mount
	flags := unix.MS_NOSUID | unix.MS_NODEV | forkexec.Fresh
	if len(sb.state.Launch.Execute) > 0 {
		flags |= unix.MS_NOEXEC // as everything that the program can write
	}
	for _, asked := range req.Fresh {
		name, err := freshPath(asked, dir, variable(req.env, "HOME"))
		if err != nil {
			return nil, err
		}
		f, err := in.Open(name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return nil, fail(fault.FreshUnusable, "it must be a directory that the policy shows", "fresh %q: %w", asked, err)
		}
		f.Close()
		if slices.ContainsFunc(list, func(m forkexec.Mount) bool { return m.Target == name }) {
			continue
		}
		list = append(list, forkexec.Mount{
			Source: "tmpfs", Target: name, Type: "tmpfs", Flags: flags,
			Data: fmt.Sprintf("mode=0700,uid=%d,gid=%d,size=%d,nr_inodes=%d", sb.state.Launch.UID, sb.state.Launch.GID, freshSize, freshInodes),
		})
	}
	slices.SortFunc(list, func(a, b forkexec.Mount) int { return strings.Compare(a.Target, b.Target) })
	for i := 1; i < len(list); i++ {
		if strings.HasPrefix(list[i].Target, list[i-1].Target+"/") {
			return nil, fail(fault.FreshUnusable, "leave the inner one out", "fresh %q lies in %q, which is empty", list[i].Target, list[i-1].Target)
		}
	}
	return list, nil
}

// As those of files.tmpfs.
const (
	freshSize   = 256 << 20
	freshInodes = 65536
)

func freshPath(asked, dir, home string) (string, error) {
	name := asked
	switch {
	case asked == "":
		return "", fail(fault.FreshUnusable, "", "fresh: the path is empty")
	case asked == "~" || strings.HasPrefix(asked, "~/"):
		if !path.IsAbs(home) {
			return "", fail(fault.FreshUnusable, "", "fresh %q: the program has no home", asked)
		}
		name = path.Join(home, asked[1:])
	case !path.IsAbs(asked):
		name = path.Join(dir, asked)
	}
	name = path.Clean(name)
	if name == "/" || pathname.KernelPlace(name) != "" {
		return "", fail(fault.FreshUnusable, "", "fresh %q: no program runs without what is there", asked)
	}
	return name, nil
}
