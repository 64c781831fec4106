package stats

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
)

// Proc is a process of a program in a sandbox.
type Proc struct {
	PID     int    `json:"pid"`    // on the host
	Inside  int    `json:"inside"` // in its exec's own PID namespace; 2 is the program that was asked for
	PPID    int    `json:"ppid"`   // on the host
	State   string `json:"state"`  // a letter, as in ps
	Command string `json:"command"`
	Exec    string `json:"exec,omitempty"` // known of detached execs

	namespace uint64
}

// ErrEnded says that the sandbox has ended.
var ErrEnded = errors.New("the sandbox has ended")

// Processes lists what runs in a sandbox, less our own process 1 and reapers. names are the execs of PID namespaces, where they are known.
func Processes(init int, names map[uint64]string) ([]Proc, error) {
	var list []Proc
	err := EachProcess(init, func(pid int, exec uint64) {
		if p, ok := describe(pid); ok && p.Inside > 1 {
			p.Exec, p.namespace = names[exec], exec
			list = append(list, p)
		}
	})
	return list, err
}

// EachProcess calls for each process of the sandbox's execs, reapers included, with the number of its PID namespace:
// each exec has one. The sandbox is known by its process 1; that it has ended is ErrEnded.
func EachProcess(init int, call func(pid int, exec uint64)) error {
	ours, err := nsID(fmt.Sprintf("/proc/%d/ns/pid", init))
	if err != nil {
		return ErrEnded
	}
	pids, err := procfs.Pids()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	within := map[uint64]bool{}
	for _, pid := range pids {
		if !inNamespace(pid, ours, within) {
			continue
		}
		if id, err := nsID(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil {
			call(pid, id)
		}
	}
	return nil
}

func nsID(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Ino, err
}

// inNamespace reports whether a process is in a PID namespace nested in the one with that number; seen remembers answers.
func inNamespace(pid int, outer uint64, seen map[uint64]bool) bool {
	path := fmt.Sprintf("/proc/%d/ns/pid", pid)
	id, err := nsID(path)
	if err != nil {
		return false // another user's, or gone
	}
	known, ok := seen[id]
	if !ok {
		known = nestedIn(path, outer)
		seen[id] = known
	}
	return known
}

func nestedIn(path string, outer uint64) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	parent, err := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
	unix.Close(fd)
	if err != nil {
		return false // the parent is not ours to see: it is not the sandbox's
	}
	defer unix.Close(parent)
	var st unix.Stat_t
	return unix.Fstat(parent, &st) == nil && st.Ino == outer
}

func describe(pid int) (Proc, bool) {
	fields, err := procfs.Stat(pid)
	if err != nil {
		return Proc{}, false
	}
	p := Proc{PID: pid, State: fields[0], Command: strings.Join(owner.CommandLine(pid), " ")}
	p.PPID, _ = strconv.Atoi(fields[1])
	if p.Command == "" {
		p.Command = "[" + owner.Comm(pid) + "]"
	}
	p.Inside = insidePID(pid)
	return p, p.Inside > 0
}

// insidePID is a process' number in its own PID namespace, or 0 if it has ended.
func insidePID(pid int) int {
	status, _ := procfs.Status(strconv.Itoa(pid))
	numbers := strings.Fields(status["NSpid"])
	if len(numbers) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(numbers[len(numbers)-1])
	return n
}

// Signal sends a signal to the process, if the pid is still that of a process of the exec.
func (p *Proc) Signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil // it has ended
	}
	defer unix.Close(fd)
	now, err := nsID(fmt.Sprintf("/proc/%d/ns/pid", p.PID))
	if err != nil || now != p.namespace {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}
