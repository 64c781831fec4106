package record

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func openDir(t *testing.T, path string) *os.File {
	t.Helper()
	d, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func create(t *testing.T, dir *os.File) *Writer {
	t.Helper()
	w, err := Create(dir, FileName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func add(t *testing.T, w *Writer, events ...Event) {
	t.Helper()
	if err := w.Append(events...); err != nil {
		t.Fatal(err)
	}
}

func session(sandbox string) *Session {
	return &Session{
		Sandbox: sandbox, PolicyFile: "/p/tâsk.toml", PolicyDigest: Digest([]byte("policy")), SpecDigest: Digest([]byte("{}")),
		Kernel: "6.1", Backend: "sandboxrun", Process: &Process{Seccomp: 2}, Network: "allowlist",
		Mounts: []Mount{{Target: "/usr", Source: "/usr", Kind: "bind"}},
		Limits: []Limit{{"wall", 1.5, "timer", false}, {"pids", 8, "cgroup2", true}},
		Weaker: []Weakness{{"limits.cpus", "no control group"}},
	}
}

func run(exec, outcome string, status int) *Run {
	return &Run{Exec: exec, ArgvSHA256: ArgvDigest([]string{"sh", "-c", "true"}), Cwd: "/w", Outcome: outcome, ExitCode: status}
}

// story is all events of a sandbox.
func story(sandbox string) []Event {
	return []Event{
		session(sandbox),
		&Check{Name: "home", Layer: "files", What: "the caller's home is hidden", Control: "it can be read outside", Result: Held},
		&Check{Name: "raw", Layer: "network", What: "no raw socket", Result: NotTested, Why: "the caller has none, too"},
		run("e000001", "exited", 0),
		&Network{Way: "http", Host: "example.com", Port: 80, Verdict: "allowed", BytesIn: 7},
		&Network{Way: "dns", Host: "evil.example", Verdict: "refused", Reason: "not_listed"},
		run("e000002", "timeout", 124),
		&End{Why: Deleted, Execs: 2, Released: []string{"namespaces"}, Leftovers: []string{}, Orphans: []Orphan{}},
	}
}

// made is a record of events, as bytes, and its head.
func made(t *testing.T, events ...Event) ([]byte, Head) {
	t.Helper()
	path := t.TempDir()
	w := create(t, openDir(t, path))
	for _, e := range events {
		add(t, w, e)
	}
	return content(t, path), w.Head()
}

func content(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func verify(t *testing.T, data []byte, o Options) *Report {
	t.Helper()
	r, err := Verify(bytes.NewReader(data), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// codes are the problems of a report: "code:line".
func codes(r *Report) string {
	var list []string
	for _, p := range r.Problems {
		code := p.Code
		if p.Line > 0 {
			code += ":" + string(rune('0'+p.Line))
		}
		list = append(list, code)
	}
	return strings.Join(list, " ")
}

func lines(data []byte) []string { return slices.Collect(strings.Lines(string(data))) }

// forge replaces text in a line and calculates its hash anew.
func forge(line, old, with string) string {
	body, _, _ := strings.Cut(strings.Replace(line, old, with, 1), hashMark)
	return body + hashMark + Digest([]byte(body)) + "\"}\n"
}

// chain calculates all hashes anew.
func chain(list []string) string {
	prev := noHash()
	var out strings.Builder
	for _, l := range list {
		var h header
		_ = json.Unmarshal([]byte(l), &h)
		l = forge(l, h.Prev, prev)
		_ = json.Unmarshal([]byte(l), &struct {
			Hash *string `json:"hash"`
		}{&prev})
		out.WriteString(l)
	}
	return out.String()
}
