package check

import (
	"errors"
	"fmt"
	"os"
	"path"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
)

// The program's id on the host is read from a message: the kernel adds the sender's uid and gid, as numbers of the receiver's user
// namespace. The files that it makes come through the same socket as descriptors.

type change struct {
	name string
	call int
}

// ownID is the program's uid as it sees itself, and to the host.
type ownID struct {
	shown int
	host  uint32
}

type sentFile struct{ path, opened, moved, call int }

const (
	mostFiles   = 8 // that are sent
	linkedAs    = ".sandboxrun-check"
	descriptor0 = 0
)

// messages makes two ends of a socket; the first one is ours.
func messages() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		ours, theirs = os.NewFile(uintptr(fds[0]), "messages"), os.NewFile(uintptr(fds[1]), "messages")
		err = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("check sandbox: %w", err)
	}
	return ours, theirs, nil
}

func (p *probe) sayHello() int {
	hello := []byte("hello")
	return p.calls.Add(forkexec.InPlace, unix.SYS_SENDTO, 1, hello, len(hello), unix.MSG_DONTWAIT, 0, 0)
}

// make makes a nameless file in a directory, and sends it to the launcher, which reads the owner.
func (p *probe) make(i int, in hooks.Path) (opened int) {
	if in.Host == "" || len(p.sent) == mostFiles {
		return p.open(in.Inside, tmpfile, 0o600)
	}
	opened = p.calls.Add(forkexec.InPlace, unix.SYS_OPENAT, atFD, in.Inside, tmpfile, 0o600)
	moved := p.calls.Add(forkexec.InPlace, unix.SYS_DUP3, forkexec.Result(opened), descriptor0, unix.O_CLOEXEC)
	if p.message == nil {
		p.message = p.withDescriptor0()
	}
	sent := p.calls.Add(forkexec.InPlace, unix.SYS_SENDMSG, 1, unsafe.Pointer(p.message), unix.MSG_DONTWAIT)
	p.close(forkexec.InPlace, opened)
	p.sent = append(p.sent, sentFile{i, opened, moved, sent})
	return opened
}

func (p *probe) withDescriptor0() *unix.Msghdr {
	data, control := []byte("file"), unix.UnixRights(descriptor0)
	iov := &unix.Iovec{Base: &data[0]}
	iov.SetLen(len(data))
	m := &unix.Msghdr{Iov: iov, Control: &control[0]}
	m.SetControllen(len(control))
	m.SetIovlen(1)
	p.pin.Pin(&data[0])
	p.pin.Pin(&control[0])
	p.pin.Pin(iov)
	p.pin.Pin(m)
	return m
}

// change tries to change what is no grant's, each time so that nothing is changed if it succeeds, or fails for another reason than
// a refusal: the mode, owner and times that it has; an attribute that it has not; a directory removed as if it were a file, or the
// other way round; a new name that is removed at once; another directory, not empty, replaced by it. Not tried is what the kernel
// answers before it has looked at who asks: to rename a file to itself, to leave its times or its owner alone.
func (p *probe) change(i int, it hooks.Path, outside hooks.Node, id ownID) []change {
	const nothing = -1
	dir := it.Dir
	if it.Host != "" {
		dir = outside.Dir()
	}
	unlink := 0
	if !dir {
		unlink = unix.AT_REMOVEDIR
	}
	var list []change
	try := func(name string, number uintptr, args ...any) {
		list = append(list, change{name, p.calls.Add(forkexec.InPlace, number, args...)})
	}
	mode := int(outside.Mode & 0o7777)
	if it.Host != "" && outside.Err == nil { // else nobody knows which mode it has, least of all where something else is there than should be
		try("chmod", unix.SYS_FCHMODAT, atFD, it.Inside, mode)
	}
	if it.Inside == os.DevNull {
		try("chmod by descriptor", unix.SYS_FCHMOD, 2, mode)
	}
	if it.Host != "" && outside.Err == nil && outside.UID == id.host { // else it would change the owner, and that of a file of the host's
		try("chown", unix.SYS_FCHOWNAT, atFD, it.Inside, id.shown, nothing, 0)
	}
	try("utimensat", unix.SYS_UTIMENSAT, atFD, it.Inside, uintptr(unsafe.Pointer(&p.stats[i].Atim)), 0) // the time of change is next to it
	try("setxattr", unix.SYS_SETXATTR, it.Inside, "user.sandboxrun", "", 0, unix.XATTR_REPLACE)
	if !it.Named {
		return list
	}
	try("unlink", unix.SYS_UNLINKAT, atFD, it.Inside, unlink)
	linked := path.Join(path.Dir(it.Inside), linkedAs)
	try("link", unix.SYS_LINKAT, atFD, it.Inside, atFD, linked, 0)
	p.calls.Add(forkexec.InPlace, unix.SYS_UNLINKAT, atFD, linked, 0)
	if it.Beside != "" {
		try("rename", unix.SYS_RENAMEAT2, atFD, it.Inside, atFD, it.Beside, 0)
	}
	return list
}

func (c *Checker) programID() ownID {
	id := ownID{c.cmd.ShownUID, uint32(os.Geteuid())}
	if c.cmd.UID != 0 {
		id.host = uint32(c.cmd.UID)
	}
	return id
}

// receive reads what the program has sent: it has ended, so all of it is there.
func (p *probe) receive(c *Checker, from *os.File) {
	f := &c.facts
	files := p.sent
	f.HostIDErr = p.err(p.hello)
	for {
		who, fd, err := receiveOne(from)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		f.HostID, f.HostIDErr = who, err
		for len(files) > 0 && p.err(files[0].call) != nil {
			files = files[1:]
		}
		if len(files) == 0 { // it was the greeting
			continue
		}
		sent := files[0]
		files = files[1:]
		if fd != nil && p.err(sent.opened) == nil && p.err(sent.moved) == nil {
			n := diskNode(fd, c.subject.Paths[sent.path])
			f.Paths[sent.path].Made = &n
		}
		if fd != nil {
			fd.Close()
		}
	}
}

// receiveOne receives a message: who has sent it, and the file that came with it, or nil.
func receiveOne(from *os.File) (who [2]uint32, file *os.File, err error) {
	data, control := make([]byte, 16), make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(from.Fd()), data, control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return who, nil, err
	}
	list, err := unix.ParseSocketControlMessage(control[:n])
	err = errors.Join(err, unix.ENODATA)
	for i := range list {
		if fds, wrong := unix.ParseUnixRights(&list[i]); wrong == nil && len(fds) == 1 {
			file = os.NewFile(uintptr(fds[0]), "file")
		}
		if cred, wrong := unix.ParseUnixCredentials(&list[i]); wrong == nil {
			who, err = [2]uint32{cred.Uid, cred.Gid}, nil
		}
	}
	return who, file, err
}

// diskNode looks at a file that was made in a grant as the host has it. Through a mount that is idmapped it would show as the
// program's: it is opened anew through the host's own mount, by its handle, as it has no name.
func diskNode(file *os.File, in hooks.Path) hooks.Node {
	var st unix.Stat_t
	if !in.Idmapped {
		if err := unix.Fstat(int(file.Fd()), &st); err != nil {
			return hooks.Node{Err: err}
		}
		return nodeFrom(&st)
	}
	handle, _, err := unix.NameToHandleAt(int(file.Fd()), "", unix.AT_EMPTY_PATH)
	if err != nil {
		return hooks.Node{Err: err}
	}
	dir, err := unix.Open(in.Host, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return hooks.Node{Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.OpenByHandleAt(dir, handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return hooks.Node{Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return hooks.Node{Err: err}
	}
	return nodeFrom(&st)
}
