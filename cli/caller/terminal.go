package caller

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/stream"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// TerminalSize is the size of the terminal, or a default.
func TerminalSize(f *os.File) *stream.Size {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Row == 0 || ws.Col == 0 {
		return &stream.Size{Rows: 24, Cols: 80}
	}
	return &stream.Size{Rows: ws.Row, Cols: ws.Col}
}

// Colours reports whether a file is a terminal with colours, and the caller wants them.
func (c *Caller) Colours(f *os.File) bool {
	return c.Env["NO_COLOR"] == "" && c.Env["TERM"] != "dumb" && IsTerminal(f)
}

// Colour gives what begins and what ends a colour in standard output: "" where there are no colours.
func (c *Caller) Colour(sequence string) (on, off string) { return c.colour(c.Out.File, sequence) }

func (c *Caller) colour(f *os.File, sequence string) (on, off string) {
	if !c.Colours(f) || sequence == "" {
		return "", ""
	}
	return sequence, "\x1b[0m"
}
