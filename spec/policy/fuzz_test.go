package policy

import (
	"errors"
	"strings"
	"testing"
)

// FuzzLoad: loading never panics, every problem has a place, and a loaded policy says the same when it is written down
// and read again.
func FuzzLoad(f *testing.F) {
	f.Add(everything)
	f.Add(everythingJSON)
	for _, s := range []string{
		"", "{", "version = 1\n[files]\nread = [\"~/x\", '$DATA', '$$x']", "version = 1\nextends = \"default\"",
		"version = 1\nextends = './b.toml'\n", "[[a]]\n[a.b]\n[[a.b.c]]", "a=[[[[1,{b=[]}]]]]", "x = 1979-05-27T07:32:00Z",
		`{"version":1,"env":{"set":{"A":"\u0000"}}}`, "version = 1\n[limits]\nwall = 1e-300\ncpus = 1e300",
		"version = 1\nnetwork = {ports = [1, '2=[::1]:3'], allowed_hosts = ['::1']}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		in := withFiles(input("p.toml", data), map[string]string{"/p/b.toml": data, "/p/c.toml": "version = 1\nworkdir = 'x'\n"})
		p, err := Load(in)
		if bad, ok := errors.AsType[*Error](err); ok {
			for _, problem := range bad.Problems {
				if problem.Line < 1 || problem.Column < 1 || problem.File == "" || problem.Message == "" {
					t.Fatalf("problem without a place: %+v", problem)
				}
				if lines := strings.Count(data, "\n") + 1; problem.File == "p.toml" && problem.Line > lines {
					t.Fatalf("line %d of %d: %+v", problem.Line, lines, problem)
				}
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := Load(Input{Name: "c.json", Data: p.Canonical(), Dir: "/elsewhere"})
		if err != nil {
			t.Fatalf("written down, it is wrong: %v\n%s", err, p.Canonical())
		}
		samePolicy(t, again, p)
	})
}
