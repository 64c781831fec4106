// Package client runs programs in sandboxes of the installed sandboxrun command, in the shape of os/exec. It needs no cgo and nothing but
// the standard library: it talks to "sandboxrun serve --stdio", a process of its own that ends with this one, and every sandbox with it,
// or to a server that runs already (Options.Address).
//
//	c, err := client.Start(client.Options{})
//	sb, err := c.Create(ctx, client.Policy{Inline: map[string]any{"version": 1, "workspace": map[string]any{"source": "tmpfs", "path": "/w"}}})
//	cmd := sb.CommandContext(ctx, "python3", "main.py")
//	cmd.Put = map[string][]byte{"main.py": []byte("print(6 * 7)")}
//	out, err := cmd.Output()
//
// docs/serve.md says what each field means.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
)

// Options says which server is started, or which one that runs already is used.
type Options struct {
	// Address is where a server listens: the path of its socket, which has a slash, or the host:port to which that is forwarded inside
	// a sandbox. Then no server is started, and the other fields must be empty.
	Address string

	Path string   // of the command; empty: sandboxrun, looked for in PATH
	Root string   // its --root; empty: the usual state directory
	Env  []string // its environment, from which a policy's env.allow takes variables; nil: that of this process
}

// Error is what sandboxrun says was wrong.
type Error struct {
	Code    string // a stable word, such as policy_invalid
	Message string
	Hint    string // may be empty
}

// Error is the message.
func (e *Error) Error() string {
	if e.Code == "" {
		return e.Message
	}
	return e.Code + ": " + e.Message
}

// ErrClosed is the error of what was asked of a server that has ended.
var ErrClosed = errors.New("the sandboxrun server has ended")

// Client is a server, or a connection to one. It may be used by many goroutines.
type Client struct {
	cmd   *exec.Cmd // nil: somebody else has started it
	conn  net.Conn  // to that one
	write sync.Mutex
	in    io.WriteCloser

	mu    sync.Mutex
	last  int64
	calls map[int64]*call
	gone  bool
	ended chan struct{}
}

// call is a request that has no answer yet.
type call struct {
	answer chan answer
	output func(stream string, data []byte)
}

type answer struct {
	result json.RawMessage
	err    error
}

// Start starts a server, or connects to one.
func Start(o Options) (*Client, error) {
	if o.Address != "" {
		return connect(o)
	}
	path := o.Path
	if path == "" {
		path = "sandboxrun"
	}
	args := []string{"serve", "--stdio"}
	if o.Root != "" {
		args = append([]string{"--root", o.Root}, args...)
	}
	c := &Client{cmd: exec.Command(path, args...), calls: map[int64]*call{}, ended: make(chan struct{})}
	c.cmd.Env = o.Env
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start sandboxrun: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start sandboxrun: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start sandboxrun: %w", err)
	}
	c.in = in
	go c.read(out)
	return c, nil
}

func connect(o Options) (*Client, error) {
	if o.Path != "" || o.Root != "" || o.Env != nil {
		return nil, errors.New("client: Options has an Address, and what a new server is to have")
	}
	network := "tcp"
	if strings.Contains(o.Address, "/") {
		network = "unix"
	}
	conn, err := net.Dial(network, o.Address)
	if err != nil {
		return nil, &Error{Code: "no_server", Message: fmt.Sprintf("connect to %q: %v", o.Address, err), Hint: "start it: sandboxrun serve --socket PATH"}
	}
	c := &Client{conn: conn, in: halfCloser{conn}, calls: map[int64]*call{}, ended: make(chan struct{})}
	go c.read(conn)
	return c, nil
}

// halfCloser closes the way to the server alone: its end of the other way says that all sandboxes are gone.
type halfCloser struct{ net.Conn }

func (h halfCloser) Close() error {
	if half, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return h.Conn.Close()
}

// Close ends every sandbox of the client, and the server that it has started.
func (c *Client) Close() error {
	err := c.in.Close()
	<-c.ended
	if c.conn != nil {
		return errors.Join(err, c.conn.Close())
	}
	return errors.Join(err, c.cmd.Wait())
}

type incoming struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
		Data    *Error `json:"data"`
	} `json:"error"`
	Method string `json:"method"`
	Params struct {
		ID     int64  `json:"id"`
		Stream string `json:"stream"`
		Data   string `json:"data"`
		Base64 []byte `json:"base64"`
	} `json:"params"`
}

func (c *Client) read(out io.Reader) {
	defer close(c.ended)
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		var m incoming
		if err != nil || json.Unmarshal(line, &m) != nil {
			c.fail()
			return
		}
		if m.Method == "exec/output" {
			if call := c.call(m.Params.ID, false); call != nil && call.output != nil {
				call.output(m.Params.Stream, append([]byte(m.Params.Data), m.Params.Base64...))
			}
			continue
		}
		if call := c.call(m.ID, true); call != nil {
			call.answer <- m.answer()
		}
	}
}

func (m *incoming) answer() answer {
	switch {
	case m.Error == nil:
		return answer{result: m.Result}
	case m.Error.Data != nil:
		return answer{err: m.Error.Data}
	}
	return answer{err: &Error{Message: m.Error.Message}}
}

func (c *Client) call(id int64, done bool) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.calls[id]
	if done {
		delete(c.calls, id)
	}
	return found
}

func (c *Client) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for id, call := range c.calls {
		call.answer <- answer{err: ErrClosed}
		delete(c.calls, id)
	}
}

// begin sends a request.
func (c *Client) begin(method string, params any, output func(string, []byte)) (int64, *call, error) {
	one := &call{make(chan answer, 1), output}
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return 0, nil, ErrClosed
	}
	c.last++
	id := c.last
	c.calls[id] = one
	c.mu.Unlock()
	var line bytes.Buffer
	err := json.NewEncoder(&line).Encode(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err == nil {
		c.write.Lock()
		_, err = c.in.Write(line.Bytes())
		c.write.Unlock()
		if err != nil {
			err = ErrClosed
		}
	}
	if err != nil {
		c.call(id, true)
		return 0, nil, err
	}
	return id, one, nil
}

// ask sends a request and waits for its answer. What is asked goes on when ctx ends; an exec is ended apart.
func (c *Client) ask(ctx context.Context, method string, params, result any) error {
	_, one, err := c.begin(method, params, nil)
	if err != nil {
		return err
	}
	select {
	case a := <-one.answer:
		if a.err != nil || result == nil {
			return a.err
		}
		return json.Unmarshal(a.result, result)
	case <-ctx.Done():
		return ctx.Err()
	}
}
