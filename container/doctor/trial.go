package doctor

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// trial is a sandbox of the default policy, and what was seen in it.
type trial struct {
	err          error // why no program ran under the whole policy
	made         bool
	took         time.Duration
	broken       []string // protections that the program did not find
	weaker       []spec.Weakness
	ports        error // of a socket at a port below 1024
	interpreters []interpreter
}

// enforced is whether the default policy holds in full.
func (t *trial) enforced() bool {
	return t.err == nil && t.made && len(t.broken) == 0 && len(t.weaker) == 0
}

// diagnosis is what run would say. Only where it has nothing to say is anything tried anew.
func (t *trial) diagnosis() diagnose.Diagnosis {
	if d := diagnose.Of(t.err); d != nil {
		return *d
	}
	step, errno := forkexec.Probe()
	return diagnose.Step(step, errno, diagnose.Surroundings())
}

// trialTime is how long each program of the examination may take.
const trialTime = 5 * time.Second

// examineSandbox makes a sandbox as run does, runs programs in it, and removes it with all that it had.
func examineSandbox(ctx context.Context, e Examination) (stateFacts, trial) {
	dir, state := openState(e.State)
	if dir != "" {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	t := trial{interpreters: findInterpreters(e.Path), err: state.err}
	if t.err == nil {
		t.err = ctx.Err()
	}
	if t.err == nil {
		t.err = t.inStore(ctx, dir)
	}
	return state, t
}

func (t *trial) inStore(ctx context.Context, dir string) (err error) {
	begun := time.Now()
	plan, err := defaultPlan()
	if err != nil {
		return err
	}
	t.weaker = plan.Weaker
	store, err := container.OpenStore(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	sb, err := store.Create("doctor", plan, container.Options{Owner: &owner.Owner{PID: os.Getpid()}})
	if err != nil {
		return err
	}
	t.made = true
	defer func() {
		if derr := sb.Delete(nil); err == nil {
			err = derr
		}
	}()
	if err := t.runOne(ctx, sb); err != nil {
		return err
	}
	t.took = time.Since(begun)
	t.ports = listenBelow(sb)
	for i := range t.interpreters {
		t.interpreters[i].ask(ctx, sb)
	}
	return ctx.Err()
}

// defaultPlan is what the preset default becomes here.
func defaultPlan() (*spec.Plan, error) {
	text, ok := policy.Preset("default")
	if !ok {
		return nil, errors.New("there is no preset default")
	}
	p, err := policy.Load(policy.Input{Name: "preset default", Data: text, Dir: "/"})
	if err != nil {
		return nil, err
	}
	host, err := machine.Probe(p.Limits)
	if err != nil {
		return nil, err
	}
	return spec.Resolve(p, host)
}

// runOne has a program say which of its walls it finds around itself.
func (t *trial) runOne(ctx context.Context, sb *container.Sandbox) error {
	res, err := runIn(ctx, sb, "cat", "/proc/self/status")
	if err != nil {
		return err
	}
	if res.Outcome != result.Exited || res.ExitCode != 0 {
		return fault.New(fault.SandboxUnavailable, "", "a program in a sandbox: %s, exit status %d: %s", res.Outcome, res.ExitCode, printable(res.Stderr))
	}
	t.broken = brokenWalls(procfs.StatusFields(res.Stdout))
	if len(t.broken) > 0 {
		return fault.New(fault.IsolationCheckFailed, "", "a program in a sandbox found itself with %s", strings.Join(t.broken, ", "))
	}
	return nil
}

// brokenWalls reads what a program in a sandbox finds in its /proc/self/status.
func brokenWalls(status map[string]string) []string {
	var broken []string
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if value := status[name]; value == "" || strings.Trim(value, "0") != "" {
			broken = append(broken, name+" "+printable(value))
		}
	}
	for name, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2"} {
		if status[name] != want {
			broken = append(broken, name+" "+printable(status[name]))
		}
	}
	return broken
}

// runIn runs a program that is ended with ctx.
func runIn(ctx context.Context, sb *container.Sandbox, args ...string) (*result.Result, error) {
	running, err := sb.Start(container.Request{Args: args, Timeout: trialTime})
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = running.Signal(unix.SIGKILL) })()
	return running.Wait()
}

// listenBelow listens where outside only root may, in the sandbox's own network. Nobody else is there.
func listenBelow(sb *container.Sandbox) error {
	files, err := sb.Listen(netip.MustParseAddrPort("127.0.0.1:80"))
	for _, f := range files {
		f.Close()
	}
	return err
}

// interpreter is one that programs may be written for.
type interpreter struct {
	name    string
	path    string // outside; empty: there is none
	packed  string // the package that brings it
	args    []string
	version string // as it says in the sandbox
	err     error  // why it does not run there
	instead string // what the program finds there by the same name, where it is another
	asked   bool
}

// interpreterKinds are those that are looked for. Those with a package are missed where they are not there.
func interpreterKinds() []interpreter {
	version := []string{"--version"}
	return []interpreter{
		{name: "bash", packed: "bash", args: version},
		{name: "python3", packed: "python3", args: version},
		{name: "node", packed: "nodejs", args: version},
		{name: "perl", args: []string{"-e", "print $^V"}},
		{name: "ruby", args: version},
		{name: "php", args: version},
		{name: "lua", args: []string{"-v"}},
		{name: "Rscript", args: version},
		{name: "julia", args: version},
		{name: "java", args: version},
		{name: "deno", args: version},
		{name: "bun", args: version},
	}
}

// findInterpreters looks along PATH. What is found is run in the sandbox alone.
func findInterpreters(pathVar string) []interpreter {
	var list []interpreter
	for _, i := range interpreterKinds() {
		for dir := range strings.SplitSeq(pathVar, ":") {
			file := filepath.Join(dir, i.name)
			if info, err := os.Stat(file); err == nil && filepath.IsAbs(file) && info.Mode().IsRegular() && unix.Access(file, unix.X_OK) == nil {
				i.path = file
				break
			}
		}
		if i.path != "" || i.packed != "" {
			list = append(list, i)
		}
	}
	return list
}

// ask has an interpreter say its version.
func (i *interpreter) ask(ctx context.Context, sb *container.Sandbox) {
	if i.path == "" || ctx.Err() != nil {
		return
	}
	i.asked = true
	if i.version, i.err = versionIn(ctx, sb, i.path, i.args); i.err != nil {
		i.instead, _ = versionIn(ctx, sb, i.name, i.args)
	}
}

func versionIn(ctx context.Context, sb *container.Sandbox, program string, args []string) (string, error) {
	res, err := runIn(ctx, sb, append([]string{program}, args...)...)
	if err != nil {
		return "", err
	}
	if res.Outcome != result.Exited || res.ExitCode != 0 {
		return "", fault.New(fault.Failed, "", "it ends there with status %d (%s): %s", res.ExitCode, res.Outcome, printable(res.Stderr))
	}
	if text := printable(res.Stdout); text != "" {
		return text, nil
	}
	return printable(res.Stderr), nil
}

// errorHint is what an error says can be done.
func errorHint(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Hint
	}
	return ""
}
