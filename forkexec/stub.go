package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	stubBase  = 0x10000 // where it is loaded; any page above vm.mmap_min_addr
	stubStart = 128     // the code's place in the file, after both headers
)

// stubELF is the stub as a file that the kernel can execute: a header, one segment, the code.
func stubELF() []byte {
	code := unsafe.Slice((*byte)(C.fx_stub_code()), int(C.fx_stub_size()))
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	size := uint64(stubStart + len(code))
	var b bytes.Buffer
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{
			0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
		},
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Entry: stubBase + stubStart + uint64(C.fx_stub_entry()), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: stubBase, Paddr: stubBase,
		Filesz: size, Memsz: size, Align: 0x1000,
	}
	for _, part := range []any{head, load} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err) // fixed-size structs into memory
		}
	}
	b.Write(make([]byte, stubStart-b.Len()))
	b.Write(code)
	return b.Bytes()
}

// Stub is the process that waits: process 1 of a sandbox and of each exec, as a sealed memfd that nobody can change
// (CVE-2019-5736). stub.c says how to start it. The caller must not close it.
var Stub = sync.OnceValues(makeStub) //nolint:gochecknoglobals // made once

func makeStub() (*os.File, error) {
	fd, err := unix.MemfdCreate("sandboxrun", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 every memfd can be executed, and the flag is unknown
		fd, err = unix.MemfdCreate("sandboxrun", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make stub: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "stub")
	if _, err := f.Write(stubELF()); err != nil {
		f.Close()
		return nil, fmt.Errorf("make stub: %w", err)
	}
	if err := f.Chmod(0o555); err != nil {
		f.Close()
		return nil, fmt.Errorf("make stub: %w", err)
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("make stub: seal: %w", err)
	}
	return f, nil
}

// What the creator of a sandbox sends to its process 1; see stub.c.
const (
	Ready    = C.FX_READY    // it is kept until somebody wants it
	Complete = C.FX_COMPLETE // it belongs to its owner
)

// CreatorSocket makes the socket between process 1 and its creator.
func CreatorSocket() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "creator"), os.NewFile(uintptr(fds[1]), "process 1"), nil
}

// TellProcess1 sends process 1 a word, what it is to hold of its sandbox, and its owner's pidfd unless that is nil.
func TellProcess1(socket *os.File, word byte, sealed, owner *os.File) error {
	fds := []int{int(sealed.Fd())}
	if owner != nil {
		fds = append(fds, int(owner.Fd()))
	}
	for {
		err := unix.Sendmsg(int(socket.Fd()), []byte{word}, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// AwaitClosed waits until nobody has the other end of a socket open any more.
func AwaitClosed(s *os.File) {
	fds := []unix.PollFd{{Fd: int32(s.Fd())}} // POLLHUP needs no asking for
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return
		}
	}
}
