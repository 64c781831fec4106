package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/client"
)

const envBinary = "SANDBOXRUN_BIN"

func policy() client.Policy {
	return client.Policy{Inline: map[string]any{"version": 1, "workspace": map[string]any{"source": "tmpfs", "path": "/w"}}}
}

func start(t *testing.T) (*client.Client, *client.Sandbox) {
	t.Helper()
	path := os.Getenv(envBinary)
	if path == "" {
		t.Skipf("%s names no command to test", envBinary)
	}
	c, err := client.Start(client.Options{Path: path, Root: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	sb, err := c.Create(t.Context(), policy())
	if err != nil {
		t.Fatal(err)
	}
	return c, sb
}

func TestOutput(t *testing.T) {
	_, sb := start(t)
	cmd := sb.Command("sh", "-c", "cat in -; echo err >&2; echo made >out; echo yes >&3; exit $CODE")
	cmd.Put, cmd.Collect, cmd.Answer = map[string][]byte{"in": []byte("\xfftyped "), "none": nil}, []string{"o*", "missing"}, true
	cmd.Env = map[string]string{"CODE": "3"}
	cmd.Stdin = strings.NewReader("input")
	out, err := cmd.Output()
	var exit *client.ExitError
	if !errors.As(err, &exit) || exit.ExitCode != 3 || string(exit.Stderr) != "err\n" || exit.Error() != "exit status 3" {
		t.Errorf("%v", err)
	}
	r := cmd.Result
	if string(out) != "\xfftyped input" || len(r.Files) != 1 || string(r.Files[0].Data) != "made\n" || r.Missing["missing"] == nil || string(r.Answer) != "yes\n" {
		t.Errorf("%q %+v", out, r)
	}
	if !sb.Isolated || sb.Workdir != "/w" {
		t.Errorf("%+v", sb.Info)
	}
}

// TestWarm: a program that asks for it gets an interpreter that waited, or is told why not.
func TestWarm(t *testing.T) {
	c, _ := start(t)
	p := policy()
	p.Warm = map[string]int{"python3": 1}
	sb, err := c.Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for option, warm := range map[string]bool{"-c": true, "-Bc": false} {
		cmd := sb.Command("python3", option, "print(6 * 7)")
		cmd.Warm = true
		out, err := cmd.Output()
		if err != nil || string(out) != "42\n" || cmd.Result.Warm != warm || (cmd.Result.WarmWhy == "") != warm {
			t.Errorf("%s: %v %+v", option, err, cmd.Result)
		}
	}
}

func TestErrors(t *testing.T) {
	c, sb := start(t)
	var e *client.Error
	if err := sb.Command("no-such-program").Run(); !errors.As(err, &e) || e.Code != "program_not_found" {
		t.Error(err)
	}
	if _, err := c.Create(t.Context(), client.Policy{Text: "nosuch = 1"}); !errors.As(err, &e) || e.Code != "policy_invalid" {
		t.Error(err)
	}
	if err := sb.WriteFile(t.Context(), "../x", nil); !errors.As(err, &e) || e.Code != "path_invalid" {
		t.Error(err)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if err := sb.Command("true").Run(); !errors.As(err, &e) || e.Code != "not_found" {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := sb.Command("true").Run(); !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}

func TestContextEndsIt(t *testing.T) {
	_, sb := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	cmd := sb.CommandContext(ctx, "sh", "-c", "echo begun; sleep 300 & sleep 300")
	var out bytes.Buffer
	cmd.Stdout = &out
	began := time.Now()
	if err := cmd.Run(); !errors.Is(err, context.DeadlineExceeded) || out.String() != "begun\n" || time.Since(began) > 100*time.Second {
		t.Errorf("%v %q", err, out.String())
	}
	cmd = sb.Command("sleep", "300")
	cmd.Timeout = 200 * time.Millisecond
	var exit *client.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || !exit.TimedOut || exit.Error() != "timeout" {
		t.Error(err)
	}
}

func TestStdinPipe(t *testing.T) {
	_, sb := start(t)
	cmd := sb.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		fmt.Fprintln(in, i)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil || strings.Count(out.String(), "\n") != 100 {
		t.Errorf("%v %q", err, out.String())
	}
	// Input that nobody reads keeps nothing from ending.
	cmd = sb.Command("true")
	cmd.Stdin = io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)))
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	_, sb := start(t)
	if err := sb.WriteFile(t.Context(), "d/f", []byte{0xff}); err != nil {
		t.Fatal(err)
	}
	files, err := sb.ReadFiles(t.Context(), "d", 0)
	if err != nil || len(files) != 1 || files[0].Path != "d/f" || !bytes.Equal(files[0].Data, []byte{0xff}) {
		t.Errorf("%v %v", files, err)
	}
	if err := sb.Command("ln", "-s", "/etc", "d/l").Run(); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy")
	dropped, err := sb.Export(t.Context(), "d", to, 0)
	if data, _ := os.ReadFile(filepath.Join(to, "f")); err != nil || len(dropped) != 1 || len(data) != 1 {
		t.Errorf("%v %v %q", dropped, err, data)
	}
}

func TestManyAtOnce(t *testing.T) {
	_, sb := start(t)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			out, err := sb.Command("echo", fmt.Sprint(i)).CombinedOutput()
			if err != nil || string(out) != fmt.Sprintln(i) {
				t.Errorf("%q %v", out, err)
			}
		})
	}
	all.Wait()
}

func Example() {
	if os.Getenv(envBinary) == "" { // nothing to show it with
		fmt.Println("42")
		return
	}
	c, err := client.Start(client.Options{Path: os.Getenv(envBinary)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()
	sb, err := c.Create(ctx, client.Policy{Text: "version = 1\nworkspace = { source = \"tmpfs\", path = \"/w\" }"})
	if err != nil {
		fmt.Println(err)
		return
	}
	cmd := sb.CommandContext(ctx, "python3", "main.py")
	cmd.Put = map[string][]byte{"main.py": []byte("print(6 * 7)")}
	out, err := cmd.Output()
	fmt.Print(string(out))
	if err != nil {
		fmt.Println(err)
	}
	// Output: 42
}

// TestAddress: clients of one server at a socket, through a forwarded port too, have sandboxes of their own, which end with them.
func TestAddress(t *testing.T) {
	path := os.Getenv(envBinary)
	if path == "" {
		t.Skipf("%s names no command to test", envBinary)
	}
	socket := filepath.Join(t.TempDir(), "s")
	server := exec.Command(path, "--root", filepath.Join(t.TempDir(), "state"), "serve", "--socket", socket)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
	}
	defer stop()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not listen")
		}
	}
	var clients []*client.Client
	var boxes []*client.Sandbox
	for _, address := range []string{socket, forward(t, socket)} {
		c, err := client.Start(client.Options{Address: address})
		if err != nil {
			t.Fatal(err)
		}
		sb, err := c.Create(t.Context(), policy())
		if err != nil {
			t.Fatal(err)
		}
		if out, err := sb.Command("echo", "there").Output(); err != nil || string(out) != "there\n" {
			t.Errorf("%s: %q %v", address, out, err)
		}
		clients, boxes = append(clients, c), append(boxes, sb)
	}
	slow := boxes[0].Command("sleep", "300")
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	if err := clients[0].Close(); err != nil {
		t.Error(err)
	}
	var e *client.Error
	if err := slow.Wait(); !errors.Is(err, client.ErrClosed) && !errors.As(err, &e) {
		t.Errorf("what ran has ended with %v", err)
	}
	if err := boxes[1].Command("true").Run(); err != nil {
		t.Errorf("the other client's sandbox: %v", err)
	}
	stop()
	if err := boxes[1].Command("true").Run(); err == nil {
		t.Error("a program has run without a server")
	}
	if err := clients[1].Close(); err != nil {
		t.Error(err)
	}
	if _, err := client.Start(client.Options{Address: socket}); !errors.As(err, &e) || e.Code != "no_server" {
		t.Error(err)
	}
	if _, err := client.Start(client.Options{Address: socket, Root: "/x"}); err == nil || errors.As(err, &e) {
		t.Error(err)
	}
}

// forward listens at a port and passes all on to a socket.
func forward(t *testing.T, socket string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", socket)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.(*net.UnixConn).CloseWrite()
			}()
			go func() {
				_, _ = io.Copy(in, out)
				_ = in.Close()
			}()
		}
	}()
	return l.Addr().String()
}
