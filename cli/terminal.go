package cli

import (
	"os"
	"sync"
	"time"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
)

// terminal is the caller's, while a program runs. Where that has a terminal of its own the caller's passes every key on, in
// raw mode, as long as we are in the foreground: in the background it is the shell's.
type terminal struct {
	f    *os.File
	raw  bool // wanted
	mu   sync.Mutex
	was  console.Console // nil: it is as it was
	err  error           // of the first time
	done chan struct{}
	once sync.Once
}

// watchTerminal is how often we look, in the background, whether we have come to the foreground.
const watchTerminal = 200 * time.Millisecond

// useTerminal prepares the caller's terminal for a program. End puts it back.
func (p *program) useTerminal(req *container.Request) *terminal {
	t := &terminal{f: p.in, done: make(chan struct{})}
	t.raw = req.Tty != nil && req.Stdin != nil && isTerminal(p.in)
	t.enter()
	return t
}

// terminalSettings are what the caller's terminal does with its keys, or nil where there is none.
func (p *program) terminalSettings() *unix.Termios {
	settings, err := unix.IoctlGetTermios(int(p.in.Fd()), unix.TCGETS)
	if err != nil {
		return nil
	}
	return settings
}

// enter begins raw mode, now or once we are in the foreground.
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
	if err != nil {
		t.err = err
		return true
	}
	t.was = c
	return true
}

// foreground says whether the terminal is ours to use. What is no controlling terminal of ours always is.
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

// end puts the terminal back.
func (t *terminal) end() {
	t.once.Do(func() { close(t.done) })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
}

// suspend is Ctrl-Z: it stops the program with all that it has started, puts the terminal back and stops us, and goes on with
// all of it once somebody continues us. Where group is set the terminal has told nobody but us.
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

// resize gives the program's terminal the size of ours.
func (t *terminal) resize(r *container.Running) {
	if size := terminalSize(t.f); r.HasTerminal() && size != nil {
		_ = r.Resize(*size)
	}
}
