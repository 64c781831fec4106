package container

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// filled puts values into the holes of a template, as answer.c does.
func filled(t *testing.T, template string, values map[string]string) string {
	t.Helper()
	for hole, value := range values {
		if n := strings.Count(template, hole); n != 1 {
			t.Fatalf("hole %q is there %d times in %q", hole, n, template)
		}
		template = strings.Replace(template, hole, value, 1)
	}
	if strings.Contains(template, "\x01") {
		t.Fatalf("a hole is left in %q", template)
	}
	return template
}

// TestResultTemplates: a template with its holes filled is, to the byte, the result that the long way gives.
func TestResultTemplates(t *testing.T) {
	for _, text := range []string{"", "limits.wall = \"30s\"\nlimits.nofile = 100", "limits.wall = \"30s\"\nlimits.cpu = \"50s\"\nlimits.pids = 20"} {
		sb := sandboxOf(t, text)
		for _, merged := range []bool{false, true} {
			for _, timeout := range []time.Duration{0, 7 * time.Second} {
				template, err := sb.resultTemplate(merged, timeout > 0)
				if err != nil || template == "" {
					t.Fatalf("%q: %q, %v", text, template, err)
				}
				var cmd forkexec.Command
				limits := sb.effective(Request{Timeout: timeout})
				sb.limit(&cmd, limits, nil)
				reported, err := sb.reported(&cmd, limits)
				if err != nil {
					t.Fatal(err)
				}
				out, errs := stream.NewKeeper(100), stream.NewKeeper(100)
				_, _ = out.Write([]byte("out\n"))
				_, _ = errs.Write([]byte("err"))
				long := (&Running{sb: sb, Name: "e000007", limits: limits, reported: reported, streams: stream.Ended(out, errs, merged, nil)}).
					conclude(forkexec.Status{Wait: 3 << 8, CPU: 1500 * time.Microsecond, MaxRSS: 4096, Written: 512, Tasks: 2}, 12*time.Millisecond, false)
				want, err := long.Encode()
				if err != nil {
					t.Fatal(err)
				}
				values := map[string]string{
					forkexec.HoleExec: "e000007", forkexec.HoleStatus: "3", forkexec.HoleFinding: strconv.Quote(result.FindingFailed),
					forkexec.HoleStdout: `out\n`, forkexec.HoleStderr: "err", forkexec.HoleStdoutBytes: "4", forkexec.HoleStderrBytes: "3",
					forkexec.HoleWall: "12", forkexec.HoleCPU: "1.5", forkexec.HoleRSS: "4096", forkexec.HoleWritten: "512", forkexec.HoleTasks: "2",
				}
				if timeout > 0 {
					values[forkexec.HoleWallLimit] = "7"
					if sb.state.Launch.CPUFollowsWall {
						values[forkexec.HoleCPULimit] = "14"
					}
				}
				if got := filled(t, template, values); got+"\n" != string(want) {
					t.Errorf("%q, merged %v, timeout %v:\n got %s\nwant %s", text, merged, timeout, got, want)
				}
			}
		}
	}
}

// TestEventTemplates: the same of events.
func TestEventTemplates(t *testing.T) {
	sb := newSandbox(t)
	a, err := sb.answer()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	finding := result.FindingFailed
	for _, c := range []struct {
		template string
		event    journal.Event
		values   map[string]string
	}{
		{
			a.Started,
			journal.Event{Event: journal.Started, ExecStart: &journal.ExecStart{Command: "sh"}},
			map[string]string{forkexec.HoleCommand: "sh"},
		},
		{
			a.Ended,
			journal.Event{Event: journal.Ended, ExecEnd: &journal.ExecEnd{
				Outcome: result.Exited, Finding: &finding, ExitCode: 5, WallMS: 2.5, CPUMS: 1, MaxRSSBytes: 9,
			}},
			map[string]string{
				forkexec.HoleFinding: strconv.Quote(finding), forkexec.HoleStatus: "5", forkexec.HoleWall: "2.5", forkexec.HoleCPU: "1", forkexec.HoleRSS: "9",
			},
		},
	} {
		c.event.Exec, c.event.Time = "e000009", at
		want, err := c.event.Encode()
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(c.values, map[string]string{forkexec.HoleExec: "e000009", forkexec.HoleTime: at.Format(journal.TimeForm)})
		if got := filled(t, c.template, c.values); got != strings.TrimSuffix(string(want), "\n") {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	if a.Fine != "null" || a.Failed != `"PROGRAM_FAILED"` || a.Output != outputLimit(sb.state.Launch.Limits) {
		t.Errorf("%+v", a)
	}
}

// TestShortWayIsForPlainExecs: where an exec has more to do than to start a program, the short way is not offered.
func TestShortWayIsForPlainExecs(t *testing.T) {
	sb := newSandbox(t)
	filter, err := sb.loadFilter()
	if err != nil {
		t.Fatal(err)
	}
	whole := *sb.state
	offered := func() bool {
		t.Helper()
		data, err := sb.shortLaunch(filter)
		if err != nil {
			t.Fatal(err)
		}
		return data != nil
	}
	if !offered() {
		t.Fatal("a plain sandbox has no short way")
	}
	for name, change := range map[string]func(*State){
		"a limit of the disk":          func(st *State) { st.Launch.Limits.Disk = 1 },
		"no further process":           func(st *State) { st.Launch.NoSpawn = true },
		"a list of programs":           func(st *State) { st.Launch.Execute = []string{"/bin/sh"} },
		"a record":                     func(st *State) { st.Record = &recording.Location{Dir: "/r"} },
		"hosts that are to be refused": func(st *State) { st.Relay = &spec.Relay{}; st.Relay.Policy.Explain = true },
	} {
		st := whole
		change(&st)
		sb.state = &st
		if offered() {
			t.Errorf("%s: the short way is offered", name)
		}
		sb.state = &whole
	}
}

// TestVisible: where a caller's result may not go is each place that a program sees, by its number.
func TestVisible(t *testing.T) {
	ws := t.TempDir()
	sb := sandboxOf(t, "files.write = ["+quote(ws)+"]")
	var st unix.Stat_t
	if err := unix.Stat(ws, &st); err != nil {
		t.Fatal(err)
	}
	list := sb.visible()
	if !slices.Contains(list, [2]uint64{st.Dev, st.Ino}) {
		t.Errorf("%v lacks the grant, %d:%d", list, st.Dev, st.Ino)
	}
	if err := unix.Stat("/", &st); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(list, [2]uint64{st.Dev, st.Ino}) {
		t.Error("the host's root is said to be shown")
	}
	sb.end()
	if list := sb.visible(); list != nil {
		t.Errorf("of a sandbox that has ended: %v", list)
	}
}

// TestEndedExecs: an exec of the short way that did not just exit is judged as any other.
func TestEndedExecs(t *testing.T) {
	sb := sandboxOf(t, "limits.wall = \"10s\"\nlimits.output = 8")
	const killed = unix.WaitStatus(unix.SIGKILL)
	ring := forkexec.Kept{Total: 20, Head: []byte("head"), Tail: []byte("lait"), Next: 2} // a ring that goes on in its middle
	for _, c := range []struct {
		name    string
		short   forkexec.Short
		req     Request
		outcome string
		code    int
		check   func(*result.Result) bool
	}{
		{"exited", forkexec.Short{}, Request{}, result.Exited, 0, func(r *result.Result) bool { return r.Finding == nil && r.Exec == "e000003" && !r.TimedOut }},
		{"failed", forkexec.Short{Status: forkexec.Status{Wait: 4 << 8}}, Request{}, result.Exited, 4, func(r *result.Result) bool { return *r.Finding == result.FindingFailed }},
		{"by a signal", forkexec.Short{Status: forkexec.Status{Wait: unix.WaitStatus(unix.SIGTERM)}}, Request{}, result.Signaled, 143, func(r *result.Result) bool { return *r.Signal == "SIGTERM" }},
		{"by the clock", forkexec.Short{Status: forkexec.Status{Wait: killed, Why: forkexec.ByWall}, Wall: 10 * time.Second}, Request{}, result.Timeout, 124, func(r *result.Result) bool {
			return r.TimedOut && r.Signal == nil && r.Usage.WallMS == 10000
		}},
		{"by itself, before the clock", forkexec.Short{Status: forkexec.Status{Why: forkexec.ByWall}}, Request{}, result.Exited, 0, func(r *result.Result) bool { return !r.TimedOut }},
		{"without memory", forkexec.Short{Status: forkexec.Status{Wait: killed, OutOfMemory: true}}, Request{}, result.MemoryExceeded, 137, nil},
		{"lost", forkexec.Short{Status: forkexec.Status{Lost: true}}, Request{}, result.SandboxLost, 125, nil},
		{"another time", forkexec.Short{Status: forkexec.Status{Wait: killed, Why: forkexec.ByWall}}, Request{Timeout: 2 * time.Second}, result.Timeout, 124, func(r *result.Result) bool {
			at := slices.IndexFunc(r.Limits, func(l spec.Limit) bool { return l.Name == "wall" })
			return at >= 0 && r.Limits[at].Value == 2
		}},
		{"much output", forkexec.Short{Output: [2]forkexec.Kept{ring, {Total: 3, Head: []byte("err")}}}, Request{}, result.Exited, 0, func(r *result.Result) bool {
			return r.StdoutTruncated && r.StdoutBytes == 20 && strings.HasPrefix(r.Stdout, "head") && strings.HasSuffix(r.Stdout, "itla") && r.Stderr == "err"
		}},
		{"both streams in one", forkexec.Short{Merged: true, Output: [2]forkexec.Kept{{Total: 3, Head: []byte("one")}}}, Request{}, result.Exited, 0, func(r *result.Result) bool {
			return r.Merged && r.Stdout == "one" && r.Stderr == ""
		}},
		{"its output went elsewhere", forkexec.Short{Output: [2]forkexec.Kept{{Total: 50}}}, Request{Stdout: &strings.Builder{}}, result.Exited, 0, func(r *result.Result) bool {
			return r.Stdout == "" && r.StdoutBytes == 50 && !r.StdoutTruncated
		}},
		{"no text", forkexec.Short{Output: [2]forkexec.Kept{{Total: 2, Head: []byte{0xff, 'a'}}}}, Request{}, result.Exited, 0, func(r *result.Result) bool { return r.StdoutBase64 == "/2E=" }},
		{"a relay that has ended", forkexec.Short{RelayGone: true}, Request{}, result.Exited, 0, func(r *result.Result) bool { return slices.Contains(r.Warnings, relayEnded) }},
		{"an event that was not kept", forkexec.Short{NoteFailed: unix.ENOSPC}, Request{}, result.Exited, 0, func(r *result.Result) bool {
			return len(r.Warnings) > 0 && strings.Contains(r.Warnings[0], "no space")
		}},
		{"input that failed", forkexec.Short{InputFailed: unix.EIO}, Request{}, result.Exited, 0, func(r *result.Result) bool { return r.Error != nil && r.Error.Code == fault.InputFailed }},
	} {
		short := c.short
		short.Exec, short.State = "e000003", sb.dir
		res, err := (&Ended{&short, sb}).Result(c.req)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if res.Outcome != c.outcome || res.ExitCode != c.code || c.check != nil && !c.check(res) || res.Sandbox != sb.state.ID || !res.Isolated {
			t.Errorf("%s: %+v", c.name, res)
		}
	}
	// An end that is noted already is not noted twice.
	noted := func() int { return strings.Count(readAll(t, sb, journal.File), `"exec_ended"`) }
	was := noted()
	for i, short := range []forkexec.Short{{Noted: true}, {}} {
		short.Exec, short.State = "e000004", sb.dir
		if _, err := (&Ended{&short, sb}).Result(Request{}); err != nil || noted() != was+i {
			t.Errorf("noted %v: %d events, were %d, %v", short.Noted, noted(), was, err)
		}
	}
	e := &Ended{&forkexec.Short{Output: [2]forkexec.Kept{{Failed: unix.EPIPE}}}, sb}
	if !errors.Is(e.Failed(0), unix.EPIPE) || e.Failed(1) != nil || e.File("x") != nil {
		t.Errorf("failed: %v, %v", e.Failed(0), e.Failed(1))
	}
}

func readAll(t *testing.T, sb *Sandbox, name string) string {
	t.Helper()
	data, err := sb.store.root.ReadFile(sb.state.ID + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRequestsTravel: what a monitor is sent is what it carries out, whatever bytes are in it, and an order that is none starts nothing.
func TestRequestsTravel(t *testing.T) {
	req := Request{
		Timeout: time.Second, Memory: 1, Pids: 2,
		Carried: Carried{Put: []Put{{Path: "a\xff", Data: []byte{0, 0xff}, Mode: 0o600}}, Fresh: []string{"~"}, Collect: []Collect{{Path: "*", Max: 3}}, Answer: true},
	}
	data, err := json.Marshal((&Store{path: "/s"}).order("id", req))
	if err != nil {
		t.Fatal(err)
	}
	var o order
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	got := o.request()
	if got.Timeout != req.Timeout || got.Memory != 1 || got.Pids != 2 || !reflect.DeepEqual(got.Fresh, req.Fresh) || !reflect.DeepEqual(got.Collect, req.Collect) || !got.Answer {
		t.Errorf("%+v", got)
	}
	if len(got.Put) != 1 || string(got.Put[0].Data) != "\x00\xff" || got.Put[0].Mode != 0o600 {
		t.Errorf("%+v", got.Put)
	}
	root := base64.StdEncoding.EncodeToString([]byte(t.TempDir()))
	for _, text := range []string{"", "{", "[]", `{"Root":"%"}`, `{"Root":"` + root + `","ID":"../x"}`} {
		if m, err := startOrdered(strings.NewReader(text)); err == nil {
			t.Errorf("%q was carried out: %+v", text, m)
		}
	}
	for _, c := range []struct {
		list [][]byte
		want map[string]string
	}{
		{nil, map[string]string{}}, {[][]byte{[]byte("A=b=c"), []byte("D="), []byte("E")}, map[string]string{"A": "b=c", "D": "", "E": ""}},
	} {
		if got := assigned(c.list); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %v", c.list, got)
		}
	}
}
