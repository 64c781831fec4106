package container

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/result"
)

// eventStore makes what events are written to and read from: a directory with a state file, without a sandbox in it.
func eventStore(tb testing.TB) (*Store, *Sandbox) {
	tb.Helper()
	store, err := OpenStore(filepath.Join(tb.TempDir(), "state"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(store.Close)
	st := &State{Version: stateVersion, ID: "x", Name: "pair", Policy: "/p.toml", Owner: &owner.Owner{PID: 7, Name: "sh"}}
	if err := store.root.Mkdir("x", 0o700); err != nil {
		tb.Fatal(err)
	}
	data, err := json.Marshal(st)
	if err != nil {
		tb.Fatal(err)
	}
	if err := store.save("x", data); err != nil {
		tb.Fatal(err)
	}
	dir, err := store.root.Open("x")
	if err != nil {
		tb.Fatal(err)
	}
	sb := &Sandbox{store: store, state: st, dir: dir}
	tb.Cleanup(sb.Close)
	return store, sb
}

func eventsOf(t *testing.T, s *Store) []journal.Event {
	t.Helper()
	var list []journal.Event
	if err := s.Events(t.Context(), "x", false, func(e journal.Event) error {
		list = append(list, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

func kinds(list []journal.Event) string {
	var names []string
	for _, e := range list {
		names = append(names, strings.TrimSpace(e.Exec+" "+e.Event))
	}
	return strings.Join(names, ", ")
}

func readEvents(t *testing.T, sb *Sandbox, name string) string {
	t.Helper()
	data, err := sb.store.root.ReadFile("x/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestEventLines: the very bytes, which forkexec/client.c writes too.
func TestEventLines(t *testing.T) {
	store, sb := eventStore(t)
	failed := result.FindingFailed
	r := &Running{Name: "e000001", sb: sb}
	results := []*result.Result{
		{Outcome: result.Exited, Usage: result.Usage{WallMS: 12.1, CPUMS: 9.034, MaxRSSBytes: 9437184}, Warnings: []string{`"a" <b>`}},
		{Outcome: result.Signaled, ExitCode: 143, Finding: &failed},
	}
	if err := errors.Join(sb.noteCreated(), r.noteStarted("python3"), r.noteEnded(results[0]), r.noteEnded(results[1])); err != nil {
		t.Fatal(err)
	}
	const at = `{"time":"TIME","event":`
	want := at + `"created","name":"pair","policy":"/p.toml","owner":{"pid":7,"name":"sh"}}
` + at + `"exec_started","exec":"e000001","command":"python3"}
` + at + `"warning","exec":"e000001","message":"\"a\" <b>"}
` + at + `"exec_ended","exec":"e000001","outcome":"exited","finding":null,"exit_code":0,"wall_ms":12.1,"cpu_ms":9.034,"max_rss_bytes":9437184}
` + at + `"exec_ended","exec":"e000001","outcome":"signaled","finding":"PROGRAM_FAILED","exit_code":143,"wall_ms":0,"cpu_ms":0,"max_rss_bytes":0}
`
	got := regexp.MustCompile(`"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"`).ReplaceAllString(readEvents(t, sb, journal.File), `"TIME"`)
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	list := eventsOf(t, store)
	if kinds(list) != "created, e000001 exec_started, e000001 warning, e000001 exec_ended, e000001 exec_ended" {
		t.Fatal(kinds(list))
	}
	if time.Since(list[0].Time) > time.Minute || list[0].Owner.PID != 7 || list[1].Command != "python3" || list[3].WallMS != 12.1 ||
		*list[4].Finding != failed || list[4].ExitCode != 143 || list[2].Message != `"a" <b>` {
		t.Errorf("%+v", list)
	}
	if info, err := store.root.Stat("x/" + journal.File); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// TestEventsCannotSteerATerminal: whatever a program is called, the file is one of printable lines, and says so in JSON.
func TestEventsCannotSteerATerminal(t *testing.T) {
	store, sb := eventStore(t)
	r := &Running{Name: "e000001", sb: sb}
	names := []string{
		"\x1b[31m\n{\"time\":\"", "\u009b2J", "\x7f", "\u202egnp.exe", "\xff\xfe", "é 😀", "\U000e0041", strings.Repeat("é", 200), `a\b"c`, "",
	}
	for _, name := range names {
		if err := r.noteStarted(name); err != nil {
			t.Fatal(err)
		}
	}
	text := readEvents(t, sb, journal.File)
	if i := strings.IndexFunc(text, journal.Unprintable); i >= 0 {
		t.Errorf("%q", text[i:])
	}
	if n := strings.Count(text, "\n"); n != len(names) {
		t.Errorf("%d lines", n)
	}
	for i, e := range eventsOf(t, store) {
		want := strings.ToValidUTF8(strings.ReplaceAll(names[i], "\xff\xfe", "\ufffd\ufffd"), "\ufffd")
		if len(want) > journal.MaxCommand {
			want = strings.Repeat("é", (journal.MaxCommand-3)/2) + "…"
		}
		if e.Command != want {
			t.Errorf("%q became %q", names[i], e.Command)
		}
	}
}

// TestTornEvents: a full disk cuts lines off, also in the middle of the file.
func TestTornEvents(t *testing.T) {
	store, sb := eventStore(t)
	r := &Running{Name: "e000001", sb: sb}
	line := func(name string) string {
		e := journal.Event{Time: time.Now(), Event: journal.Started, Exec: name, ExecStart: &journal.ExecStart{Command: "x"}}
		text, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	whole := line("e000002")
	for cut := range len(whole) {
		text := line("e000001") + whole[:cut] + line("e000003") + "\n" + "{}\nnull\n7\n" + whole[:cut]
		if err := store.root.WriteFile("x/"+journal.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := kinds(eventsOf(t, store)); got != "e000001 exec_started, e000003 exec_started" {
			t.Fatalf("cut after %d: %s", cut, got)
		}
	}
	if err := store.root.WriteFile("x/"+journal.File, []byte(whole[:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.noteStarted("y"); err != nil {
		t.Fatal(err)
	}
	if got := kinds(eventsOf(t, store)); got != "e000001 exec_started" {
		t.Error(got)
	}
}

// TestEventsStaySmall: however many there are, and with many writers, no line is lost around a change of files or mixed.
func TestEventsStaySmall(t *testing.T) {
	store, sb := eventStore(t)
	old := strings.Repeat(strings.Repeat("x", 1023)+"\n", journal.MaxSize>>10)
	if err := store.root.WriteFile("x/"+journal.File, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	const writers, each = 8, 200
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				r := &Running{Name: fmt.Sprintf("e%03d%03d", w, i), sb: sb}
				if err := errors.Join(r.noteStarted("p"), r.noteEnded(&result.Result{Outcome: result.Exited})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	rotated, text := readEvents(t, sb, journal.OldFile), readEvents(t, sb, journal.File)
	if !strings.HasPrefix(rotated, old) || len(text) > writers*each*400 || len(rotated) > journal.MaxSize+writers*each*400 {
		t.Errorf("the old file has %d bytes, the new one %d", len(rotated), len(text))
	}
	var names []string
	for _, e := range eventsOf(t, store) {
		names = append(names, e.Exec+e.Event)
	}
	slices.Sort(names)
	if n := len(slices.Compact(names)); n != 2*writers*each {
		t.Errorf("%d events of %d", n, 2*writers*each)
	}
	for scan := bufio.NewScanner(strings.NewReader(text)); scan.Scan(); {
		if !json.Valid(scan.Bytes()) {
			t.Errorf("no JSON: %s", scan.Text())
		}
	}
}

// TestFollowEvents: across changes of files, each event comes once and in order.
func TestFollowEvents(t *testing.T) {
	sb := newSandbox(t)
	type seen struct {
		names []string
		err   error
	}
	done := make(chan seen)
	first := make(chan bool, 1000)
	go func() {
		var s seen
		s.err = sb.store.Events(t.Context(), "test", true, func(e journal.Event) error {
			s.names = append(s.names, strings.TrimSpace(e.Exec+" "+e.Event))
			first <- true
			return nil
		})
		done <- s
	}()
	want := []string{"created"}
	note := func(name string) {
		t.Helper()
		if err := (&Running{Name: name, sb: sb}).noteStarted("x"); err != nil {
			t.Fatal(err)
		}
		want = append(want, name+" exec_started")
		<-first
	}
	<-first
	for i := range 5 {
		note(fmt.Sprintf("a%d", i))
		if i%2 == 1 {
			if err := sb.store.root.Rename("test/"+journal.File, "test/"+journal.OldFile); err != nil {
				t.Fatal(err)
			}
		}
	}
	sb.end()
	want = append(want, "ended")
	s := <-done
	if s.err != nil || !slices.Equal(s.names, want) {
		t.Errorf("%v\ngot  %q\nwant %q", s.err, s.names, want)
	}
}

func TestFollowEventsOfOneThatHasEnded(t *testing.T) {
	store, sb := eventStore(t)
	if err := sb.noteCreated(); err != nil {
		t.Fatal(err)
	}
	var got []journal.Event
	each := func(e journal.Event) error {
		got = append(got, e)
		return nil
	}
	if err := store.Events(t.Context(), "x", true, each); err != nil || kinds(got) != "created, ended" {
		t.Errorf("%v %s", err, kinds(got))
	}
	if last := string(got[len(got)-1].Line); !regexp.MustCompile(`^{"time":"[^"]+","event":"ended"}$`).MatchString(last) {
		t.Error(last)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Events(ctx, "x", true, each); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	full := errors.New("full")
	if err := store.Events(t.Context(), "x", true, func(journal.Event) error { return full }); !errors.Is(err, full) {
		t.Error(err)
	}
	if err := store.Events(t.Context(), "y", true, each); err == nil || err.(*Error).Code != "not_found" { //nolint:errorlint // it is one
		t.Error(err)
	}
}

// TestEventThatCannotBeKept: the exec goes on, and says so.
func TestEventThatCannotBeKept(t *testing.T) {
	sb := newSandbox(t)
	if err := sb.store.root.Remove("test/" + journal.File); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, filepath.Join(sb.store.path, "test", journal.File)); err != nil {
		t.Fatal(err)
	}
	r := run(t, sb, sh("echo out; exit 3"))
	if r.ExitCode != 3 || r.Stdout != "out\n" || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "not kept") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("it followed a link")
	}
}

// TestLateEventsMakeNothing: a sandbox that is deleted while an exec ends stays deleted.
func TestLateEventsMakeNothing(t *testing.T) {
	store, sb := eventStore(t)
	r := &Running{Name: "e000001", sb: sb}
	if err := r.noteEnded(&result.Result{Outcome: result.Exited}); err != nil {
		t.Error(err)
	}
	if err := store.root.Mkdir("y", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.root.RemoveAll("x"), store.root.Rename("y", "x")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.noteEnded(&result.Result{Outcome: result.Exited}), r.noteStarted("z")); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(store.path, "x")); err != nil || len(entries) > 0 {
		t.Errorf("%v %v", entries, err)
	}
}

// BenchmarkEvents is what Start and Wait pay.
func BenchmarkEvents(b *testing.B) {
	_, sb := eventStore(b)
	r := &Running{Name: "e000001", sb: sb}
	res := &result.Result{Outcome: result.Exited, Usage: result.Usage{WallMS: 12.1, CPUMS: 9.034, MaxRSSBytes: 9437184}}
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			if err := r.noteStarted("/usr/bin/python3"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("wait", func(b *testing.B) {
		for b.Loop() {
			if err := r.noteEnded(res); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestDeleteWhileExecsStart: what execs write into the sandbox's directory keeps nobody from deleting it, and is not left.
func TestDeleteWhileExecsStart(t *testing.T) {
	for range 20 {
		sb := newSandbox(t)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for {
					r, err := sb.Start(Request{Args: []string{"/bin/true"}})
					if err != nil {
						return
					}
					if _, err := r.Wait(); err != nil {
						return
					}
				}
			})
		}
		runTrue(t, sb)
		if err := sb.store.Delete("test", nil); err != nil {
			t.Error(err)
		}
		group.Wait()
		if _, err := sb.store.root.Lstat("test"); err == nil {
			t.Error("something is left")
		}
	}
}
