package run

import (
	"os"
	"sync"
	"time"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/container"
)

// terminal is the caller's terminal while a program runs. If the program has its own terminal, the caller's is in raw mode and passes
// every key on, while the launcher is in the foreground. In the background the shell owns it.
type terminal struct {
	f    *os.File
	raw  bool // wanted
	mu   sync.Mutex
	was  console.Console // the settings before; nil: they are unchanged
	err  error           // of the first change
	done chan struct{}
	once sync.Once
}

// watchTerminal is how often a launcher in the background checks whether it is in the foreground.
const watchTerminal = 200 * time.Millisecond

// useTerminal prepares the caller's terminal for a program. end restores it.
func (p *Commands) useTerminal(req *container.Request) *terminal {
	t := &terminal{f: p.In, done: make(chan struct{})}
	t.raw = req.Tty != nil && req.Stdin != nil && caller.IsTerminal(p.In)
	t.enter()
	return t
}

// terminalSettings are the settings of the caller's terminal, or nil without one.
func (p *Commands) terminalSettings() *unix.Termios {
	settings, err := unix.IoctlGetTermios(int(p.In.Fd()), unix.TCGETS)
	if err != nil {
		return nil
	}
	return settings
}

// enter sets raw mode, now or when the launcher is in the foreground.
func (t *terminal) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.raw && !t.enterNow() {
		go t.await()
	}
}

func (t *terminal) await() {
	tick := time.NewTicker(watchTerminal)
	defer tick.Stop()
	for {
		select {
		case <-t.done:
			return
		case <-tick.C:
		}
		t.mu.Lock()
		entered := t.was != nil || t.enterNow()
		t.mu.Unlock()
		if entered {
			return
		}
	}
}

func (t *terminal) enterNow() bool {
	if !t.foreground() {
		return false
	}
	c, err := console.ConsoleFromFile(t.f)
	if err == nil {
		err = c.SetRaw()
	}
	if err == nil {
		err = t.passOutput()
	}
	if err != nil {
		t.err = err
		return true
	}
	t.was = c
	return true
}

// passOutput has the terminal show output as it is, because the program's own terminal has processed it. SetRaw leaves that on, and each
// line feed would return the carriage too: curses moves the cursor down with a line feed alone.
func (t *terminal) passOutput() error {
	settings, err := unix.IoctlGetTermios(int(t.f.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	settings.Oflag &^= unix.OPOST
	return unix.IoctlSetTermios(int(t.f.Fd()), unix.TCSETS, settings)
}

// foreground reports whether the launcher may use the terminal: it is in the foreground, or this is not its controlling terminal.
func (t *terminal) foreground() bool {
	group, err := unix.IoctlGetInt(int(t.f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

func (t *terminal) leave() {
	if t.was != nil && t.foreground() {
		_ = t.was.Reset()
	}
	t.was = nil
}

// end restores the terminal.
func (t *terminal) end() {
	t.once.Do(func() { close(t.done) })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
}

// suspend handles Ctrl-Z: it stops every process of the exec, restores the terminal and stops the launcher. When the launcher
// continues, it continues all of them. If group is set, it stops its process group, because the terminal did not do that.
func (t *terminal) suspend(r *container.Running, group bool) {
	t.mu.Lock()
	stopped := r.Suspend()
	t.leave()
	t.mu.Unlock()
	container.StopSelf(group)
	t.enter()
	t.resize(r)
	stopped.Continue()
}

// resize sets the size of the program's terminal to that of the caller's.
func (t *terminal) resize(r *container.Running) {
	if size := caller.TerminalSize(t.f); r.HasTerminal() && size != nil {
		_ = r.Resize(*size)
	}
}
