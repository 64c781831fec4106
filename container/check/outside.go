package check

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// nodeOf looks at a path of the host, through links.
func nodeOf(path string) hooks.Node {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return hooks.Node{Err: err}
	}
	return nodeFrom(&st)
}

// look looks at a path's host path. That of a mask or a secret is resolved, so it is a link only where a program may have
// made one: then the link itself is meant.
func look(p hooks.Path) hooks.Node {
	if p.Kind != hooks.Mask && p.Kind != hooks.Secret && p.Kind != hooks.OtherName {
		return nodeOf(p.Host)
	}
	var st unix.Stat_t
	if err := unix.Lstat(p.Host, &st); err != nil {
		return hooks.Node{Err: err}
	}
	return nodeFrom(&st)
}

func nodeFrom(st *unix.Stat_t) hooks.Node {
	return hooks.Node{Dev: st.Dev, Ino: st.Ino, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Rdev: st.Rdev, Size: st.Size}
}

// probePaths are what no program should see and no policy has granted. What is not on this host is left out.
func probePaths(view *rootfs.View, state string) []hooks.Path {
	uid := os.Geteuid()
	list := []string{
		state, "/etc/shadow", fmt.Sprintf("/run/user/%d", uid),
		"/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
	}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && filepath.IsAbs(u.HomeDir) {
		list = append(list, filepath.Clean(u.HomeDir))
	}
	var paths []hooks.Path
	cover := view.ByTarget()
	for _, p := range list {
		real, err := filepath.EvalSymlinks(p)
		if err != nil || real == "/" {
			continue
		}
		if shown := cover.HostPath(p); shown == p || shown == real {
			continue // granted, or masked and looked at as such
		}
		paths = append(paths, hooks.Path{Kind: hooks.ProbePath, Inside: p, Host: p})
	}
	return paths
}

// namespaceNames are the kinds of namespaces; those of mounts, processes, IPC, users and control groups each exec has anew.
func namespaceNames() []hooks.Namespace {
	return []hooks.Namespace{
		{Name: "user", PerExec: true},
		{Name: "mnt", PerExec: true},
		{Name: "pid", PerExec: true},
		{Name: "ipc", PerExec: true},
		{Name: "cgroup", PerExec: true},
		{Name: "uts"},
		{Name: "net"},
	}
}

func hostNamespaces(network bool) []hooks.Namespace {
	list := namespaceNames()
	for i := range list {
		list[i].Host = nodeOf("/proc/thread-self/ns/" + list[i].Name).Ino
		list[i].Shared = list[i].Name == "net" && !network
	}
	return list
}

// lookOutside adds what is to be compared with what was seen inside.
func (c *Checker) lookOutside() {
	f := &c.facts
	for i := range f.Namespaces {
		var st unix.Stat_t
		if unix.Fstatat(int(c.sb.Proc.Fd()), "ns/"+f.Namespaces[i].Name, &st, 0) == nil {
			f.Namespaces[i].Process1 = st.Ino
		}
	}
	for i, p := range c.subject.Paths {
		if p.Host != "" && p.Kind != hooks.Secret && p.Kind != hooks.OtherName && p.Kind != hooks.ProbePath {
			compare(p, &f.Paths[i])
		}
	}
	for i := range f.Signalled {
		if err := unix.Kill(f.Signalled[i].PID, 0); !errors.Is(err, unix.EPERM) {
			f.Signalled[i].Outside = err
		}
	}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.HostDescriptors = len(entries) - 1
	}
	f.Launcher = [2]uint32{uint32(os.Geteuid()), uint32(os.Getegid())}
	f.Privileged = os.Geteuid() == 0
	for i := range c.targets {
		c.targets[i].note(f)
	}
}

// compare finds out whether a path that looks different inside has been replaced outside since we looked first.
func compare(p hooks.Path, seen *hooks.PathSeen) {
	if seen.Outside.Err == nil && !seen.Inside.Same(seen.Outside) {
		seen.Changed = !look(p).Same(seen.Outside)
	}
	seen.CanWrite = unix.Access(p.Host, unix.W_OK) == nil
}

// target is a socket of the launcher's that waits, outside, for what must not come. It is there for the time of the
// checks, on loopback alone.
type target struct {
	name    string
	family  int
	kind    int
	address []byte // struct sockaddr
	fd      int
	reached error // by the launcher itself: nil
	inside  error // the error of connect, or of sending twice, inside
}

// listen makes the targets, and reaches each from here.
func (c *Checker) listen() {
	for _, t := range []target{
		{name: "127.0.0.1", family: unix.AF_INET, kind: unix.SOCK_STREAM, address: inet4(0)},
		{name: "::1", family: unix.AF_INET6, kind: unix.SOCK_STREAM, address: inet6(0)},
		{name: "127.0.0.1", family: unix.AF_INET, kind: unix.SOCK_DGRAM, address: inet4(0)},
		{name: "::1", family: unix.AF_INET6, kind: unix.SOCK_DGRAM, address: inet6(0)},
		{name: "an abstract socket", family: unix.AF_UNIX, kind: unix.SOCK_STREAM, address: abstract("sandboxrun-" + rand.Text())},
	} {
		t.reached = t.open(c.subject.Forwards)
		if t.fd < 0 && t.family == unix.AF_INET6 {
			continue // a host without IPv6 has nothing there to be reached
		}
		c.targets = append(c.targets, t)
	}
}

// open listens, and connects or sends once. A port that is forwarded would be reached inside, and rightly so.
func (t *target) open(forwards []uint16) error {
	fd, err := unix.Socket(t.family, t.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	t.fd = fd
	if err != nil {
		return err
	}
	if err := rawCall(unix.SYS_BIND, fd, t.address); err != nil {
		unix.Close(fd)
		t.fd = -1
		return err
	}
	if t.family != unix.AF_UNIX {
		name, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		port := portOf(name)
		binary.BigEndian.PutUint16(t.address[2:], port)
		if slices.Contains(forwards, port) {
			return fmt.Errorf("port %d is one that is forwarded", port)
		}
	}
	if t.kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, backlog); err != nil {
			return err
		}
	}
	return t.reachHere()
}

func portOf(name unix.Sockaddr) uint16 {
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port)
	case *unix.SockaddrInet6:
		return uint16(a.Port)
	}
	return 0
}

func (t *target) reachHere() error {
	fd, err := unix.Socket(t.family, t.kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := rawCall(unix.SYS_CONNECT, fd, t.address); err != nil {
		return err
	}
	if t.kind == unix.SOCK_STREAM {
		return nil
	}
	if _, err := unix.Write(fd, []byte("outside")); err != nil {
		return err
	}
	_, err = t.receive()
	return err
}

// receive takes one datagram that has arrived.
func (t *target) receive() (string, error) {
	buf := make([]byte, 16)
	n, _, err := unix.Recvfrom(t.fd, buf, unix.MSG_DONTWAIT)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// note says what came of it.
func (t *target) note(f *hooks.Facts) {
	r := hooks.Reach{Target: t.name, Inside: t.inside, Outside: t.reached}
	if t.family != unix.AF_UNIX {
		r.Target += ":" + strconv.Itoa(int(binary.BigEndian.Uint16(t.address[2:])))
	}
	switch {
	case t.family == unix.AF_UNIX:
		f.Abstract = append(f.Abstract, r)
	case t.kind == unix.SOCK_STREAM:
		f.TCP = append(f.TCP, r)
	default:
		if text, err := t.receive(); err == nil && text == insideToken {
			r.Inside = nil
		} else if r.Inside == nil {
			r.Inside = hooks.ErrSilence
		}
		f.UDP = append(f.UDP, r)
	}
}

func (c *Checker) closeTargets() {
	for _, t := range c.targets {
		if t.fd >= 0 {
			unix.Close(t.fd)
		}
	}
}

const backlog = 8 // nobody accepts: they are to get through, no more

// What arrives outside if the program is not isolated.
const insideToken = "inside"

func inet4(port uint16) []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	b = binary.BigEndian.AppendUint16(b, port)
	return append(b, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
}

func inet6(port uint16) []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET6)
	b = binary.BigEndian.AppendUint16(b, port)
	b = append(b, make([]byte, 4+15)...) // flow, address
	return append(b, 1, 0, 0, 0, 0)      // scope
}

func abstract(name string) []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX)
	return append(append(b, 0), name...)
}
