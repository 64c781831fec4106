// Package serve answers requests of other programs, in JSON-RPC 2.0: it makes sandboxes and execs as the commands of the same names do,
// and each connection has its own. rpc reads the requests, and bounds what one client can ask; docs/serve.md is the contract.
//
// The process of the server owns the sandboxes. Parameters become what the command line would have become: a plan.Source, a
// container.Request.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/ceiling"
	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/pool"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rpc"
	"github.com/sandboxrun/sandboxrun/units"
)

// maxSandboxes is how many sandboxes the clients of a server have at the same time, unless --sandboxes says otherwise.
const maxSandboxes = 256

// maxClients is how many connections a server has at the same time; others wait.
const maxClients = 256

// Command is the command serve.
func Command(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "answer requests of another program: JSON-RPC 2.0, one object a line",
		Description: "The sandboxes that a client has made end with its connection. docs/serve.md says what can be asked.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "stdio", Usage: "serve one client, by standard input and output, until standard input ends"},
			&cli.StringFlag{Name: "socket", Usage: "serve any number of clients of yours at the new Unix socket `PATH`, until SIGTERM or SIGINT"},
			&cli.StringFlag{Name: "ceiling", Usage: "refuse what a client asks for beyond the policy `POLICY`, a file or a preset, and every path of the host in a request"},
			&cli.IntFlag{Name: "sandboxes", Value: maxSandboxes, Usage: "let the clients have at most `N` sandboxes at the same time"},
			&cli.IntFlag{Name: "ready", Usage: fmt.Sprintf("keep `N` sandboxes ready of each of the last %d policies that were asked for again, at most %d", readyPolicies, largestReady)},
		},
		Action: func(c *cli.Context) error { return serve(p, c) },
	}
}

// server is what all its connections share.
type server struct {
	*caller.Caller
	store    *container.Store
	state    string
	ceiling  *ceiling.Ceiling // nil: clients may ask for what the server may
	slots    chan struct{}    // one for each sandbox
	ready    *ready           // nil: none is kept ready
	creating sync.Mutex       // one sandbox after the other is made: that is mostly the kernel's time
}

func serve(p *caller.Caller, c *cli.Context) error {
	if err := flags.None(c); err != nil {
		return err
	}
	if c.Bool("stdio") == c.IsSet("socket") {
		return fault.Usage("how to serve is missing", "one of --stdio and --socket PATH")
	}
	debug.SetGCPercent(400) // this process stays, and lives in few megabytes, of which each exec uses a tenth and lets go again
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	store, err := container.OpenStore(p.StatePath(c))
	if err != nil {
		return err
	}
	defer store.Close()
	if c.Int("sandboxes") < 1 {
		return fault.Usage(fmt.Sprintf("--sandboxes %d: there would be none", c.Int("sandboxes")), "")
	}
	s := &server{Caller: p, store: store, state: p.StatePath(c), slots: make(chan struct{}, c.Int("sandboxes"))}
	if c.IsSet("ceiling") {
		if err := s.openCeiling(c.String("ceiling")); err != nil {
			return err
		}
	}
	switch n := c.Int("ready"); {
	case n < 0 || n > largestReady:
		return fault.Usage(fmt.Sprintf("--ready %d: not from 0 to %d", n, largestReady), "")
	case n > 0:
		s.ready = &ready{open: func(from plan.Source) (*pool.Pool, error) { return pool.New(s.stock(from, n)) }}
		defer s.ready.close()
	}
	if c.Bool("stdio") {
		return s.connection(ctx, p.In, p.Out)
	}
	return s.listen(ctx, c.String("socket"))
}

// stock is what a pool of a policy is made with.
func (s *server) stock(from plan.Source, size int) pool.Config {
	config := plan.Pool(s.Caller, s.store, from, size)
	config.Trouble = func(err error) { logrus.Info("none is ready: ", err) } // who asks for the next one is told
	return config
}

// connection serves one client and removes what it leaves.
func (s *server) connection(ctx context.Context, in io.Reader, out io.Writer) error {
	n := newSession(s)
	err := rpc.Serve(ctx, in, out, n)
	n.end()
	if ctx.Err() == nil {
		return err
	}
	return nil // a signal ended the server
}

// listen makes the socket. Who may write to it may use the launcher as we can, so it is for us alone.
func (s *server) listen(ctx context.Context, path string) error {
	if path == "" {
		return fault.Usage("--socket is empty", "name a socket that is not there yet")
	}
	before := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(before)
	if errors.Is(err, unix.EADDRINUSE) {
		return fault.Usage(fmt.Sprintf("--socket %q: something is there already", path), "if no server runs there any more, remove it")
	}
	if err != nil {
		return fmt.Errorf("listen at %q: %w", filepath.Clean(path), err)
	}
	shut := func() { _ = l.Close() } // it may be closed already
	defer shut()
	context.AfterFunc(ctx, shut)
	var clients sync.WaitGroup
	defer clients.Wait()
	slots := make(chan struct{}, maxClients)
	for {
		slots <- struct{}{}
		conn, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil: // too many open files: they will be fewer
			<-slots
			time.Sleep(10 * time.Millisecond)
			continue
		}
		clients.Go(func() {
			defer func() { <-slots }()
			s.client(ctx, conn)
		})
	}
}

func (s *server) client(ctx context.Context, conn *net.UnixConn) {
	shut := func() { _ = conn.Close() } // it may be closed already
	defer shut()
	defer context.AfterFunc(ctx, shut)()
	if !isCaller(conn) {
		return
	}
	_ = s.connection(ctx, conn, conn) // the client has its answer, or is gone
}

// isCaller reports whether the process at the other end is the user that we are, or root.
func isCaller(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cerr == nil && err == nil && (int(cred.Uid) == os.Geteuid() || cred.Uid == 0)
}

// rpcError is an error as a client sees it.
func rpcError(err error) error {
	if already, ok := errors.AsType[*rpc.Error](err); ok {
		return already
	}
	e := caller.Describe(err)
	code := rpc.CodeFailed
	if e.Code == fault.UsageCode {
		code = rpc.CodeParams
	}
	return &rpc.Error{Code: code, Message: e.Message, Data: e}
}

// params reads the parameters of a request. What is not known is an error, as in a policy.
func params[T any](r *rpc.Request) (T, error) {
	var v T
	if len(r.Params) == 0 {
		return v, nil
	}
	if err := strictJSON(r.Params, &v); err != nil {
		return v, &rpc.Error{Code: rpc.CodeParams, Message: fmt.Sprintf("parameters of %s: %v", r.Method, err)}
	}
	return v, nil
}

func badParams(format string, args ...any) error {
	return &rpc.Error{Code: rpc.CodeParams, Message: fmt.Sprintf(format, args...)}
}

// wait is a duration: seconds, or text as in a policy.
type wait time.Duration

// UnmarshalJSON reads both.
func (w *wait) UnmarshalJSON(data []byte) error {
	var seconds float64
	if json.Unmarshal(data, &seconds) == nil {
		if seconds <= 0 || seconds > maxSeconds {
			return fmt.Errorf("%s is no duration", data)
		}
		*w = wait(seconds * float64(time.Second))
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	d, err := units.ParseDuration(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is no duration above 0", text)
	}
	*w = wait(d)
	return err
}

const maxSeconds = 1e9
