package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// ending is a program that ends in one way.
type ending struct {
	flags   []string
	script  string // $0 is its token
	outcome string
	status  int // 0: any
}

// TestLoadVerdicts: 40 execs at once, of which each meets another limit or none. Each gets its own verdict.
func TestLoadVerdicts(t *testing.T) {
	d := share(t)
	flavours(t, func(b *box) {
		t := b.t
		endings := []ending{
			{[]string{"--timeout", "0.7"}, "sleep 30", result.Timeout, 124},
			{[]string{"--memory", "32M"}, "head -c 200m /dev/zero | tail -c 200m | sleep 30", result.MemoryExceeded, 137},
			{[]string{"--pids", "5"}, "for i in 1 2 3 4 5 6 7 8 9; do sleep 2 & done; wait", result.PidsExceeded, 0},
			{nil, "kill -9 $$; sleep 30", result.Signaled, 137},
			{[]string{"--timeout", "50"}, "head -c 2m /dev/zero >/tmp/$0; s=$?; rm /tmp/$0; exit $s", result.FileExceeded, 153},
			{[]string{"--memory", "64M", "--pids", "9"}, "exit 124", result.Exited, 124},
			{nil, "sleep 0.3; exit 137", result.Exited, 137},
			{nil, "exit 0", result.Exited, 0},
		}
		// The sandbox itself has enough for all of them together.
		p := b.limits(object{"wall": "60s", "memory": "4G", "pids": 1000, "file": "1M"})
		before := b.census0(p)
		b.create("box", p)
		rounds := 0
		for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); rounds++ {
			atOnce(40, 40, func(i int) { b.verdict("box", endings[i%len(endings)]) })
		}
		t.Logf("%d rounds of 40 execs", rounds)
		b.run("delete", "box").exits(0)
		b.settles(fmt.Sprintf("%d rounds", rounds), before)
	})
}

// verdict runs a program that ends so and compares.
func (b *box) verdict(id string, e ending) {
	b.t.Helper()
	o := newOwn()
	args := append(append([]string{"exec", "--json"}, e.flags...), id, "sh", "-c", "echo $0; "+e.script, o.token)
	a := b.run(args...)
	var r result.Result
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		b.t.Errorf("%v: %v", a, err)
		return
	}
	begun := strings.HasPrefix(r.Stdout, o.token+"\n") || e.outcome == result.Timeout && r.Stdout == "" // on a busy machine
	if r.Outcome != e.outcome || a.status != r.ExitCode || e.status != 0 && r.ExitCode != e.status || !begun {
		b.t.Errorf("want %s %d and %s: %v", e.outcome, e.status, o.token, a)
	}
}
