package rpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// toy answers "echo", "block" until the connection ends, "now" urgently, and "fail".
type toy struct{ running, most atomic.Int64 }

func (*toy) Urgent(method string) bool { return method == "now" }

func (*toy) Begin(r *Request) any { return r.ID }

func (h *toy) Call(ctx context.Context, r *Request) (any, error) {
	switch r.Method {
	case "echo", "now":
		return r.Params, nil
	case "nothing":
		return nil, nil
	case "fail":
		return nil, errors.New("it failed")
	case "block":
		if n := h.running.Add(1); n > h.most.Load() {
			h.most.Store(n)
		}
		<-ctx.Done()
		h.running.Add(-1)
		return nil, ctx.Err()
	case "flood":
		for i := 0; ; i++ {
			if err := r.Conn.Notify("n", strings.Repeat("x", 1<<10)); err != nil {
				return nil, err
			}
			h.running.Store(int64(i))
		}
	}
	return nil, &Error{Code: CodeMethod, Message: "no such method"}
}

type client struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	done chan error
}

func connect(t *testing.T, h Handler) *client {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &client{t, ours, bufio.NewReaderSize(ours, 1<<20), make(chan error, 1)}
	go func() {
		err := Serve(t.Context(), theirs, theirs, h)
		_ = theirs.Close()
		c.done <- err
	}()
	t.Cleanup(func() { _ = ours.Close() })
	_ = ours.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func (c *client) say(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.conn, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear() string {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func TestAnswers(t *testing.T) {
	c := connect(t, &toy{})
	for _, x := range [][2]string{
		{`{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"<&>"}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":"<&>"}}`},
		{`{"jsonrpc":"2.0","id":"x","method":"nothing"}`, `{"jsonrpc":"2.0","id":"x","result":{}}`},
		{`{"jsonrpc":"2.0","id":2,"method":"fail"}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"it failed"}}`},
		{`{"jsonrpc":"2.0","id":3,"method":"none"}`, `{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"no such method"}}`},
		{`{"jsonrpc":"1.0","id":4,"method":"echo"}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32600,"message":"\"jsonrpc\" is not \"2.0\""}}`},
		{`{"jsonrpc":"2.0","id":5}`, `{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"the method is missing"}}`},
		{`{"jsonrpc":"2.0","id":{},"method":"echo"}`, `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":null,"method":"echo"}`, `"id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","method":"echo"}`, `"id":null,"error":{"code":-32600`},
		{"\n" + `{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 200) + `","method":"echo"}`, `"id":null,"error":{"code":-32600`},
	} {
		c.say("%s", x[0])
		if got := c.hear(); !strings.Contains(got, x[1]) {
			t.Errorf("%s\n%s\nwant %s", x[0], got, x[1])
		}
	}
	_ = c.conn.Close()
	if err := <-c.done; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestGarbageEndsTheConnection(t *testing.T) {
	for in, code := range map[string]int{"garbage": CodeParse, `{"jsonrpc":`: CodeParse, "[]": CodeRequest, "1": CodeRequest, `{"id":1,"method":3}`: CodeRequest, "\xff": CodeParse} {
		c := connect(t, &toy{})
		c.say("%s", in)
		var r struct{ Error Error }
		if err := json.Unmarshal([]byte(c.hear()), &r); err != nil || r.Error.Code != code {
			t.Errorf("%q: %+v, %v", in, r, err)
		}
		if err := <-c.done; err == nil {
			t.Errorf("%q: the connection goes on", in)
		}
	}
}

func TestLongLineEndsTheConnection(t *testing.T) {
	c := connect(t, &toy{})
	go func() {
		for c.done != nil {
			if _, err := c.conn.Write([]byte(strings.Repeat("x", 1<<20))); err != nil {
				return
			}
		}
	}()
	if err := <-c.done; !errors.Is(err, errTooLong) {
		t.Error(err)
	}
}

// Many requests that do not end: some run, the rest wait, those beyond are refused, and urgent ones get through.
func TestRequestsAreBounded(t *testing.T) {
	h := &toy{}
	c := connect(t, h)
	for i := range maxWaiting {
		c.say(`{"jsonrpc":"2.0","id":%d,"method":"block"}`, i)
	}
	c.say(`{"jsonrpc":"2.0","id":"a","method":"block"}`)
	if got := c.hear(); !strings.Contains(got, `"id":"a","error":{"code":-32001`) {
		t.Error(got)
	}
	c.say(`{"jsonrpc":"2.0","id":0,"method":"now"}`)
	if got := c.hear(); !strings.Contains(got, "another request with this id") {
		t.Error(got)
	}
	if n := h.most.Load(); n > maxRunning {
		t.Errorf("%d requests ran at once", n)
	}
	_ = c.conn.Close()
	t.Log(<-c.done)
	if n := h.running.Load(); n != 0 {
		t.Errorf("%d requests run still", n)
	}
}

// TestUnreadAnswersAreBounded: an answer that nobody reads takes the room of a request that runs.
func TestUnreadAnswersAreBounded(t *testing.T) {
	h := &counted{}
	c := connect(t, h)
	for i := range 4 * maxRunning {
		c.say(`{"jsonrpc":"2.0","id":%d,"method":"echo","params":[]}`, i)
	}
	time.Sleep(50 * time.Millisecond) // more than it takes to make them all
	if n := h.made.Load(); n > maxRunning {
		t.Errorf("%d answers were made that nobody reads", n)
	}
	for range 4 * maxRunning {
		c.hear()
	}
	// Who has an answer may use its id again.
	for range 500 {
		c.say(`{"jsonrpc":"2.0","id":7,"method":"echo","params":[]}`)
		if got := c.hear(); !strings.Contains(got, `"result"`) {
			t.Fatal(got)
		}
	}
}

type counted struct {
	toy
	made atomic.Int64
}

func (h *counted) Call(ctx context.Context, r *Request) (any, error) {
	h.made.Add(1)
	return h.toy.Call(ctx, r)
}

func TestUrgentDoesNotWait(t *testing.T) {
	c := connect(t, &toy{})
	for i := range maxRunning + 1 {
		c.say(`{"jsonrpc":"2.0","id":%d,"method":"block"}`, i)
	}
	c.say(`{"jsonrpc":"2.0","id":"u","method":"now","params":[1]}`)
	if got := c.hear(); got != `{"jsonrpc":"2.0","id":"u","result":[1]}` {
		t.Error(got)
	}
}

// A client that does not read is not written for, and one that goes ends what runs for it.
func TestSlowClient(t *testing.T) {
	h := &toy{}
	c := connect(t, h)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"flood"}`)
	c.hear()
	time.Sleep(50 * time.Millisecond)
	if n := h.running.Load(); n > 1000 {
		t.Errorf("%d notifications were written that nobody read", n)
	}
	_ = c.conn.Close()
	t.Log(<-c.done)
}

// What is not read is no reason to stay when the connection is to end.
func TestEndsAlthoughNobodyReads(t *testing.T) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, theirs, theirs, &toy{}) }()
	fmt.Fprintln(ours, `{"jsonrpc":"2.0","id":1,"method":"flood"}`)
	time.Sleep(20 * time.Millisecond)
	cancel()
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

func FuzzServe(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"echo"}`)
	f.Add("{}\n[]\n\n\x00")
	f.Fuzz(func(t *testing.T, in string) {
		_ = Serve(t.Context(), strings.NewReader(in), io.Discard, &toy{})
	})
}
