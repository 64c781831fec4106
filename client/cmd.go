package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Cmd is a program to be run, configured as one of os/exec: set its fields, then call Run, Output, CombinedOutput, or Start and Wait.
type Cmd struct {
	Args   []string
	Dir    string            // inside; empty: the policy's
	Env    map[string]string // beside what the policy passes on
	Stdin  io.Reader         // nil: empty
	Stdout io.Writer         // nil: discarded by Run
	Stderr io.Writer

	Put     map[string][]byte // files to be written first, relative to Dir
	Collect []string          // paths and patterns to be read in the end: Result.Files
	Fresh   []string          // directories that are empty for this program and gone after it
	View    string            // of the policy: what this program alone sees besides, or does not see
	Read    []string          // paths of the host that this program alone sees besides, read-only
	Bind    []string          // the same at other paths: SOURCE:TARGET
	Deny    []string          // paths of the host that are hidden from this program alone
	Answer  bool              // file descriptor 3, $SANDBOXRUN_RESULT: Result.Answer
	Timeout time.Duration     // 0: the policy's
	Memory  int64             // bytes; 0: the policy's
	Pids    int
	// KillOnOutput ends the program when it writes more than limits.output to one stream.
	KillOnOutput bool
	// Warm lets the program have a python3 that was started ahead: Result.Warm.
	Warm bool

	// Result is there once Wait has returned, unless the server has failed.
	Result *Result

	ctx     context.Context //nolint:containedctx // as in os/exec
	sb      *Sandbox
	id      int64
	call    *call
	typed   chan struct{} // closed when no more is read of Stdin
	stop    func() bool
	mu      sync.Mutex
	failed  error // of Stdout or Stderr
	pipe    *io.PipeWriter
	started bool
}

// Result is how a program ended.
type Result struct {
	Outcome  string  `json:"outcome"` // such as exited, signaled, timeout, cancelled
	Finding  *string `json:"finding"`
	ExitCode int     `json:"exit_code"`
	Signal   *string `json:"signal"`
	TimedOut bool    `json:"timed_out"`
	Warm     bool    `json:"warm"`     // it had an interpreter that was started ahead
	WarmWhy  string  `json:"warm_why"` // where Cmd.Warm was set and it had not

	Files   []File           `json:"-"` // that were collected
	Missing map[string]error `json:"-"` // why others were not, by path
	Dropped []Dropped        `json:"dropped"`
	Answer  []byte           `json:"-"`
	Raw     json.RawMessage  `json:"-"` // all of it: docs/result.md
}

// ExitError is a program that did not exit with 0.
type ExitError struct {
	*Result
	// Stderr is what it wrote there, where Output has kept it.
	Stderr []byte
}

// Error says how the program ended.
func (e *ExitError) Error() string {
	if e.Outcome == "exited" {
		return fmt.Sprintf("exit status %d", e.ExitCode)
	}
	return strings.ReplaceAll(e.Outcome, "_", " ")
}

// CommandContext is a program of the sandbox's. It is ended, with all that it has started, when ctx is.
func (sb *Sandbox) CommandContext(ctx context.Context, name string, arg ...string) *Cmd {
	return &Cmd{Args: append([]string{name}, arg...), ctx: ctx, sb: sb}
}

// Command is CommandContext that nothing ends but the sandbox.
func (sb *Sandbox) Command(name string, arg ...string) *Cmd {
	return sb.CommandContext(context.Background(), name, arg...)
}

// Run starts the program and waits for its end. An *ExitError is the program's fault, an *Error that of the sandbox.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output is Run, and gives standard output.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("client: Stdout is set already")
	}
	var out, errs bytes.Buffer
	c.Stdout = &out
	if c.Stderr == nil {
		c.Stderr = &errs
	}
	err := c.Run()
	if exit, ok := errors.AsType[*ExitError](err); ok {
		exit.Stderr = errs.Bytes()
	}
	return out.Bytes(), err
}

// CombinedOutput is Run, and gives standard output and error in the order in which they came.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("client: Stdout or Stderr is set already")
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// StdinPipe is a pipe to the program's standard input. It is closed by Wait.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil || c.started {
		return nil, errors.New("client: StdinPipe after Stdin or Start")
	}
	r, w := io.Pipe()
	c.Stdin, c.pipe = r, w
	return w, nil
}

// Start starts the program and does not wait for it.
func (c *Cmd) Start() error {
	if c.started {
		return errors.New("client: already started")
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	c.started = true
	var err error
	if c.id, c.call, err = c.sb.client.begin("exec", c.params(), c.output); err != nil {
		return err
	}
	c.stop = context.AfterFunc(c.ctx, c.Kill)
	c.typed = make(chan struct{})
	go c.typeIn()
	return nil
}

func (c *Cmd) params() map[string]any {
	params := map[string]any{"sandbox": c.sb.ID, "argv": c.Args, "stream": true, "stdin_open": c.Stdin != nil}
	set := func(name string, value any, given bool) {
		if given {
			params[name] = value
		}
	}
	set("cwd", c.Dir, c.Dir != "")
	set("env", c.Env, len(c.Env) > 0)
	set("put", contents(c.Put), len(c.Put) > 0)
	set("collect", c.Collect, len(c.Collect) > 0)
	set("fresh", c.Fresh, len(c.Fresh) > 0)
	set("view", c.View, c.View != "")
	set("read", c.Read, len(c.Read) > 0)
	set("bind", c.Bind, len(c.Bind) > 0)
	set("deny", c.Deny, len(c.Deny) > 0)
	set("answer", true, c.Answer)
	set("timeout", c.Timeout.Seconds(), c.Timeout > 0)
	set("memory", c.Memory, c.Memory > 0)
	set("pids", c.Pids, c.Pids > 0)
	set("warm", true, c.Warm)
	set("on_output_limit", "kill", c.KillOnOutput)
	return params
}

// output is called by the client's reader alone: a writer that blocks holds up all of its sandboxes.
func (c *Cmd) output(stream string, data []byte) {
	to := c.Stdout
	if stream == "stderr" {
		to = c.Stderr
	}
	if to == nil {
		return
	}
	if _, err := to.Write(data); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.failed == nil {
			c.failed = err
		}
	}
}

// typeIn passes input on until it ends, or the program does.
func (c *Cmd) typeIn() {
	defer close(c.typed)
	if c.Stdin == nil {
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Stdin.Read(buf)
		if n > 0 {
			if serr := c.send(map[string]any{"id": c.id, "base64": buf[:n]}); serr != nil {
				return // it does not read any more
			}
		}
		if err != nil {
			_ = c.send(map[string]any{"id": c.id, "eof": true}) // it may have ended
			return
		}
	}
}

func (c *Cmd) send(params map[string]any) error {
	return c.sb.client.ask(context.Background(), "exec/stdin", params, nil)
}

// Kill ends the program and all that it has started. Result still has all there is, with the outcome "cancelled".
func (c *Cmd) Kill() {
	_, _, _ = c.sb.client.begin("cancel", map[string]any{"id": c.id}, nil) // it may have ended
}

// Wait waits until the program and all that it has started have ended.
func (c *Cmd) Wait() error {
	if c.call == nil {
		return errors.New("client: not started")
	}
	a := <-c.call.answer
	c.stop()
	if c.pipe != nil {
		_ = c.pipe.Close()
		<-c.typed
	}
	if a.err != nil {
		return a.err
	}
	wrong, err := c.read(a.result)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case c.ctx.Err() != nil && c.Result.Outcome == "cancelled":
		return c.ctx.Err()
	case wrong != nil:
		return wrong
	case c.Result.Outcome != "exited" || c.Result.ExitCode != 0:
		return &ExitError{Result: c.Result}
	}
	return c.failed
}

// read reads the result. wrong is why there is none of the program's.
func (c *Cmd) read(raw json.RawMessage) (wrong, err error) {
	var r struct {
		Result
		Collected []collected `json:"collected"`
		Answer    *collected  `json:"answer"`
		Error     *Error      `json:"error"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	c.Result = &r.Result
	c.Result.Raw = raw
	c.Result.Files, c.Result.Missing = split(r.Collected)
	if r.Answer != nil {
		one, _ := split([]collected{*r.Answer})
		c.Result.Answer = one[0].Data
	}
	if r.Error != nil {
		return r.Error, nil
	}
	return nil, nil
}
