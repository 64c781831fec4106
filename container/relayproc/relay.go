package relayproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/container/selfexec"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/relay"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Command is the argument that makes this binary a relay. A sandbox's id follows, for a user who lists
// processes; all else comes through standard input.
const Command = "relay"

// Lock is the file that the relay locks: a process that can lock it knows that the relay has ended.
const Lock = "relay.lock"

// Descriptors that a relay finds open, before its listeners.
const (
	relayDir   = iota + 3 // the sandbox's directory
	relayInit             // pidfd of process 1
	relayHeld             // Lock
	relayFirst            // the first listener
)

// Process is a relay that has been started and does not serve yet.
type Process struct {
	cmd       *exec.Cmd
	in        *os.File
	answer    *os.File
	order     relayOrder
	listeners []*os.File
}

// relayOrder is what a relay is to do.
type relayOrder struct {
	relay.Config
	Record *recording.Location `json:"record"`
}

// Sandbox is what a relay needs of the sandbox that it serves.
type Sandbox struct {
	ID     string
	Init   *os.File         // pidfd of process 1
	Dir    *os.File         // its directory, open as a descriptor of the relay
	Root   *os.Root         // the same
	Groups []forkexec.Group // that it is in
}

// Start makes the sockets inside and starts the process that will hold them, while the rest is built. It is nil where the plan has
// no relay.
func Start(sb Sandbox, plan *spec.Plan) (*Process, error) {
	if plan.Relay == nil {
		return nil, nil
	}
	order := relay.Config{Sandbox: sb.ID, Policy: plan.Relay.Policy, Upstream: plan.Relay.Proxies}
	order.Limits.CPU = relayShare(&plan.Exec.Limits)
	own, listeners := relayListeners(plan.Relay.Listeners)
	files, err := listen(sb.Init, own)
	if err != nil {
		return nil, err
	}
	r := &Process{}
	for i, l := range listeners {
		if files[i] != nil {
			r.listeners = append(r.listeners, files[i])
			order.Listeners = append(order.Listeners, l)
		}
	}
	r.order.Config = order
	if err := r.launch(sb); err != nil {
		closeAll(r.listeners)
		return nil, err
	}
	if err := limitRelay(sb.Groups, r.cmd.Process.Pid); err != nil {
		r.Abandon()
		return nil, err
	}
	return r, nil
}

// limitRelay has the relay share its programs' quota of processor time, where that is in a control group by itself. It shares
// no group that limits memory: a program that used that up would have the kernel kill the relay, and its ports were free
// for another program to listen on. With version 2 there is one group for both, and relayShare stands alone.
func limitRelay(groups []forkexec.Group, pid int) error {
	for _, g := range groups {
		if g.Unified || g.Controllers&forkexec.GroupCPU == 0 || g.Controllers&forkexec.GroupMemory != 0 {
			continue
		}
		if err := cgroup.WriteControl(filepath.Join(g.Dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fault.New(fault.LimitUnenforceable, `enforce = "best_effort" does without control groups`, "limit relay: %w", err)
		}
	}
	return nil
}

// relayListeners returns the planned listeners that get a socket of their own, and the relay's purpose for each socket. A listener on
// all addresses of a port also serves the listeners at single addresses of that port. Of two at one address the first counts.
func relayListeners(planned []spec.Listener) (own []spec.Listener, listeners []relay.Listener) {
	wide := map[uint16]map[netip.Addr]relay.Listener{}
	for _, d := range planned {
		if d.Kind == spec.ListenDirect {
			wide[d.Listen.Port()] = map[netip.Addr]relay.Listener{}
		}
	}
	seen := map[netip.AddrPort]bool{}
	for _, d := range planned {
		l := relay.Listener{Kind: d.Kind, Port: int(d.Listen.Port()), Target: d.Target, Socket: d.Socket}
		if d.Kind != spec.ListenDNS { // which is UDP's
			if seen[d.Listen] {
				continue
			}
			seen[d.Listen] = true
			if at := wide[d.Listen.Port()]; d.Kind == spec.ListenDirect {
				l.At = at
			} else if at != nil && d.Listen.Addr().Is4() {
				at[d.Listen.Addr()] = l
				continue
			}
		}
		own, listeners = append(own, d), append(listeners, l)
	}
	return own, listeners
}

// relayShare is how much of a processor the relay may take where the policy limits what its program takes: as much as that
// may. A limit without a time says that it is little.
func relayShare(l *policy.Limits) float64 {
	const little = 0.2
	switch {
	case l.CPUs > 0:
		return l.CPUs
	case l.CPU > 0 && l.Wall > 0:
		return max(little, l.CPU.Seconds()/l.Wall.Seconds())
	case l.CPU > 0:
		return little
	}
	return 0
}

// listen makes the sockets of listeners. Where there is no IPv6 those on ::1 are left out: nothing inside can look for them.
func listen(init *os.File, own []spec.Listener) ([]*os.File, error) {
	list := make([]forkexec.Endpoint, len(own))
	for i, d := range own {
		list[i] = forkexec.Endpoint{Addr: d.Listen, UDP: d.Kind == spec.ListenDNS, Optional: d.Listen.Addr().Is6()}
	}
	files, err := forkexec.Listen(init, list)
	if err != nil {
		if e := diagnose.NoProcesses("start relay", err); e != nil {
			return nil, e
		}
		return nil, fault.New(fault.SandboxUnavailable, "", "start relay: %w", err)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

func (r *Process) launch(sb Sandbox) error {
	lock, err := sb.Root.OpenFile(Lock, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fault.New(fault.StateUnusable, fault.DiskHint, "start relay: %w", fault.Cause(err))
	}
	defer lock.Close()
	if err := flock.Lock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	files := append([]*os.File{sb.Dir, sb.Init, lock}, r.listeners...)
	if r.cmd, r.in, r.answer, err = selfexec.Start(Command, sb.ID, files...); err == nil {
		return nil
	}
	if e := diagnose.NoProcesses("start relay", err); e != nil {
		return e
	}
	return fault.New(fault.SandboxUnavailable, "", "start relay: %w", err)
}

// Serve lets the relay begin, and waits until it has. What the checks have connected meanwhile is none of its business.
func (r *Process) Serve(id string, record *recording.Location) error {
	if r == nil {
		return nil
	}
	r.order.Sandbox, r.order.Record = id, record
	order, err := json.Marshal(&r.order)
	if err != nil {
		r.Abandon()
		return fmt.Errorf("start relay: %w", err)
	}
	for _, l := range r.listeners {
		for waits(l) {
			fd, _, err := unix.Accept4(int(l.Fd()), unix.SOCK_CLOEXEC)
			if err != nil {
				break // it is a UDP socket
			}
			unix.Close(fd)
		}
	}
	_, _ = r.in.Write(order) // that it has ended is seen below
	r.in.Close()
	text, err := io.ReadAll(r.answer)
	if err == nil && string(text) == relayServes {
		closeAll(r.listeners)
		go func() { _ = r.cmd.Wait() }() // so that it leaves no zombie with a caller that stays
		return r.answer.Close()
	}
	r.Abandon()
	if len(text) == 0 {
		text = []byte("it has ended: " + r.cmd.ProcessState.String())
	}
	return fault.New(fault.SandboxUnavailable, "", "start relay: %s", text)
}

// waits reports whether somebody waits to be accepted, or has sent something.
func waits(l *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(l.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Abandon ends a relay that nobody needs any more.
func (r *Process) Abandon() {
	if r == nil {
		return
	}
	closeAll(append([]*os.File{r.in, r.answer}, r.listeners...))
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// relayServes is what a relay answers once it serves; anything else says why it does not.
const relayServes = "serving"

// Serve is the relay's process: it serves until process 1 has ended. It is to be called by a process that was started for
// it and has not done anything else.
func Serve(in io.ReadCloser, answer io.WriteCloser) error {
	const percent, most = 100, 256 << 20
	debug.SetGCPercent(percent) // unlike a command it lives long
	debug.SetMemoryLimit(most)
	var order relayOrder
	err := json.NewDecoder(in).Decode(&order)
	in.Close()
	files := make([]*os.File, len(order.Listeners))
	for i := range files {
		files[i] = os.NewFile(uintptr(relayFirst+i), "listener")
	}
	init := os.NewFile(relayInit, "process 1")
	notes := &relayNotes{dir: os.NewFile(relayDir, "sandbox")}
	if err == nil {
		err = notes.open(order.Record)
	}
	if err == nil {
		err = confineRelay()
	}
	text := relayServes
	if err != nil {
		text = err.Error()
	}
	_, wrote := io.WriteString(answer, text)
	if err = errors.Join(err, wrote, answer.Close()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	notes.stop = cancel
	go func() {
		procfs.PidfdWait(init, -1)
		cancel()
	}()
	ports := make([]int, 0, len(files))
	for _, f := range files {
		if fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			ports = append(ports, fd)
		}
	}
	err = relay.Serve(ctx, order.Config, files, notes.note)
	keepPorts(ports, relayHeld, init)
	return err
}

// keepPorts keeps the ports of a relay that has to stop before its sandbox does, as when nothing can be recorded any more: a
// program could listen on them, and get what others send to the relay. To everybody else it has ended.
func keepPorts(ports []int, lock int, init *os.File) {
	for _, fd := range ports {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // a socket that does not listen any more still has its port
	}
	unix.Close(lock)
	procfs.PidfdWait(init, -1)
}

// Alive reports whether the relay of a sandbox runs, by the directory of all sandboxes.
func Alive(root *os.Root, id string) bool {
	lock, err := root.Open(filepath.Join(id, Lock))
	if err != nil {
		return false
	}
	defer lock.Close()
	return flock.Lock(lock, unix.LOCK_SH|unix.LOCK_NB) != nil
}

// Info is what the state command prints of a sandbox's relay.
type Info struct {
	Status string            `json:"status"` // "running" or "stopped"
	Proxy  string            `json:"proxy,omitempty"`
	Ports  map[string]string `json:"ports,omitempty"` // forwarded: where inside, and to where
	Hosts  []string          `json:"allowed_hosts,omitempty"`

	Upstream []string `json:"upstream_proxy,omitempty"` // the proxies of the caller's network that it asks, without user and password
}

// InfoOf looks at the relay of a sandbox; nil where it has none.
func InfoOf(root *os.Root, id string, r *spec.Relay) *Info {
	if r == nil {
		return nil
	}
	info := &Info{Status: "stopped", Ports: map[string]string{}, Hosts: r.Policy.AllowedHosts, Upstream: r.Upstream}
	if Alive(root, id) {
		info.Status = "running"
	}
	for _, d := range r.Listeners {
		switch d.Kind {
		case spec.ListenProxy:
			info.Proxy = d.Listen.String()
		case spec.ListenForward:
			info.Ports[d.Listen.String()] = d.Target
		}
	}
	return info
}
