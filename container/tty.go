package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Size is a terminal's size in characters.
type Size struct{ Rows, Cols uint16 }

// endOfInput is what a terminal in its usual mode takes for the end of the input: Ctrl-D.
const endOfInput = 4

// connectTerminal gives the program a new terminal of the sandbox's own devpts. The caller's terminal is never inside.
func (r *Running) connectTerminal(s *streams, req Request, cmd *forkexec.Command) error {
	in, err := r.sb.inside()
	if err != nil {
		return err
	}
	defer unix.Close(in.root)
	master, err := in.open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NONBLOCK)
	if err != nil {
		return fail("no_terminal", "", "open a terminal in sandbox %q: %w", r.sb.state.ID, err)
	}
	s.ours = append(s.ours, master)
	slave, err := terminalPeer(master)
	if err != nil {
		return fail("no_terminal", "", "open a terminal in sandbox %q: %w", r.sb.state.ID, err)
	}
	s.theirs = append(s.theirs, slave)
	if cmd.UID != 0 {
		if err := slave.Chown(cmd.UID, cmd.GID); err != nil {
			return fmt.Errorf("give the terminal to the program: %w", err)
		}
	}
	r.terminal = master
	if err := r.Resize(*req.Tty); err != nil {
		return err
	}
	if err := r.settings(req.TtySettings); err != nil {
		return err
	}
	cmd.Stdio, cmd.Tty = [3]*os.File{slave, slave, slave}, true
	out := r.output(req.Stdout, r.stdout)
	// The master stays open until Wait, for Resize. Reading ends when no process has the other end open any more.
	s.add(true, func() { _, _ = io.Copy(out, master) })
	if req.Stdin != nil {
		s.add(false, func() {
			if err := r.typeIn(req.Stdin); err == nil {
				_, _ = master.Write([]byte{endOfInput})
			}
		})
	}
	return nil
}

// settings are what the program's terminal begins with: those of the caller's, which say what its keys do.
func (r *Running) settings(t *unix.Termios) error {
	if t == nil {
		return nil
	}
	if err := control(r.terminal, func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, t) }); err != nil {
		return fmt.Errorf("set terminal up: %w", err)
	}
	return nil
}

// typeIn passes on what the caller types. In the background the caller's terminal is not read.
func (r *Running) typeIn(from io.Reader) error {
	buf := make([]byte, 4096)
	for {
		n, err := r.readTerminal(from, buf)
		if werr := r.passKeys(buf[:n]); werr != nil {
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
func (r *Running) passKeys(typed []byte) error {
	suspend := r.suspend.Load()
	for i := 0; suspend != nil && i < len(typed); i++ {
		if !r.suspends(typed[i]) {
			continue
		}
		if _, err := r.terminal.Write(typed[:i+1]); err != nil {
			return err
		}
		(*suspend)()
		typed, i = typed[i+1:], -1
	}
	_, err := r.terminal.Write(typed)
	return err
}

func (r *Running) readTerminal(from io.Reader, buf []byte) (int, error) {
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

// terminalPeer opens the other end without a path that somebody could have put something else at.
func terminalPeer(master *os.File) (*os.File, error) {
	fd := -1
	err := control(master, func(m int) error {
		if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return errno
		}
		fd = int(n)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
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

// Resize tells the program's terminal its new size; the program hears of it by SIGWINCH.
func (r *Running) Resize(s Size) error {
	ws := unix.Winsize{Row: s.Rows, Col: s.Cols}
	err := control(r.terminal, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &ws) })
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// HasTerminal says whether the program was given a terminal.
func (r *Running) HasTerminal() bool { return r.terminal != nil }
