package serve

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rpc"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// execParams are what exec says on the command line.
type execParams struct {
	Sandbox string              `json:"sandbox"`
	Argv    []string            `json:"argv"`
	Cwd     string              `json:"cwd"`
	Env     map[string]string   `json:"env"`
	Timeout wait                `json:"timeout"` // seconds, or text as in a policy
	Memory  byteSize            `json:"memory"`
	Pids    int64               `json:"pids"`
	Put     map[string]putValue `json:"put"`
	Fresh   []string            `json:"fresh"`
	Collect []collectValue      `json:"collect"`
	Answer  bool                `json:"answer"`
	View    string              `json:"view"`
	Read    []string            `json:"read"`
	Bind    []string            `json:"bind"`
	Deny    []string            `json:"deny"`
	OnLimit string              `json:"on_output_limit"`

	Translate bool `json:"translate"`
	Warm      bool `json:"warm"` // it may get an interpreter that was started ahead

	Stdin       *string `json:"stdin"`        // all of it
	StdinBase64 *string `json:"stdin_base64"` // the same, of any bytes
	StdinOpen   bool    `json:"stdin_open"`   // it comes by exec/stdin
	Stream      bool    `json:"stream"`       // output goes out by exec/output, and is not kept
	Tty         *struct {
		Rows uint16 `json:"rows"`
		Cols uint16 `json:"cols"`
	} `json:"tty"`
}

// servedExec is an exec from when its request was read until it is answered.
type servedExec struct {
	q       execParams
	wrong   error
	cancel  container.Cancel
	stdin   *io.PipeReader
	typed   *io.PipeWriter
	lastIn  chan struct{} // closed when all input before has been taken
	sandbox string

	mu      sync.Mutex
	running *container.Running
	ending  bool
	known   chan struct{} // closed when it runs, or will not
}

// input is one exec/stdin. Those of an exec are taken in the order in which they came.
type input struct {
	q struct {
		ID     json.RawMessage `json:"id"`
		Data   string          `json:"data"`
		Base64 string          `json:"base64"`
		EOF    bool            `json:"eof"`
	}
	wrong        error
	exec         *servedExec
	before, mine chan struct{}
}

// Begin notes an exec, and the order of its input.
func (n *session) Begin(r *rpc.Request) any {
	switch r.Method {
	case "exec":
		x := &servedExec{known: make(chan struct{}), lastIn: make(chan struct{})}
		close(x.lastIn)
		x.q, x.wrong = params[execParams](r)
		x.sandbox = x.q.Sandbox
		x.stdin, x.typed = io.Pipe()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.execs[r.ID] = x
		return x
	case "exec/stdin":
		i := &input{}
		i.wrong = strictJSON(r.Params, &i.q)
		if i.exec = n.byID(i.q.ID); i.exec != nil {
			i.before, i.mine = i.exec.lastIn, make(chan struct{})
			i.exec.lastIn = i.mine
		}
		return i
	}
	return nil
}

func (n *session) byID(id json.RawMessage) *servedExec {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.execs[string(id)]
}

func noSuchExec(id json.RawMessage) error {
	return &rpc.Error{Code: rpc.CodeFailed, Message: fmt.Sprintf("no exec with the id %.128s runs", id), Data: result.Error{Code: fault.NotFound}}
}

// end ends all that the exec has started, also where it is only about to start.
func (x *servedExec) end() {
	x.cancel.By(unix.SIGKILL)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ending = true
	if x.running != nil {
		_ = x.running.Cancel() // it may have ended
	}
}

func (x *servedExec) runs(r *container.Running) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running = r
	if r != nil && x.ending {
		_ = r.Cancel()
	}
	close(x.known)
}

func (n *session) exec(ctx context.Context, r *rpc.Request) (any, error) {
	x := r.State.(*servedExec)
	defer func() {
		_ = x.stdin.Close() // who still writes to it has an error
		n.mu.Lock()
		delete(n.execs, r.ID)
		n.mu.Unlock()
	}()
	if x.wrong != nil {
		return nil, x.wrong
	}
	return n.inSandbox(x.q.Sandbox, func(b *served) (any, error) {
		req, err := n.execRequest(b, x, r)
		if err != nil {
			return nil, err
		}
		defer context.AfterFunc(ctx, x.end)()
		running, err := b.sb.Start(req)
		x.runs(running)
		if err == nil {
			var res *result.Result
			if res, err = running.Wait(); err == nil {
				return res, nil
			}
		}
		return result.FromError(err, caller.Describe(err)), nil
	})
}

func (n *session) execRequest(b *served, x *servedExec, r *rpc.Request) (container.Request, error) {
	q := &x.q
	req := container.Request{
		Args: q.Argv, Dir: q.Cwd, Caller: n.Env, Env: q.Env, Timeout: time.Duration(q.Timeout), Memory: int64(q.Memory), Pids: q.Pids,
		Cancel: &x.cancel, Translate: q.Translate, Warm: q.Warm, Carried: container.Carried{Fresh: q.Fresh, Answer: q.Answer, KillOnOutput: q.OnLimit == "kill"},
	}
	if n.ceiling != nil { // the program would learn of links of the host
		req.Follow = path.Clean
	}
	switch {
	case len(q.Argv) == 0:
		return req, badParams("exec: argv is missing")
	case q.OnLimit != "" && q.OnLimit != "kill" && q.OnLimit != "truncate":
		return req, badParams("exec: on_output_limit is truncate or kill")
	case q.Pids < 0:
		return req, badParams("exec: pids is less than 1")
	}
	if q.Memory > 0 {
		if err := policy.CheckMemory(int64(q.Memory)); err != nil {
			return req, badParams("exec: memory: %v", err)
		}
	}
	if err := x.connect(&req, r); err != nil {
		return req, err
	}
	var err error
	if req.View, err = flagsOf(map[string][]string{"read": q.Read, "bind": q.Bind, "deny": q.Deny}).View(n.Caller, q.View); err != nil {
		return req, err
	}
	if req.Put, err = n.puts(b, q.Put); err != nil {
		return req, err
	}
	req.CollectMax = maxAnswer
	req.Collect, err = n.collects(q.Collect)
	return req, err
}

// connect makes the streams.
func (x *servedExec) connect(req *container.Request, r *rpc.Request) error {
	q, given := &x.q, 0
	if q.Stdin != nil {
		req.Stdin, given = bytes.NewReader([]byte(*q.Stdin)), given+1
	}
	if q.StdinBase64 != nil {
		data, err := base64.StdEncoding.DecodeString(*q.StdinBase64)
		if err != nil {
			return badParams("exec: stdin_base64: %v", err)
		}
		req.Stdin, given = bytes.NewReader(data), given+1
	}
	if q.StdinOpen {
		req.Stdin, given = x.stdin, given+1
	}
	if given > 1 {
		return badParams("exec: one of stdin, stdin_base64 and stdin_open")
	}
	if q.Tty != nil {
		req.Tty = &stream.Size{Rows: q.Tty.Rows, Cols: q.Tty.Cols}
	}
	if q.Stream {
		req.Stdout, req.Stderr = &notifier{r, "stdout"}, &notifier{r, "stderr"}
	}
	return nil
}

// notifier sends a stream to the client. A client that does not read holds up the program.
type notifier struct {
	r      *rpc.Request
	stream string
}

type outputNote struct {
	ID     json.RawMessage `json:"id"`
	Stream string          `json:"stream"`
	Data   *string         `json:"data,omitempty"`
	Base64 string          `json:"base64,omitempty"` // where it is no text
}

func (o *notifier) Write(p []byte) (int, error) {
	note := outputNote{ID: json.RawMessage(o.r.ID), Stream: o.stream}
	if utf8.Valid(p) {
		text := string(p)
		note.Data = &text
	} else {
		note.Base64 = base64.StdEncoding.EncodeToString(p)
	}
	if err := o.r.Conn.Notify("exec/output", note); err != nil {
		return 0, unix.EPIPE
	}
	return len(p), nil
}

// stdin passes input on, and returns when the program's pipe has taken it.
func (n *session) stdin(ctx context.Context, r *rpc.Request) (any, error) {
	i := r.State.(*input)
	switch {
	case i.wrong != nil:
		if i.mine != nil {
			defer close(i.mine)
		}
		return nil, badParams("parameters of exec/stdin: %v", i.wrong)
	case i.exec == nil:
		return nil, noSuchExec(i.q.ID)
	}
	defer close(i.mine)
	select {
	case <-i.before:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	data := []byte(i.q.Data)
	if i.q.Base64 != "" {
		var err error
		if data, err = base64.StdEncoding.DecodeString(i.q.Base64); err != nil {
			return nil, badParams("exec/stdin: base64: %v", err)
		}
	}
	if !i.exec.q.StdinOpen {
		return nil, badParams("exec/stdin: the exec was not started with stdin_open")
	}
	if len(data) > 0 {
		if _, err := i.exec.typed.Write(data); err != nil {
			return nil, noSuchExec(i.q.ID)
		}
	}
	if i.q.EOF {
		_ = i.exec.typed.Close() // never fails
	}
	return nil, nil
}

// named reads the parameters of a request about an exec, of which execID gives the id, and finds that exec.
func named[T interface{ execID() json.RawMessage }](n *session, r *rpc.Request) (q T, x *servedExec, err error) {
	if q, err = params[T](r); err != nil {
		return q, nil, err
	}
	if x = n.byID(q.execID()); x == nil {
		return q, nil, noSuchExec(q.execID())
	}
	return q, x, nil
}

// cancelParams name an exec by the id of its request.
type cancelParams struct {
	ID json.RawMessage `json:"id"`
}

func (q cancelParams) execID() json.RawMessage { return q.ID }

type resizeParams struct {
	cancelParams
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

func (n *session) resize(ctx context.Context, r *rpc.Request) (any, error) {
	q, x, err := named[resizeParams](n, r)
	if err != nil {
		return nil, err
	}
	select {
	case <-x.known:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.running == nil || x.q.Tty == nil {
		return nil, badParams("exec/resize: the exec has no terminal")
	}
	return nil, x.running.Resize(stream.Size{Rows: q.Rows, Cols: q.Cols})
}

// cancel kills an exec. The request that started it is then answered with its result.
func (n *session) cancel(_ context.Context, r *rpc.Request) (any, error) {
	_, x, err := named[cancelParams](n, r)
	if err == nil {
		x.end()
	}
	return nil, err
}
