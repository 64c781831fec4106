package check

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/sabotage"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// Checker tries what package hooks says, once for one sandbox. Three points of view are compared: the launcher outside; a
// program inside; and that same process before it was confined.
type Checker struct {
	sb      *Sandbox
	subject hooks.Subject
	facts   hooks.Facts
	targets []target // that listen outside
	cmd     forkexec.Command
}

// Sandbox is what the checks take of a sandbox that has been built.
type Sandbox struct {
	PID  int      // of process 1
	Proc *os.File // its /proc/PID
	// Null opens the null device of its view.
	Null func() (*os.File, error)
	// Shows reads what of the host it shows.
	Shows func() (*procfs.Shown, error)
	// Command is how a program of it is started, under its limits, without arguments, variables and streams.
	Command forkexec.Command
	// Environ gives the variables of such a program, with these set too.
	Environ func(set map[string]string) []string
	// Start makes the calls in place of a program, and says what processor time that took.
	Start func(*forkexec.Command, *forkexec.Calls) (time.Duration, error)
}

// New looks at the host before anything of the sandbox is mounted. state is the directory that the sandboxes' state is in.
func New(subject hooks.Subject, view *rootfs.View, state string) *Checker {
	c := &Checker{subject: subject}
	c.subject.Paths = append(slices.Clip(c.subject.Paths), probePaths(view, state)...)
	c.facts.Paths = make([]hooks.PathSeen, len(c.subject.Paths))
	for i, p := range c.subject.Paths {
		if p.Host != "" {
			c.facts.Paths[i].Outside = look(p)
		}
	}
	c.facts.Namespaces = hostNamespaces(c.subject.Network)
	return c
}

// Run proves the sandbox's isolation. The error, a *fault.Error, says what is broken.
func (c *Checker) Run(sb *Sandbox) ([]hooks.Result, error) {
	c.sb = sb
	if err := c.look(); err != nil {
		return nil, err
	}
	results := hooks.Judge(&c.subject, &c.facts)
	if broken := sabotage.Verdict(hooks.BrokenOf(results)); len(broken) > 0 {
		said := make([]string, len(broken))
		for i, b := range broken {
			said[i] = b.Name + ": " + b.Detail
		}
		return results, fault.New(fault.IsolationCheckFailed, "nothing was run; sandboxrun doctor --checks says what is tried",
			"the sandbox is not as isolated as planned: %s", strings.Join(said, "; "))
	}
	return results, nil
}

func (c *Checker) look() error {
	null, err := c.sb.Null()
	if err != nil {
		return err
	}
	defer null.Close()
	messages, theirs, err := messages()
	if err != nil {
		return err
	}
	defer messages.Close()
	defer theirs.Close()
	if c.subject.Network {
		c.listen()
		defer c.closeTargets()
	}
	if err := c.addNames(); err != nil {
		return err
	}
	c.prepare()
	c.cmd.Stdio = [3]*os.File{null, theirs, null}
	var p probe
	defer p.release()
	p.plan(c)
	cpu, err := c.sb.Start(&c.cmd, &p.calls)
	if err != nil {
		return err
	}
	if !p.done() {
		return fault.New(fault.IsolationCheckFailed, "", "the checks of the sandbox were ended before they were done")
	}
	if err := p.nestedError(); err != nil {
		return err
	}
	p.read(c, cpu)
	p.receive(c, messages)
	c.lookOutside()
	return nil
}

// prepare makes the command of a program of this sandbox, and notes what of it can be read back.
func (c *Checker) prepare() {
	f := &c.facts
	c.cmd = c.sb.Command
	c.cmd.Dir = "/" // whether the program may enter its working directory is for it to find out
	f.Canary = "SANDBOXRUN_" + rand.Text()
	c.cmd.Env = c.sb.Environ(map[string]string{f.Canary: "1"})
	for _, r := range c.cmd.Rlimits {
		l := hooks.LimitRead{Name: forkexec.RlimitName(r.Resource), Want: r.Max}
		var own unix.Rlimit
		if unix.Getrlimit(r.Resource, &own) == nil {
			l.Host = own.Max
			l.Want = min(l.Want, own.Max)
		}
		l.Exact = r.Resource == unix.RLIMIT_CORE
		f.Limits = append(f.Limits, l)
	}
	if c.cmd.CPUs != nil {
		var own unix.CPUSet
		_ = unix.SchedGetaffinity(0, &own)
		f.Limits = append(f.Limits, hooks.LimitRead{Name: processorsLimit, Want: uint64(c.cmd.CPUs.Count()), Host: uint64(own.Count())})
	}
	for _, g := range c.cmd.Limits.Groups {
		f.Groups = append(f.Groups, groupRead(g))
	}
	sabotage.Command(&c.cmd)
	for _, kv := range c.cmd.Env {
		name, _, _ := strings.Cut(kv, "=")
		f.Env = append(f.Env, name)
	}
}

// processorsLimit is what the processors that a program can run on are called among the limits that are read back.
const processorsLimit = "processors"

// groupRead returns the evidence that an exec is in its group. Where the kernel makes its control group namespace
// in that group (version 2) its path is "/" inside.
func groupRead(g forkexec.Group) hooks.GroupRead {
	var names []string
	for _, c := range []struct {
		bit  int
		name string
	}{{forkexec.GroupMemory, "memory"}, {forkexec.GroupPids, "pids"}, {forkexec.GroupCPU, "cpu"}, {forkexec.GroupCPUAcct, "cpuacct"}} {
		if g.Controllers&c.bit != 0 {
			names = append(names, c.name)
		}
	}
	r := hooks.GroupRead{Controllers: strings.Join(names, ",")}
	if !g.Unified {
		r.Want = "/" + filepath.Base(g.Dir)
		if g.Controllers != forkexec.GroupCPU { // that of cpu alone is the sandbox's: groups.c
			r.Want += "/" + forkexec.CheckName
		}
	}
	return r
}
