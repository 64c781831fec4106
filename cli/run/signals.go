package run

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
)

// signals are caught from the start, so that a signal that arrives while the sandbox is built reaches the program too.
type signals struct {
	ch   chan os.Signal
	done chan struct{}
	once sync.Once
}

// catchSignals does not catch signals that the caller ignores, so a program under nohup stays under nohup. It ignores SIGTTIN: the
// launcher does not read input in the background (container/stream/input.go), but if it has just gone there a read must not stop it.
func (p *Commands) catchSignals() *signals {
	s := &signals{ch: make(chan os.Signal, 16), done: make(chan struct{})}
	for _, sig := range []os.Signal{
		unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGCONT, unix.SIGWINCH,
		unix.SIGTSTP,
	} {
		if !signal.Ignored(sig) {
			signal.Notify(s.ch, sig)
		}
	}
	signal.Ignore(unix.SIGTTIN)
	return s
}

func (s *signals) stop() {
	s.once.Do(func() {
		signal.Stop(s.ch)
		close(s.done)
	})
}

// cancel ends a start that blocks at the first signal that would end the command, until the returned function is called. The signals
// are still forwarded, because a start that does not block does not end.
func (s *signals) cancel(c *container.Cancel) (started func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		var held []os.Signal
		for {
			select {
			case sig := <-s.ch:
				held = append(held, sig)
				switch sig {
				case unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT:
					c.By(sig.(unix.Signal))
				}
			case <-quit:
				for _, sig := range held[:min(len(held), cap(s.ch)/2)] {
					s.ch <- sig
				}
				return
			}
		}
	}()
	return func() { close(quit); <-gone }
}

// forward passes signals on to the program until stop.
func (s *signals) forward(r *container.Running, t *terminal) {
	r.OnSuspend(func() { t.suspend(r, true) })
	go func() {
		for {
			select {
			case <-s.done:
				return
			case sig := <-s.ch:
				switch {
				case sig == unix.SIGTSTP:
					t.suspend(r, false)
				case sig != unix.SIGWINCH:
					_ = r.Signal(sig.(unix.Signal)) // the program may have ended
				default:
					t.resize(r)
				}
			}
		}
	}()
}
