package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Endpoint is where something listens in a sandbox.
type Endpoint struct {
	Addr     netip.AddrPort
	UDP      bool
	Optional bool // where there is no such address, as ::1 where there is no IPv6, it is left out
}

// Listen makes sockets that listen in the network namespace of the sandbox whose process 1 is init. They belong to the
// caller, outside. Of one that was left out the file is nil.
func Listen(init *os.File, list []Endpoint) ([]*os.File, error) {
	if len(list) == 0 {
		return nil, nil
	}
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	addrs := make([]C.struct_fx_addr, len(list))
	for i, e := range list {
		a := &addrs[i]
		ip := e.Addr.Addr()
		for k, b := range ip.AsSlice() {
			a.ip[k] = C.uchar(b)
		}
		a.optional = C.uint8_t(number(e.Optional))
		a.port, a.v6, a.udp = C.uint16_t(e.Addr.Port()), C.uint8_t(number(ip.Is6())), C.uint8_t(number(e.UDP))
	}
	fds := make([]C.int, len(list))
	var pin runtime.Pinner
	defer pin.Unpin()
	l := &C.struct_fx_listen{
		target: C.int(init.Fd()), addrs: &addrs[0], n: C.size_t(len(list)), fds: &fds[0], stacks: (*C.char)(unsafe.Pointer(stack)),
	}
	pin.Pin(&addrs[0])
	pin.Pin(&fds[0])
	pin.Pin(stack)
	pin.Pin(l)
	C.fx_listen(l)
	runtime.KeepAlive(init)
	files := make([]*os.File, l.done)
	for i := range files {
		if fds[i] < 0 {
			continue
		}
		files[i] = os.NewFile(uintptr(fds[i]), list[i].Addr.String())
	}
	if int(l.done) == len(list) {
		return files, nil
	}
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
	return nil, fmt.Errorf("listen on %s in the sandbox: %w", list[l.done].Addr, unix.Errno(l.err))
}
