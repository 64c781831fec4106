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

// connectTerminal gives the program a new terminal in a devpts of the exec's own: neither the caller nor another exec can
// open it. It is made when the exec starts.
func (r *Running) connectTerminal(s *streams, req Request, cmd *forkexec.Command) {
	cmd.Terminal = &forkexec.Terminal{Rows: req.Tty.Rows, Cols: req.Tty.Cols, Settings: req.TtySettings}
	out := r.guard(req, r.refusals.beside(r.output(req.Stdout, r.stdout), "\r\n"))
	// The master stays open until Wait, for Resize. Reading ends when no process has the other end open any more.
	s.add(true, func() { _, _ = io.Copy(out, r.terminal) })
	if req.Stdin != nil {
		s.add(false, func() {
			if err := r.typeIn(req.Stdin); err == nil {
				_, _ = r.terminal.Write([]byte{endOfInput})
			}
		})
	}
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
