package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Size is a terminal's size in characters.
type Size struct{ Rows, Cols uint16 }

// endOfInput is what a terminal in its usual mode takes for the end of the input: Ctrl-D.
const endOfInput = 4

// connectTerminal gives the program a new terminal in a devpts of the exec's own: neither the caller nor another exec can
// open it. It is made when the exec starts.
func (s *Streams) connectTerminal(cmd *forkexec.Command) {
	cmd.Terminal = &forkexec.Terminal{Rows: s.Tty.Rows, Cols: s.Tty.Cols, Settings: s.TtySettings}
	out := s.guard(s.Beside(s.output(s.Stdout, s.stdout), "\r\n"))
	// The master stays open until Finish, for Resize. Reading ends when no process has the other end open any more.
	s.add(true, func() { _, _ = io.Copy(out, s.terminal) })
	if s.Stdin != nil {
		s.add(false, func() {
			if err := s.typeIn(s.Stdin); err == nil {
				_, _ = s.terminal.Write([]byte{endOfInput})
			}
		})
	}
}

// typeIn passes on what the caller types. In the background the caller's terminal is not read.
func (s *Streams) typeIn(from io.Reader) error {
	buf := make([]byte, 4096)
	for {
		n, err := s.readTerminal(from, buf)
		if werr := s.passKeys(buf[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// passKeys passes keys on, and suspends the exec where one of them says so. The program hears of that one too, if it wants to;
// what was typed after it is typed ahead.
func (s *Streams) passKeys(typed []byte) error {
	suspend := s.suspend.Load()
	for i := 0; suspend != nil && i < len(typed); i++ {
		if !s.suspends(typed[i]) {
			continue
		}
		if _, err := s.terminal.Write(typed[:i+1]); err != nil {
			return err
		}
		(*suspend)()
		typed, i = typed[i+1:], -1
	}
	_, err := s.terminal.Write(typed)
	return err
}

func (s *Streams) readTerminal(from io.Reader, buf []byte) (int, error) {
	f, ok := from.(*os.File)
	if !ok {
		return from.Read(buf)
	}
	for {
		background := false
		err := control(f, func(fd int) error {
			background = !inForeground(fd)
			return nil
		})
		if err != nil {
			return 0, err
		}
		if background {
			time.Sleep(whileBackground)
			continue
		}
		n, err := f.Read(buf)
		switch {
		case errors.Is(err, unix.EAGAIN): // somebody else has made it so
			_ = control(f, func(fd int) error { pollFile(fd, unix.POLLIN); return nil })
			continue
		case errors.Is(err, unix.EIO):
			_ = control(f, func(fd int) error { background = !inForeground(fd); return nil })
			if background {
				continue
			}
		}
		return n, err
	}
}

// control uses a file's descriptor. Unlike File.Fd it does not make the file block.
func control(f *os.File, use func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = conn.Control(func(fd uintptr) { inner = use(int(fd)) })
	return errors.Join(err, inner)
}

// Resize sets the size of the program's terminal; the program gets SIGWINCH.
func (s *Streams) Resize(to Size) error {
	ws := unix.Winsize{Row: to.Rows, Col: to.Cols}
	err := control(s.terminal, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &ws) })
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// HasTerminal reports whether the program was given a terminal.
func (s *Streams) HasTerminal() bool { return s.terminal != nil }

// OnSuspend has f called when the user types Ctrl-Z at a program that has a terminal of its own.
func (s *Streams) OnSuspend(f func()) { s.suspend.Store(&f) }

// suspends reports whether a key that the user typed would stop the program if it were in the caller's session. The kernel
// does not stop it: nobody in its own session could continue it. A shell inside, which has jobs of its own and ignores the
// signal, gets the key, and so does a program that reads every key itself.
func (s *Streams) suspends(key byte) bool {
	suspends := false
	_ = control(s.terminal, func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil || t.Lflag&unix.ISIG == 0 || t.Cc[unix.VSUSP] == 0 || t.Cc[unix.VSUSP] != key {
			return err
		}
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		pid := s.process.PID()
		suspends = err == nil && pid > 0 && group == pid && !ignores(pid, unix.SIGTSTP)
		return err
	})
	return suspends
}

// ignores reports whether a process ignores a signal.
func ignores(pid int, sig unix.Signal) bool {
	status, _ := procfs.Status(strconv.Itoa(pid))
	mask, err := strconv.ParseUint(status["SigIgn"], 16, 64)
	return err == nil && mask&(1<<(sig-1)) != 0
}
