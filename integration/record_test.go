package integration

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxrun/sandboxrun/record"
)

// scriptRecord writes the record of a sandbox whose id is the directory's name. Its policy has the digest in the file "digest". It
// is whole, or of another KIND: "unfinished", "broken" with a claim that does not hold, "left" with what a sandbox leaves. With
// a KEY it is signed.
func scriptRecord(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: record DIR KIND [KEY]")
	}
	path := ts.MkAbs(args[0])
	ts.Check(os.Mkdir(path, 0o700))
	dir, err := os.Open(path)
	ts.Check(err)
	defer dir.Close()
	w, err := record.Create(dir, record.FileName)
	ts.Check(err)
	defer func() { ts.Check(w.Close()) }()
	ts.Check(w.Append(recordOf(filepath.Base(path), strings.TrimSpace(ts.ReadFile("digest")), args[1])...))
	if len(args) == 3 {
		key, err := record.PrivateKey([]byte(ts.ReadFile(args[2])))
		ts.Check(err)
		ts.Check(record.Sign(dir, record.FileName, w.Head(), key))
	}
}

func recordOf(id, policy, kind string) []record.Event {
	argv := record.ArgvDigest([]string{"true"})
	events := []record.Event{
		&record.Session{
			Sandbox: id, PolicyFile: "p\x1b[1m.toml", PolicyDigest: policy, SpecDigest: record.Digest([]byte("{}")), Kernel: "6.1.0",
			Backend: "sandboxrun", Network: "isolated",
			Limits: []record.Limit{{Name: "wall", Value: 1, EnforcedBy: "timer"}, {Name: "pids", Value: 8, EnforcedBy: "cgroup2", Verified: true}},
			Weaker: []record.Weakness{{What: "limits.cpus", Reason: "no control group"}},
		},
		&record.Check{Name: "home", Layer: "files", What: "the home is hidden", Control: "it is there outside", Result: record.Held},
		&record.Check{Name: "ptrace", Layer: "processes", What: "nobody can be traced", Result: record.NotTested, Why: "forbidden outside, too"},
		&record.Run{Exec: "e000001", ArgvSHA256: argv, Cwd: "/w", Outcome: "exited"},
		&record.Network{Exec: "e000002", Way: "http", Host: "example.com", Port: 80, Verdict: "refused"},
		&record.Run{Exec: "e000002", ArgvSHA256: argv, Cwd: "/w", Outcome: "timeout", ExitCode: 124},
	}
	end := &record.End{Why: record.Deleted, Execs: 2, Leftovers: []string{}, Orphans: []record.Orphan{}}
	switch kind {
	case "unfinished":
		return events
	case "broken":
		events = append(events, &record.Check{Name: "raw", Layer: "network", What: "no raw socket can be made", Result: record.Broken, Why: "it was made"})
	case "left":
		end.Leftovers, end.Orphans, end.Execs = []string{"/w/made"}, []record.Orphan{{PID: 7, Command: "sleep"}}, 3
	}
	return append(events, end)
}
