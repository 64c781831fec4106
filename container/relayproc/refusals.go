package relayproc

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/container/journal"
)

// Refusals writes a line to a program's standard error for each host that the relay refuses while the program runs (network.explain).
// The relay does not know which exec a connection comes from, so every exec that runs gets the line. The relay writes an event before it
// answers, so the event of a connection that a program has seen fail can be read when the program has ended.
type Refusals struct {
	log     *journal.Log
	written map[string]bool // hosts
	newline string
	stop    chan struct{}
	looking sync.WaitGroup

	mu      sync.Mutex // of what follows: the program writes there too
	out     io.Writer
	midline bool // the program has not ended its last line
}

// maxRefusals is how many lines an exec gets.
const maxRefusals = 100

// FollowRefusals looks at the events that come from now on, in the sandbox's directory. It is nil where they cannot be read: that ends no exec.
func FollowRefusals(dir *os.File) *Refusals {
	f := &Refusals{written: map[string]bool{}, stop: make(chan struct{})}
	f.log = &journal.Log{Dir: int(dir.Fd()), Each: f.look}
	if f.log.Find() != nil {
		f.log.Close()
		return nil
	}
	f.log.Skip()
	return f
}

// Beside gives a writer for the program's output, to which lines can be added. newline is how they end; with "" there are none.
func (f *Refusals) Beside(to io.Writer, newline string) io.Writer {
	if f == nil || newline == "" {
		return to
	}
	f.out, f.newline = to, newline
	return f
}

// Write takes the program's output.
func (f *Refusals) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(p) > 0 {
		f.midline = p[len(p)-1] != '\n'
	}
	return f.out.Write(p)
}

// Start begins to look.
func (f *Refusals) Start() {
	if f == nil {
		return
	}
	f.looking.Go(func() {
		tick := time.NewTicker(journal.LookAgain)
		defer tick.Stop()
		for {
			select {
			case <-f.stop:
				return
			case <-tick.C:
				_ = f.log.Advance() // the next look, or none, finds more
			}
		}
	})
}

// Finish looks once more, after the program has ended.
func (f *Refusals) Finish() {
	if f == nil {
		return
	}
	close(f.stop)
	f.looking.Wait()
	_ = f.log.Advance() // an event that cannot be read is left out
	f.log.Close()
}

// Close is for a program that was not started.
func (f *Refusals) Close() {
	if f != nil {
		f.log.Close()
	}
}

// look is called for each event.
func (f *Refusals) look(e journal.Event) error {
	n := e.NetworkEvent
	if n == nil || n.Explain == "" || f.written[n.Host] || len(f.written) == maxRefusals || f.out == nil {
		return nil
	}
	f.written[n.Host] = true
	line := "sandboxrun: network: " + n.Explain + f.newline
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.midline {
		line = f.newline + line
	}
	f.midline = false
	_, _ = io.WriteString(f.out, line) // the program or its caller may have closed it
	return nil
}
