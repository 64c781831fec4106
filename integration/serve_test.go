package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/result"
)

// serving is a client of a server.
type serving struct {
	b      *box
	cmd    *exec.Cmd // of --stdio
	in     io.WriteCloser
	mu     sync.Mutex
	last   int
	waits  map[int]chan reply
	notes  chan note
	ended  chan struct{}
	broken string // a line that is no answer
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    result.Error
	}
	Method string
	Params note
}

type note struct {
	ID     int
	Stream string
	Data   string
	Base64 string
}

// stdio starts a server of the test's own.
func (b *box) stdio(more ...string) *serving {
	b.t.Helper()
	cmd := b.command(call{}, append([]string{"serve", "--stdio"}, more...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	s := b.client(in, out)
	s.cmd = cmd
	return s
}

func (b *box) client(in io.WriteCloser, out io.Reader) *serving {
	s := &serving{b: b, in: in, waits: map[int]chan reply{}, notes: make(chan note, 1000), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var a reply
			if err := json.Unmarshal(line, &a); err != nil {
				s.broken = string(line)
				return
			}
			if a.Method != "" {
				s.notes <- a.Params
				continue
			}
			s.mu.Lock()
			c := s.waits[a.ID]
			delete(s.waits, a.ID)
			s.mu.Unlock()
			if c != nil {
				c <- a
			}
		}
	}()
	return s
}

// ask sends a request.
func (s *serving) ask(method string, params object) (int, chan reply) {
	s.b.t.Helper()
	c := make(chan reply, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.waits[s.last] = c
	line, err := json.Marshal(object{"jsonrpc": "2.0", "id": s.last, "method": method, "params": params})
	if err == nil {
		_, err = s.in.Write(append(line, '\n'))
	}
	if err != nil {
		s.b.t.Errorf("%s: %v", method, err)
	}
	return s.last, c
}

func (s *serving) wait(c chan reply) reply {
	s.b.t.Helper()
	select {
	case a := <-c:
		return a
	case <-s.ended:
		s.b.t.Errorf("the server has ended %s", s.broken)
	case <-time.After(patience):
		s.b.t.Error("no answer")
	}
	return reply{}
}

// does asks and wants it to be done.
func (s *serving) does(method string, params object, result any) {
	s.b.t.Helper()
	_, c := s.ask(method, params)
	a := s.wait(c)
	if a.Error != nil {
		s.b.t.Fatalf("%s: %+v", method, *a.Error)
	}
	if result != nil {
		if err := json.Unmarshal(a.Result, result); err != nil {
			s.b.t.Fatalf("%s: %v", a.Result, err)
		}
	}
}

// refuses asks and wants an error.
func (s *serving) refuses(method string, params object, code, message string) {
	s.b.t.Helper()
	_, c := s.ask(method, params)
	a := s.wait(c)
	if a.Error == nil || code != "" && a.Error.Data.Code != code || !strings.Contains(a.Error.Message, message) {
		s.b.t.Errorf("%s %v: %s %+v", method, params, a.Result, a.Error)
	}
}

// exec runs a program.
func (s *serving) exec(id string, more object, argv ...string) result.Result {
	s.b.t.Helper()
	p := object{"sandbox": id, "argv": argv}
	maps.Copy(p, more)
	var r result.Result
	s.does("exec", p, &r)
	return r
}

// end closes the connection and waits until the server has removed all.
func (s *serving) end() {
	s.in.Close()
	<-s.ended
	if s.cmd != nil {
		if err := s.cmd.Wait(); err != nil {
			s.b.t.Errorf("serve: %v", err)
		}
	}
}

func tmpfsPolicy() object {
	return object{"version": 1, "workspace": object{"source": "tmpfs", "path": "/w"}}
}

func (s *serving) create(id string) {
	s.b.t.Helper()
	s.does("create", object{"id": id, "policy": tmpfsPolicy()}, nil)
}

func TestServe(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		work := b.mkdir("work")
		s := b.stdio()
		var made struct {
			ID, Workdir string
			Isolated    bool
			Paths       []struct {
				Inside, Host string
				Writable     bool
			}
		}
		s.does("create", object{"policy": object{"version": 1, "workspace": object{"source": work, "path": "/w"}}, "read": []string{"/etc/hostname"}}, &made)
		if !made.Isolated || made.Workdir != "/w" || made.ID == "" || len(made.Paths) == 0 {
			t.Errorf("made %+v", made)
		}
		r := s.exec(made.ID, object{"put": object{"in": "typed", "b": object{"base64": "/w==", "mode": 0o755}}, "collect": []any{"o*", object{"path": "b", "to": b.path("b")}}, "stdin": "input"},
			"sh", "-c", "cat in -; echo made >out; echo -n; test -x b; echo $?")
		if r.Stdout != "typedinput0\n" || len(r.Collected) != 2 || r.Collected[0].Text != "made\n" || b.read(b.path("b")) != "\xff" {
			t.Errorf("result %+v", r)
		}
		s.does("put", object{"sandbox": made.ID, "files": object{"d/x": "X"}}, nil)
		var got struct{ Files []result.Collected }
		s.does("get", object{"sandbox": made.ID, "path": "d"}, &got)
		if len(got.Files) != 1 || got.Files[0].Path != "d/x" || got.Files[0].Text != "X" {
			t.Errorf("got %+v", got)
		}
		var p struct {
			Shown        bool
			Inside, Host string
		}
		s.does("path", object{"sandbox": made.ID, "host": work + "/new/file"}, &p)
		same(t, "inside", "/w/new/file", p.Inside)
		s.does("path", object{"sandbox": made.ID, "inside": "new"}, &p)
		same(t, "host", work+"/new", p.Host)
		s.does("path", object{"sandbox": made.ID, "host": work + "shop"}, &p)
		same(t, "shown", false, p.Shown)
		r = s.exec(made.ID, object{"translate": true, "cwd": work + "/d"}, "sh", "-c", "pwd; cat $0", work+"/d/x")
		same(t, "translated", "/w/d\nX", r.Stdout)
		var x struct{ Answers []struct{ OK bool } }
		s.does("explain", object{"policy": tmpfsPolicy(), "ask": []string{"/usr/bin/env", "/root/.ssh/id"}}, &x)
		if len(x.Answers) != 2 || !x.Answers[0].OK || x.Answers[1].OK {
			t.Errorf("explained %+v", x)
		}
		var l struct{ Sandboxes []container.Info }
		s.does("list", object{}, &l)
		same(t, "sandboxes", 1, len(l.Sandboxes))
		s.does("doctor", object{}, nil)

		// A program that is not there is a result; what cannot be asked is an error.
		same(t, "exit status", 127, s.exec(made.ID, nil, "no-such").ExitCode)
		s.refuses("exec", object{"sandbox": "other", "argv": []string{"true"}}, "not_found", "no sandbox")
		s.refuses("exec", object{"sandbox": made.ID}, "", "argv is missing")
		s.refuses("exec", object{"sandbox": made.ID, "argv": []string{"true"}, "nosuch": 1}, "", "nosuch")
		if r := s.exec(made.ID, object{"put": object{"../x": ""}}, "true"); r.Error == nil || r.Error.Code != "path_invalid" {
			t.Errorf("%+v", r)
		}
		s.refuses("create", object{"policy": object{"version": 1, "nosuch": 1}}, "policy_invalid", "nosuch")
		s.refuses("create", object{"policy": "no-such-preset"}, "", "no policy file or preset")
		s.refuses("create", object{"id": made.ID}, "id_in_use", "")
		s.refuses("get", object{"sandbox": made.ID, "path": "/etc/passwd"}, "path_invalid", "absolute")
		s.refuses("put", object{"sandbox": made.ID, "files": object{"x": strings.Repeat("x", 1<<20+1)}}, "file_too_large", "")
		s.refuses("cancel", object{"id": 12345}, "not_found", "")
		s.refuses("nosuch", object{}, "", "no method")
		s.does("delete", object{"sandbox": made.ID}, nil)
		s.refuses("delete", object{"sandbox": made.ID}, "not_found", "")
		s.end()
		same(t, "sandboxes left", "", strings.Join(b.ids(), " "))
	})
}

// TestServeStreams: output as it comes, input in order, a terminal, and the end by cancel, which keeps what there is.
func TestServeStreams(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		s := b.stdio()
		s.create("box")
		id, done := s.ask("exec", object{"sandbox": "box", "argv": []string{"cat"}, "stream": true, "stdin_open": true})
		var want strings.Builder
		for i := range 200 {
			line := fmt.Sprintf("line %d\n", i)
			want.WriteString(line)
			s.ask("exec/stdin", object{"id": id, "data": line})
		}
		s.ask("exec/stdin", object{"id": id, "eof": true})
		var r result.Result
		a := s.wait(done)
		if err := json.Unmarshal(a.Result, &r); err != nil || r.Outcome != "exited" {
			t.Errorf("%s %v", a.Result, err)
		}
		var heard strings.Builder
		for len(s.notes) > 0 {
			heard.WriteString((<-s.notes).Data)
		}
		same(t, "output", want.String(), heard.String())

		id, done = s.ask("exec", object{"sandbox": "box", "collect": []string{"f"}, "argv": []string{"sh", "-c", "echo made >f; echo begun; sleep 300 & sleep 300"}})
		time.Sleep(200 * time.Millisecond)
		s.does("cancel", object{"id": id}, nil)
		if err := json.Unmarshal(s.wait(done).Result, &r); err != nil || r.Outcome != result.Cancelled || r.ExitCode != 137 || r.Stdout != "begun\n" || len(r.Collected) != 1 || r.Collected[0].Text != "made\n" {
			t.Errorf("cancelled: %+v %v", r, err)
		}
		id, done = s.ask("exec", object{"sandbox": "box", "argv": []string{"sh", "-c", "read x; stty size"}, "tty": object{"rows": 10, "cols": 20}, "stdin_open": true})
		s.does("exec/resize", object{"id": id, "rows": 33, "cols": 44}, nil)
		s.does("exec/stdin", object{"id": id, "data": "x\n"}, nil)
		if err := json.Unmarshal(s.wait(done).Result, &r); err != nil || !strings.Contains(r.Stdout, "33 44") {
			t.Errorf("terminal: %+v %v", r, err)
		}
		// delete ends what runs.
		_, done = s.ask("exec", object{"sandbox": "box", "argv": []string{"sleep", "300"}})
		time.Sleep(100 * time.Millisecond)
		s.does("delete", object{"sandbox": "box"}, nil)
		if a := s.wait(done); a.Result == nil {
			t.Errorf("the exec: %+v", a.Error)
		}
		s.end()
	})
}

// socket starts a server at a socket.
func (b *box) socket(options ...string) (path string, stop func()) {
	b.t.Helper()
	path, _, stop = b.socketOf(options...)
	return path, stop
}

func (b *box) socketOf(options ...string) (path string, pid int, stop func()) {
	b.t.Helper()
	path = b.path(fmt.Sprint("s", len(options)))
	short := b.command(call{env: []string{"SERVER_TOKEN=of-the-server"}}, append([]string{"serve", "--socket", path}, options...)...)
	cmd := exec.Command(short.Path, short.Args[1:]...) // not ended by patience: a soak takes longer
	cmd.Env, cmd.Dir = short.Env, short.Dir
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Process.Kill() })
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	return path, cmd.Process.Pid, func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := cmd.Wait(); err != nil {
			b.t.Errorf("serve: %v", err)
		}
		if _, err := os.Lstat(path); err == nil {
			b.t.Error("the socket is still there")
		}
	}
}

func (b *box) dial(path string) *serving {
	b.t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.client(conn, conn)
}

// TestServeClientsAreApart: many clients at once, some of which break the protocol, do not read, or end in the middle.
func TestServeClientsAreApart(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		before := b.census0(b.policy(tmpfsPolicy()))
		path, stop := b.socket()
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket: %v %v", info, err)
		}
		// One that never reads, with a program that writes for ever.
		slow, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(slow, `{"jsonrpc":"2.0","id":1,"method":"create","params":{"id":"slow","policy":{"version":1,"workspace":{"source":"tmpfs","path":"/w"}}}}`+"\n")
		for end := time.Now().Add(patience); time.Now().Before(end) && len(b.ids()) == 0; time.Sleep(10 * time.Millisecond) {
		}
		fmt.Fprintf(slow, `{"jsonrpc":"2.0","id":2,"method":"exec","params":{"sandbox":"slow","argv":["yes"],"stream":true}}`+"\n")
		const clients = 8
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				s := b.dial(path)
				id := fmt.Sprintf("box%d", i)
				s.create(id)
				s.refuses("exec", object{"sandbox": "slow", "argv": []string{"true"}}, "not_found", "")
				for range 5 {
					if r := s.exec(id, object{"put": object{"f": "x"}, "collect": []string{"f"}}, "cat", "f"); r.Stdout != "x" || len(r.Collected) != 1 {
						b.t.Errorf("%+v", r)
					}
				}
				switch i % 4 {
				case 0:
					s.does("delete", object{"sandbox": id}, nil)
				case 1: // in the middle of a request
					s.ask("exec", object{"sandbox": id, "argv": []string{"sleep", "300"}})
					fmt.Fprint(s.in, `{"jsonrpc":`)
				case 2:
					fmt.Fprint(s.in, "garbage\n")
					<-s.ended
				case 3:
					go func() { _, _ = io.Copy(s.in, strings.NewReader(strings.Repeat("x", 17<<20))) }()
					<-s.ended
				}
				_ = s.in.Close()
			})
		}
		all.Wait()
		for end := time.Now().Add(patience); time.Now().Before(end) && len(b.ids()) > 1; time.Sleep(10 * time.Millisecond) {
		}
		same(t, "sandboxes left", "slow", strings.Join(b.ids(), " "))
		_ = slow.Close()
		for end := time.Now().Add(patience); time.Now().Before(end) && len(b.ids()) > 0; time.Sleep(10 * time.Millisecond) {
		}
		same(t, "sandboxes left", "", strings.Join(b.ids(), " "))
		stop()
		b.settles("clients", before)
	})
}
