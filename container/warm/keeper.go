package warm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Max is how many interpreters of one name can be kept ready, and MaxNames of how many names.
const (
	Max      = 16
	MaxNames = 4

	retryAfter  = time.Second           // a start that has failed
	refillAfter = 10 * time.Millisecond // of a hand-over: the program is to have the processors first
)

// Keeper keeps the interpreters of one sandbox.
type Keeper struct {
	// Command makes the command of an exec that has these arguments, as of any other in the sandbox. Its streams are left out.
	Command func(args []string) (*forkexec.Command, error)
	Start   func(*forkexec.Command) (*forkexec.Process, error)
	Root    func() (lookup.Root, error)    // of the sandbox; its descriptor is the keeper's to close
	Mounts  func() ([]hostfs.Mount, error) // of the sandbox

	mu     sync.Mutex
	kinds  map[string]*kind
	closed bool
	begun  sync.WaitGroup // starts and ends that are under way
}

// kind is what is kept of one name.
type kind struct {
	want, starting int
	ready          []*interpreterProcess
	change         chan struct{} // closed when one is ready, or one start has failed
	failed         error
	failedAt       time.Time
}

type interpreterProcess struct {
	process *forkexec.Process
	command *forkexec.Command
	channel channel
	seen    seen
}

// Check reports whether so many interpreters can be kept ready.
func Check(ready map[string]int) error {
	if len(ready) > MaxNames {
		return fmt.Errorf("interpreters of at most %d names can be kept ready", MaxNames)
	}
	for _, name := range slices.Sorted(maps.Keys(ready)) {
		switch n := ready[name]; {
		case !Interpreter(name):
			return fmt.Errorf("%q cannot be kept ready: only python3 can", name)
		case n < 1 || n > Max:
			return fmt.Errorf("%d of %q cannot be kept ready: from 1 to %d", n, name, Max)
		}
	}
	return nil
}

// Keep says how many interpreters of a name are kept ready from now on. It must be one that Check accepts.
func (k *Keeper) Keep(name string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = map[string]*kind{}
	}
	if k.kinds[name] == nil {
		k.kinds[name] = &kind{change: make(chan struct{})}
	}
	k.kinds[name].want = n
	k.fill(name)
}

// fill starts what is missing. The caller has locked.
func (k *Keeper) fill(name string) {
	of := k.kinds[name]
	if k.closed || time.Since(of.failedAt) < retryAfter {
		return
	}
	for of.starting+len(of.ready) < of.want {
		of.starting++
		k.begun.Go(func() {
			w, err := k.start(name)
			k.mu.Lock()
			defer k.mu.Unlock()
			of.starting--
			of.failed = err
			switch {
			case err != nil:
				of.failedAt = time.Now()
			case k.closed:
				k.begun.Go(w.end)
			default:
				of.ready = append(of.ready, w)
			}
			close(of.change)
			of.change = make(chan struct{})
		})
	}
}

// start starts an interpreter and returns when it waits.
func (k *Keeper) start(name string) (*interpreterProcess, error) {
	begun := time.Now()
	cmd, err := k.Command([]string{name, "-S", "-c", stubPy})
	if err != nil {
		return nil, err
	}
	cmd.Env = startVariables(cmd.Env)
	if why := unstartable(cmd.Args, stubPy, cmd.Env); why != "" {
		return nil, errors.New(why)
	}
	if err := k.visit(func(in lookup.Root, there []hostfs.Mount) error { // a program that others have written does not even start
		_, err := look(in, there, cmd.Path, nil, begun)
		return err
	}); err != nil {
		return nil, err
	}
	w := &interpreterProcess{command: cmd}
	if err := w.launch(k.Start); err != nil {
		return nil, err
	}
	paths, err := w.channel.hear("ready", readyWithin)
	if err == nil {
		err = k.visit(func(in lookup.Root, there []hostfs.Mount) (err error) {
			w.seen, err = look(in, there, cmd.Path, paths, begun)
			return err
		})
	}
	if err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

// visit looks at the files of the sandbox.
func (k *Keeper) visit(look func(in lookup.Root, there []hostfs.Mount) error) error {
	in, err := k.Root()
	if err != nil {
		return err
	}
	defer unix.Close(in.FD)
	there, err := k.Mounts()
	if err != nil {
		return err
	}
	return look(in, there)
}

// launch starts the process. Its streams are ends of a pipe that nobody uses.
func (w *interpreterProcess) launch(start func(*forkexec.Command) (*forkexec.Process, error)) error {
	ours, theirs, err := newChannel()
	if err != nil {
		return err
	}
	defer theirs.Close()
	in, out, err := os.Pipe()
	if err != nil {
		ours.close()
		return err
	}
	defer in.Close()
	defer out.Close()
	cmd := *w.command
	cmd.Stdio, cmd.Guard, cmd.KeepView, cmd.Limits.Waits, cmd.Limits.Wall = [3]*os.File{in, out, out}, theirs, true, true, readyWithin
	cmd.Limits.Idle, cmd.Limits.Started = 0, time.Time{}
	if w.process, err = start(&cmd); err != nil {
		ours.close()
		return err
	}
	w.channel = ours
	return nil
}

// end ends one that has got no program.
func (w *interpreterProcess) end() {
	w.channel.close()
	w.process.View.Close()
	_ = w.process.Kill()
	_, _ = w.process.Wait()
	w.process.Listener.Close()
}

// Take gives a command to an interpreter that waits, if there is one for it, and has it begin; else it says why not, and nothing of the command has
// been run. What a command has is given as to forkexec.Start.
func (k *Keeper) Take(cmd *forkexec.Command) (p *forkexec.Process, why string) {
	if cmd.Guard != nil {
		return nil, guarded
	}
	if why := program(cmd.Args); why != "" {
		return nil, why
	}
	name := cmd.Args[0]
	k.mu.Lock()
	if k.kinds[name] == nil {
		known := len(k.kinds)
		k.mu.Unlock()
		if !Interpreter(name) || known >= MaxNames {
			return nil, fmt.Sprintf("only python3 can be kept ready, by at most %d names", MaxNames)
		}
		k.Keep(name, 1)
		return nil, "none of this name has been started before"
	}
	w, why := k.next(name)
	if w == nil {
		k.mu.Unlock()
		return nil, why
	}
	if why := unfit(cmd, w.command); why != "" && why != moved {
		of := k.kinds[name]
		of.ready = append(of.ready, w) // it is for others
		k.mu.Unlock()
		return nil, why
	}
	k.mu.Unlock()
	time.AfterFunc(refillAfter, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.fill(name)
	})
	if err := k.hand(w, cmd); err != nil {
		k.begun.Go(w.end)
		return nil, err.Error()
	}
	if !cmd.KeepView {
		w.process.View.Close()
		w.process.View = nil
	}
	return w.process, ""
}

// next takes the oldest that is ready, or waits for one that is being started. The caller has locked.
func (k *Keeper) next(name string) (*interpreterProcess, string) {
	of := k.kinds[name]
	for len(of.ready) == 0 {
		k.fill(name)
		if of.starting == 0 || k.closed {
			if of.failed != nil {
				return nil, of.failed.Error()
			}
			return nil, "none is ready"
		}
		change := of.change
		k.mu.Unlock()
		<-change // a start ends in readyWithin
		k.mu.Lock()
	}
	w := of.ready[0]
	of.ready = of.ready[1:]
	return w, ""
}

// hand hands over. Until the last step the interpreter can be ended without the program having begun.
func (k *Keeper) hand(w *interpreterProcess, cmd *forkexec.Command) error {
	if why := unfit(cmd, w.command); why != "" {
		return errors.New(why)
	}
	in, err := k.Root()
	if err != nil {
		return err
	}
	defer unix.Close(in.FD)
	if err := w.channel.ask(cmd); err != nil {
		return fmt.Errorf("ask it: %w", err)
	}
	if !w.seen.same(in) {
		return errors.New("a file of the interpreter's has been changed since it was started")
	}
	if _, err := w.channel.hear("mine", mineWithin); err != nil {
		return err
	}
	if err := w.process.Begin(&cmd.Limits); err != nil {
		return err
	}
	w.channel.begin()
	w.channel.close()
	return nil
}

// Close ends all that wait.
func (k *Keeper) Close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	k.closed = true
	for _, of := range k.kinds {
		for _, w := range of.ready {
			k.begun.Go(w.end)
		}
		of.ready = nil
	}
	k.mu.Unlock()
	k.begun.Wait()
}
