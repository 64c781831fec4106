package container

import (
	"errors"
	"fmt"
	"io"
	"os"

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
	cmd.Terminal = &forkexec.Terminal{Rows: req.Tty.Rows, Cols: req.Tty.Cols}
	out := r.output(req.Stdout, r.stdout)
	// The master stays open until Wait, for Resize. Reading ends when no process has the other end open any more.
	s.add(true, func() { _, _ = io.Copy(out, r.terminal) })
	if req.Stdin != nil {
		s.add(false, func() {
			if _, err := io.Copy(r.terminal, req.Stdin); err == nil {
				_, _ = r.terminal.Write([]byte{endOfInput})
			}
		})
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
