// Package rpc speaks JSON-RPC 2.0, one object a line, with clients that nobody trusts to be well-behaved. Each has a
// connection of its own; requests of one run at the same time. What is read, waits or runs is bounded for each connection, so one that floods,
// stops reading or sends garbage harms itself alone.
package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Bounds of one connection.
const (
	MaxLine    = 16 << 20 // bytes of a request; one that is longer ends the connection
	maxPending = 32 << 20 // bytes of requests that have no answer yet: until then nothing more is read
	maxRunning = 64       // requests that run at the same time; others wait
	maxWaiting = 1024     // requests without an answer, of which those beyond are refused
)

// Codes of JSON-RPC, and of ours.
const (
	CodeParse    = -32700
	CodeRequest  = -32600
	CodeMethod   = -32601
	CodeParams   = -32602
	CodeBusy     = -32001
	CodeFailed   = -32000
	CodeCanceled = -32002
)

// Error is an error as a client sees it.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Handler answers the requests of one connection.
type Handler interface {
	// Call answers a request. It may be called for many at the same time. An *Error goes to the client as it is.
	Call(ctx context.Context, r *Request) (any, error)
	// Begin is called for each request in the order in which they have come, before Call. What it gives is Request.State. It must not
	// block.
	Begin(r *Request) any
	// Urgent reports whether requests of a method are answered beside all others, since others wait for them.
	Urgent(method string) bool
}

// Request is one call.
type Request struct {
	ID     string // as it was written
	Method string
	Params json.RawMessage
	Conn   *Conn
	State  any // see Handler.Begin

	size int
}

// Conn is a connection.
type Conn struct {
	handler Handler
	lines   chan line
	done    <-chan struct{}

	mu      sync.Mutex
	room    sync.Cond
	pending int // bytes
	waiting int // requests
	ids     map[string]bool
	closed  bool
	slots   chan struct{}
	calls   sync.WaitGroup
}

// line is something to be written. Who wants it written waits for that, or for the end of the connection.
type line struct {
	data    []byte
	written chan error
}

type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
}

type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

type notification struct {
	Version string `json:"jsonrpc"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

// Serve answers a client until its end of the connection is closed, it breaks the protocol, cannot be written to, or ctx ends. Then the
// context of its requests ends, and Serve returns when all have returned. A read or a write may go on until the caller closes in and out.
func Serve(ctx context.Context, in io.Reader, out io.Writer, handler Handler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &Conn{
		handler: handler, lines: make(chan line), done: ctx.Done(), ids: map[string]bool{}, slots: make(chan struct{}, maxRunning),
	}
	c.room.L = &c.mu
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.room.Broadcast()
	})
	defer stop()
	ended := make(chan error, 1)
	go c.read(ctx, bufio.NewReaderSize(in, 64<<10), ended)
	go c.write(out, cancel)
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cancel(err)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.calls.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// read reads requests. Who has read one leaves reading to another goroutine and answers it itself: to wake somebody else for that would
// take as long as a tenth of a short request.
func (c *Conn) read(ctx context.Context, in *bufio.Reader, ended chan<- error) {
	for {
		var r *Request
		line, err := readLine(in)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if err == nil && len(bytes.TrimSpace(line)) > 0 {
			r, err = c.take(ctx, line)
		}
		if err != nil {
			ended <- err
			return
		}
		if r != nil {
			go c.read(ctx, in, ended)
			c.run(ctx, r)
			c.leave(r)
			return
		}
	}
}

var errTooLong = fmt.Errorf("a request is longer than %d bytes", MaxLine)

// readLine gives a line of its own memory. What comes before the end without a newline is no line: its sender may have been killed.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			return nil, errTooLong
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// take takes a request in, or refuses it: then there is none to answer. An error ends the connection: after a line that is no JSON nothing that follows can be trusted.
func (c *Conn) take(ctx context.Context, line []byte) (*Request, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		code := CodeParse
		if json.Valid(line) {
			code = CodeRequest
		}
		_ = c.respond(response{ID: json.RawMessage("null"), Error: &Error{Code: code, Message: "no request of JSON-RPC: " + err.Error()}})
		return nil, fmt.Errorf("read request: %w", err)
	}
	if wrong := m.check(); wrong != "" {
		return nil, c.respond(response{ID: orNull(m.ID), Error: &Error{Code: CodeRequest, Message: wrong}})
	}
	r := &Request{ID: string(m.ID), Method: m.Method, Params: m.Params, Conn: c, size: len(line)}
	if refused := c.admit(ctx, r); refused != nil {
		return nil, c.respond(response{ID: m.ID, Error: refused})
	}
	r.State = c.handler.Begin(r)
	return r, nil
}

// run answers a request when others have left room for it. An answer takes its room until it was written, so a client that does not read
// has no more of them made.
func (c *Conn) run(ctx context.Context, r *Request) {
	a := response{ID: json.RawMessage(r.ID), Error: &Error{Code: CodeCanceled, Message: "the connection has ended"}}
	urgent := c.handler.Urgent(r.Method)
	if !urgent {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-ctx.Done():
		}
	}
	if urgent || ctx.Err() == nil {
		a = c.answer(ctx, r)
	}
	c.mu.Lock()
	delete(c.ids, r.ID) // who has the answer may use the id again
	c.mu.Unlock()
	_ = c.respond(a) // a client that has gone hears nothing
}

func (m *message) check() string {
	var id any
	if m.ID != nil && json.Unmarshal(m.ID, &id) != nil {
		return "the id is no JSON"
	}
	switch id.(type) {
	case string, float64:
	default:
		return "a request needs an id, which is a string or a number"
	}
	switch {
	case len(m.ID) > 128:
		return "the id is longer than 128 bytes"
	case m.Version != "2.0":
		return `"jsonrpc" is not "2.0"`
	case m.Method == "":
		return "the method is missing"
	}
	return ""
}

func orNull(id json.RawMessage) json.RawMessage {
	if id == nil || len(id) > 128 || id[0] == '{' || id[0] == '[' {
		return json.RawMessage("null")
	}
	return id
}

// admit makes room for a request, and waits for it: what a client sends meanwhile stays in its socket.
func (c *Conn) admit(ctx context.Context, r *Request) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pending > 0 && c.pending+r.size > maxPending && ctx.Err() == nil {
		c.room.Wait()
	}
	switch {
	case c.closed:
		return &Error{Code: CodeCanceled, Message: "the connection has ended"}
	case c.ids[r.ID]:
		return &Error{Code: CodeRequest, Message: "another request with this id has no answer yet"}
	case c.waiting >= maxWaiting:
		return &Error{Code: CodeBusy, Message: fmt.Sprintf("%d requests have no answer yet", maxWaiting)}
	}
	c.ids[r.ID] = true
	c.waiting++
	c.pending += r.size
	c.calls.Add(1)
	return nil
}

func (c *Conn) leave(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	c.pending -= r.size
	c.room.Broadcast()
	c.calls.Done()
}

func (c *Conn) answer(ctx context.Context, r *Request) response {
	result, err := c.handler.Call(ctx, r)
	if err == nil {
		if result == nil {
			result = struct{}{}
		}
		return response{ID: json.RawMessage(r.ID), Result: result}
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeFailed, Message: err.Error()}
	}
	return response{ID: json.RawMessage(r.ID), Error: e}
}

func (c *Conn) respond(r response) error {
	r.Version = "2.0"
	return c.send(r)
}

// Notify sends the client a notification. It returns when that was written, so who produces faster than the client reads has to wait.
func (c *Conn) Notify(method string, params any) error {
	return c.send(notification{"2.0", method, params})
}

func (c *Conn) send(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	l := line{b.Bytes(), make(chan error, 1)}
	select {
	case c.lines <- l:
	case <-c.done:
		return errEnded
	}
	select {
	case err := <-l.written:
		return err
	case <-c.done:
		return errEnded
	}
}

var errEnded = errors.New("the connection has ended")

// write is apart from those who want something written: a client that does not read keeps nobody from ending.
func (c *Conn) write(out io.Writer, failed context.CancelCauseFunc) {
	for {
		select {
		case l := <-c.lines:
			_, err := out.Write(l.data)
			l.written <- err
			if err != nil {
				failed(err)
				return
			}
		case <-c.done:
			return
		}
	}
}
