package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandboxrun/sandboxrun/container/detached"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/selfexec"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// A detached exec is looked after by a process of its own, the monitor: this binary started again, in a session of its
// own, which holds nothing of the command that started it. It does what the command would have done, and keeps the
// output and the result.

// MonitorCommand is the argument that makes this binary a monitor. A sandbox's id follows, for a user who lists
// processes; all else comes through standard input, since it holds variables, which nobody else may see.
const MonitorCommand = "monitor"

// order is what a monitor is to do. What may be any bytes is not text to JSON.
type order struct {
	Root      []byte
	ID        string
	Args      [][]byte
	Dir       []byte
	Caller    [][]byte // NAME=VALUE
	Env       [][]byte
	OutputDir []byte
	Request   Request           // the rest
	Limits    []forkexec.Rlimit // of the command's caller
}

func (s *Store) order(id string, req Request) *order {
	return &order{
		Root: []byte(s.path), ID: id, Args: bytesOf(req.Args), Dir: []byte(req.Dir), Caller: assignments(req.Caller),
		Env: assignments(req.Env), OutputDir: []byte(req.OutputDir), Request: req, Limits: forkexec.CallerLimits(),
	}
}

func (o *order) request() Request {
	req := o.Request
	for _, a := range o.Args {
		req.Args = append(req.Args, string(a))
	}
	req.Dir, req.OutputDir, req.Caller, req.Env = string(o.Dir), string(o.OutputDir), assigned(o.Caller), assigned(o.Env)
	return req
}

// reply is what a monitor answers: the exec's name, or why the program was not started.
type reply struct {
	Exec     string        `json:"exec,omitempty"`
	Isolated bool          `json:"isolated,omitempty"` // of an exec that was not started
	Error    *result.Error `json:"error,omitempty"`
}

// Detach starts a program as Start does, and returns its exec's name when the program has been executed. The exec goes
// on when the caller has ended, and ends with its monitor or its sandbox. The request must have no standard input,
// writers or terminal, and the calling program must be one that answers to MonitorCommand by Monitor.
func (s *Store) Detach(id string, req Request) (string, error) {
	data, err := json.Marshal(s.order(id, req))
	if err != nil {
		return "", fmt.Errorf("start monitor: %w", err)
	}
	cmd, in, answer, err := selfexec.Start(MonitorCommand, id)
	if err != nil {
		return "", fmt.Errorf("start monitor: %w", err)
	}
	defer answer.Close()
	_, _ = in.Write(data) // that it has ended is seen below
	in.Close()
	var r reply
	if err := json.NewDecoder(answer).Decode(&r); err != nil {
		_ = cmd.Wait()
		ended := fmt.Errorf("its monitor has ended: %s", cmd.ProcessState)
		doing := fmt.Sprintf("start program in sandbox %q", id)
		if e := diagnose.NoProcesses(doing, ended); e != nil {
			return "", e
		}
		return "", fail(fault.SandboxUnavailable, "", "%s: %w", doing, ended)
	}
	if r.Error != nil {
		_ = cmd.Wait()
		e := &Error{Code: r.Error.Code, Hint: r.Error.Hint, Err: errors.New(r.Error.Message), Exec: r.Exec, Isolated: r.Isolated}
		if r.Exec != "" {
			e.Sandbox = id
		}
		return "", e
	}
	return r.Exec, cmd.Process.Release()
}

func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func assignments(env map[string]string) [][]byte {
	out := make([][]byte, 0, len(env))
	for k, v := range env {
		out = append(out, []byte(k+"="+v))
	}
	return out
}

func assigned(list [][]byte) map[string]string {
	env := make(map[string]string, len(list))
	for _, kv := range list {
		k, v, _ := strings.Cut(string(kv), "=")
		env[k] = v
	}
	return env
}

// Monitor carries an order out: it starts the program, answers, and looks after the exec to its end. If nobody hears the
// answer there is no exec.
func Monitor(in io.ReadCloser, answer io.WriteCloser, started func(*Running)) {
	m, err := startOrdered(in)
	in.Close()
	r := reply{}
	if err == nil {
		r.Exec = m.running.Name
		started(m.running)
	} else {
		r.Error = &result.Error{Code: fault.Failed, Message: err.Error()}
		if e, ok := errors.AsType[*Error](err); ok {
			r.Error.Code, r.Error.Hint = e.Code, e.Hint
			r.Exec, r.Isolated = e.Exec, e.Isolated
		}
		if hint := diagnose.Scarce(err); hint != "" {
			r.Error.Code, r.Error.Hint = fault.LimitReached, hint
		}
	}
	heard := json.NewEncoder(answer).Encode(r)
	answer.Close()
	if err != nil {
		return
	}
	if heard != nil {
		_ = m.running.process.Kill()
	}
	m.finish(heard == nil)
}

func startOrdered(in io.Reader) (*monitored, error) {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return nil, fmt.Errorf("read order: %w", err)
	}
	forkexec.SetCallerLimits(o.Limits)
	store, err := OpenStore(string(o.Root))
	if err != nil {
		return nil, err
	}
	sb, err := store.Open(o.ID)
	if err != nil {
		return nil, err
	}
	return sb.startMonitored(o.request())
}

// monitored is a detached exec as its monitor has it.
type monitored struct {
	sb      *Sandbox
	running *Running
	dir     *detached.Dir
}

// startMonitored starts a program, with a directory for its exec.
func (sb *Sandbox) startMonitored(req Request) (_ *monitored, err error) {
	m := &monitored{sb: sb}
	if m.dir, err = detached.NewDir(sb.dir); err != nil {
		if procfs.PidfdWait(sb.init, 0) {
			return nil, sb.lost()
		}
		return nil, fail(fault.StateUnusable, fault.DiskHint, "start program in sandbox %q: %w", sb.state.ID, err)
	}
	req.files = append(req.files, m.dir.Logs)
	req.detached = true
	if m.running, err = sb.Start(req); err != nil {
		m.dir.Discard()
		return nil, err
	}
	if err := m.dir.Publish(m.running.Name, m.running.process.PIDNamespace); err != nil {
		_ = m.running.process.Kill()
		m.finish(false)
		return nil, fmt.Errorf("start program in sandbox %q: %w", sb.state.ID, err)
	}
	return m, nil
}

// finish waits for the exec's end and keeps its result. With the sandbox goes the directory too: then nothing is made in it.
func (m *monitored) finish(keep bool) {
	res, err := m.running.Wait()
	m.sb.leaving.Wait() // this process ends soon
	switch {
	case !keep:
		m.dir.Discard()
	case err != nil || res.Outcome == result.SandboxLost && !procfs.PidfdAlive(m.sb.init):
	default:
		_ = m.dir.Save(res) // a lost result shows as a lost exec
	}
	m.dir.Close()
}
