package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/detached"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

func TestLocationWithin(t *testing.T) {
	tests := []struct {
		p, q hostfs.Location
		want bool
	}{
		{hostfs.Location{Dev: "8:1", Path: "/a/b"}, hostfs.Location{Dev: "8:1", Path: "/a"}, true},
		{hostfs.Location{Dev: "8:1", Path: "/a"}, hostfs.Location{Dev: "8:1", Path: "/a"}, true},
		{hostfs.Location{Dev: "8:1", Path: "/a"}, hostfs.Location{Dev: "8:1", Path: "/"}, true},
		{hostfs.Location{Dev: "8:1", Path: "/"}, hostfs.Location{Dev: "8:1", Path: "/"}, true},
		{hostfs.Location{Dev: "8:1", Path: "/ab"}, hostfs.Location{Dev: "8:1", Path: "/a"}, false},
		{hostfs.Location{Dev: "8:1", Path: "/a"}, hostfs.Location{Dev: "8:1", Path: "/a/b"}, false},
		{hostfs.Location{Dev: "8:2", Path: "/a/b"}, hostfs.Location{Dev: "8:1", Path: "/a"}, false},
	}
	for _, tt := range tests {
		if got := tt.p.Within(tt.q); got != tt.want {
			t.Errorf("%v within %v: %v", tt.p, tt.q, got)
		}
	}
}

func TestHostWalk(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"rel": "a/b", "abs": dir + "/c", "a/up": "../c", "chain": "rel", "loop": "loop", "dangling": "c/new", "stuck": "no/new",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path, at, missing string
		links             int
		err               error
	}{
		{path: "a/b", at: "a/b"},
		{path: "./a//b/.", at: "a/b"},
		{path: "a/b/../../c", at: "c"},
		{path: "a/b/new", at: "a/b", missing: "new"},
		{path: "a/b/new/", at: "a/b", missing: "new"},
		{path: "rel/new", at: "a/b", missing: "new", links: 1},
		{path: "rel/../new", at: "a", missing: "new", links: 1},
		{path: "abs", at: "c", links: 1},
		{path: "a/up", at: "c", links: 1},
		{path: "chain", at: "a/b", links: 2},
		{path: "dangling", at: "c", missing: "new", links: 1},
		{path: "stuck", links: 1, err: unix.ENOENT},
		{path: "a/no/new", err: unix.ENOENT},
		{path: "loop", links: trust.MostLinks, err: unix.ELOOP},
		{path: "file", err: unix.ENOTDIR},
		{path: "file/x", err: unix.ENOTDIR},
	}
	for _, tt := range tests {
		links := 0
		w := trust.Walk{Rest: strings.Split(dir+"/"+tt.path, "/"), Follow: func(*os.File) error { links++; return nil }}
		missing, err := w.Go()
		if !errors.Is(err, tt.err) || missing != tt.missing || links != tt.links {
			t.Errorf("%s: %q is missing, %d links, %v", tt.path, missing, links, err)
		}
		if at, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.At.Fd())); tt.err == nil && at != filepath.Join(dir, tt.at) {
			t.Errorf("%s: leads to %s", tt.path, at)
		}
		w.At.Close()
	}
	refuse := errors.New("refused")
	w := trust.Walk{Rest: strings.Split(dir+"/a/up/x", "/"), Follow: func(at *os.File) error {
		if to, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", at.Fd())); to != dir+"/a" {
			t.Errorf("asked about %s", to)
		}
		return refuse
	}}
	if _, err := w.Go(); !errors.Is(err, refuse) {
		t.Errorf("got %v", err)
	}
	w.At.Close()
}

// Arguments and variables may be any bytes; all the rest of a request has to arrive too.
func TestOrderHoldsTheRequest(t *testing.T) {
	odd := "\xff\x00 é=\n"
	req := Request{
		Args: []string{"a", "", odd}, Dir: odd, Caller: map[string]string{"A": odd, "B": "", "C": "x=y"}, Env: map[string]string{"D": odd},
		Timeout: time.Minute, Memory: 7, Pids: 8, OutputDir: "/o" + odd,
	}
	data, err := json.Marshal((&Store{path: "/s" + odd}).order("id", req))
	if err != nil {
		t.Fatal(err)
	}
	var o order
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	if got := o.request(); !reflect.DeepEqual(got, req) || string(o.Root) != "/s"+odd || o.ID != "id" {
		t.Errorf("got %+v", got)
	}
}

// TestRequestIsSent finds a new field of a request that a monitor would not hear of.
func TestRequestIsSent(t *testing.T) {
	apart := map[string]bool{ // see order; the last seven cannot be
		"Args": true, "Dir": true, "Caller": true, "Env": true, "OutputDir": true,
		"Stdin": true, "Stdout": true, "Stderr": true, "Tty": true, "TtySettings": true, "OneOutput": true,
		"Follow": true, // of serve under a ceiling, which detaches no exec
		"Warm":   true, // the monitor's sandbox keeps no interpreter
		"Cancel": true, // the command ends by the signal itself, and the exec with it
	}
	fields := reflect.VisibleFields(reflect.TypeFor[Request]())
	for _, f := range fields {
		if f.IsExported() && (f.Tag.Get("json") == "-") != apart[f.Name] {
			t.Errorf("the field %s of a request is not sent to a monitor", f.Name)
		}
	}
}

// monitor carries an order out in this process.
func monitor(t *testing.T, sb *Sandbox, req Request, answer io.WriteCloser) {
	t.Helper()
	data, err := json.Marshal(sb.store.order(sb.state.ID, req))
	if err != nil {
		t.Fatal(err)
	}
	Monitor(io.NopCloser(bytes.NewReader(data)), answer, func(*Running) {})
}

type answered struct {
	bytes.Buffer
	err error
}

func (a *answered) Write(p []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	return a.Buffer.Write(p)
}

func (a *answered) Close() error { return nil }

func TestMonitor(t *testing.T) {
	sb := sandboxOf(t, "")
	a := &answered{}
	monitor(t, sb, sh("echo out; echo err >&2; exit 3"), a)
	var r reply
	if err := json.Unmarshal(a.Bytes(), &r); err != nil || !detached.ValidExec(r.Exec) || r.Error != nil {
		t.Fatalf("answer %q", a.String())
	}
	d, err := sb.store.Detached(sb.state.ID, "")
	if err != nil || d.Name != r.Exec || d.Running() {
		t.Fatalf("%+v, %v", d, err)
	}
	defer d.Close()
	res, err := d.Result()
	if err != nil || res.ExitCode != 3 || res.Stdout != "out\n" || res.Stderr != "err\n" || res.Outcome != result.Exited || len(res.Warnings) > 0 {
		t.Errorf("%+v, %v", res, err)
	}
	var out, errs bytes.Buffer
	if err := d.Logs(t.Context(), detached.Logs{Stdout: &out, Stderr: &errs, Tail: -1, Follow: true}); err != nil || out.String() != "out\n" || errs.String() != "err\n" {
		t.Errorf("logs %q, %q, %v", out.String(), errs.String(), err)
	}

	a = &answered{}
	monitor(t, sb, Request{Args: []string{"no-such-program"}}, a)
	if !strings.Contains(a.String(), `"code":"program_not_found"`) || !strings.Contains(a.String(), `"exec":"e000002"`) {
		t.Errorf("answer %q", a.String())
	}
	// Where nobody hears the answer nothing goes on.
	start := time.Now()
	monitor(t, sb, sh("sleep 100"), &answered{err: unix.EPIPE})
	if took := time.Since(start); took > 50*time.Second {
		t.Errorf("an exec that nobody knows went on for %v", took)
	}
	if names, _ := os.ReadDir(filepath.Join(sb.store.path, sb.state.ID, detached.ExecsDir)); len(names) != 1 {
		t.Errorf("left %v", names)
	}
}
