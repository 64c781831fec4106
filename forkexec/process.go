package forkexec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a running exec.
type Process struct {
	Name string // of the exec, "e000001"
	// Terminal is the outer end of the program's terminal, if it was to have one. The caller closes it.
	Terminal *os.File
	// View is what the program sees, if it was to be kept. The caller closes it.
	View *View

	// Listener is where the filter asks, if it does. The caller closes it.
	Listener *os.File

	limits    *limits
	cancelled unix.Signal // by which the start was ended
	status    *os.File    // the reaper's report comes here
	reaper    *os.File    // pidfd
	program   *os.File    // pidfd

	mu       sync.Mutex // signals may be sent while Wait ends
	released bool
	leaving  *Leaving // who follows it to its end; nil: Wait
	left     sync.Once
	gone     chan struct{} // closed when nothing of it is left
}

// Status is how an exec ended and what it used.
type Status struct {
	// Lost is true where the supervisor was killed before it could report how the program ended: by us, when it took too
	// long, from outside, or with its sandbox. Then Wait, Tasks and Left are not known.
	Lost    bool
	Wait    unix.WaitStatus
	CPU     time.Duration // user and system time of the program and of every descendant that was waited for
	MaxRSS  int64         // bytes, of the largest process
	Written int64         // bytes written to block devices, as getrusage counts them
	Faults  int64         // pages touched first, by all processes, without a read of a disk
	Tasks   int           // processes and threads started
	Left    int           // processes that were still there when the program ended

	Why         Why   // why we ended it, if we did
	Wrote       int64 // bytes to disks, when Limits.Check was last asked
	MemoryPeak  int64 // bytes of all its processes together at one time; 0 where nothing has looked
	TasksPeak   int   // processes and threads seen at one time; 0 where nothing has looked
	OutOfMemory bool  // the kernel ended a process because its control group had no memory left
	OutOfPids   bool  // the kernel refused a process because its control group had too many
}

const statusSize = 56 // struct fx_status

// Wait waits until the program has ended and every process of the exec is gone, and releases the Process. The supervisor may still be leaving
// (Command.Leaving), where it has been the last one and has said all that it had to say.
func (p *Process) Wait() (_ Status, err error) {
	leaves := false
	defer func() {
		if leaves {
			p.leaving.follows(p)
		} else {
			p.abandon()
		}
	}()
	buf := make([]byte, statusSize)
	// The pipe's only writer is the reaper: it writes once, or ends without having written.
	_, err = io.ReadFull(p.status, buf)
	lost := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !lost {
		return Status{}, fmt.Errorf("wait for exec: %w", err)
	}
	var st Status
	if !lost {
		st = decode(buf)
	}
	leaves = p.leaving != nil && !lost && st.Left == 0
	if !leaves { // as process 1 of its PID namespace it ends only after all the others have
		used, err := waitPidfd(p.reaper)
		if err != nil {
			return Status{}, err
		}
		if lost {
			st = Status{
				Lost: true, CPU: time.Duration(used.Utime.Nano() + used.Stime.Nano()), MaxRSS: used.Maxrss * 1024, Written: used.Oublock * 512,
				Faults: used.Minflt,
			}
		}
	}
	if p.cancelled != 0 { // the program had not been executed yet
		st.Lost, st.Wait = false, unix.WaitStatus(p.cancelled)
	}
	p.settleLimits(&st)
	if p.cancelled == unix.SIGKILL {
		st.Why = ByCancel
	}
	return st, nil
}

// decode reads struct fx_status.
func decode(buf []byte) Status {
	field := func(i int) int64 { return int64(binary.NativeEndian.Uint64(buf[8*i:])) }
	return Status{
		Wait:    unix.WaitStatus(binary.NativeEndian.Uint32(buf)),
		Tasks:   int(binary.NativeEndian.Uint32(buf[4:])),
		CPU:     time.Duration(field(1)+field(2)) * time.Microsecond,
		MaxRSS:  field(3) * 1024,
		Written: field(4) * 512,
		Left:    int(field(5)),
		Faults:  field(6),
	}
}

// PIDNamespace is the number of the exec's own PID namespace. It fails where the exec has ended.
func (p *Process) PIDNamespace() (uint64, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", p.reaper.Fd()))
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(string(info), "\nPid:")
	text, _, _ = strings.Cut(text, "\n")
	// Our child has its number until we have waited for it.
	var st unix.Stat_t
	err = unix.Stat("/proc/"+strings.TrimSpace(text)+"/ns/pid", &st)
	return st.Ino, err
}

// Signal sends a signal to the program. It is not an error that the program has ended.
func (p *Process) Signal(sig unix.Signal) error {
	return p.send(sig, 0)
}

// pidfdSignalProcessGroup is PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9.
const pidfdSignalProcessGroup = 1 << 2

// SignalGroup sends a signal to the program's process group, as a terminal does with Ctrl-C. Before Linux 6.9 it reaches
// the program alone.
func (p *Process) SignalGroup(sig unix.Signal) error {
	err := p.send(sig, pidfdSignalProcessGroup)
	if errors.Is(err, unix.EINVAL) {
		return p.send(sig, 0)
	}
	return err
}

func (p *Process) send(sig unix.Signal, flags int) error {
	if err := p.sendTo(p.program, sig, flags); err != nil {
		return fmt.Errorf("signal program: %w", err)
	}
	return nil
}

func (p *Process) sendTo(pidfd *os.File, sig unix.Signal, flags int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released || pidfd == nil {
		return nil
	}
	err := unix.PidfdSendSignal(int(pidfd.Fd()), sig, nil, flags)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Kill ends every process of the exec at once, by SIGKILL. The supervisor does it (stub.c), so Wait still returns what they
// have used.
func (p *Process) Kill() error {
	if err := p.end(ByRequest); err != nil {
		return fmt.Errorf("kill exec: %w", err)
	}
	return nil
}

// Cancel is Kill for a caller that does not want the exec any more. Status.Why says so.
func (p *Process) Cancel() error {
	if err := p.end(ByCancel); err != nil {
		return fmt.Errorf("cancel exec: %w", err)
	}
	return nil
}

// abandon reaps the reaper, if there is one, and closes everything.
func (p *Process) abandon() { p.left.Do(p.leave) }

func (p *Process) leave() {
	defer close(p.gone)
	_ = p.sendTo(p.reaper, unix.SIGKILL, 0)
	_, _ = waitPidfd(p.reaper)
	p.closeLimits()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	for _, f := range []*os.File{p.status, p.reaper, p.program} {
		if f != nil {
			f.Close()
		}
	}
}

// waitPidfd reaps a child, if there is one, and gives what it and those that it has waited for have used. That somebody
// else has reaped it, as a caller that waits for any child may, is no error.
func waitPidfd(f *os.File) (used unix.Rusage, err error) {
	for f != nil {
		err := unix.Waitid(unix.P_PIDFD, int(f.Fd()), nil, unix.WEXITED|unix.WALL, &used)
		switch {
		case err == nil || errors.Is(err, unix.ECHILD):
			return used, nil
		case !errors.Is(err, unix.EINTR):
			return used, fmt.Errorf("wait for supervisor: %w", err)
		}
	}
	return used, nil
}
