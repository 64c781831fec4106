package inspect

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/stats"
	"github.com/sandboxrun/sandboxrun/spec"
)

func sampleStats() *stats.Stats {
	memory, cpuLimit, percent, pids, disk, diskLimit := int64(512<<20), 60000.0, 98.4, int64(128), int64(1<<20), int64(1<<30)
	return &stats.Stats{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 600e6, time.Local), Sandbox: "s", Execs: 2, MemoryBytes: 500 << 20, MemoryLimit: &memory,
		CPUMS: 1200, CPULimitMS: &cpuLimit, CPUPercent: &percent, Pids: 5, PidsLimit: &pids, DiskBytes: &disk, DiskLimit: &diskLimit,
		EachExec: []string{"cpu"},
	}
}

func TestStatsTable(t *testing.T) {
	p := &Commands{&caller.Caller{Err: os.Stderr, Out: &caller.Output{File: os.Stdout}, Env: map[string]string{"NO_COLOR": "1"}}}
	want := `
             USED    LIMIT
memory       500M     512M
cpu         1.20s      60s  each exec
cpu now       98%        -
pids            5      128
disk           1M       1G
execs           2        -`
	if got := "\n" + strings.Join(p.statsTable(sampleStats(), true), "\n"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	s := sampleStats()
	s.DiskBytes, s.CPUPercent = nil, nil
	text := strings.Join(p.statsTable(s, false), "\n")
	if strings.Contains(text, "disk") || strings.Contains(text, "now") {
		t.Error(text)
	}
	line := statsLine(sampleStats())
	if line != "03:04:05.600  memory 500M/512M  cpu 1.20s/60s  cpu now 98%  pids 5/128  disk 1M/1G  execs 2" {
		t.Error(line)
	}
}

func TestScarceFiguresStandOut(t *testing.T) {
	near := map[string]bool{}
	s := sampleStats()
	full := 100.0
	s.CPULimitPercent = &full
	for _, f := range figures(s, true) {
		near[f.name] = f.near
	}
	if !near["memory"] || near["cpu"] || near["cpu now"] || near["pids"] {
		t.Errorf("%v", near)
	}
	if n := visibleWidth(show.Yellow + "abc" + show.Normal + "  d"); n != 6 {
		t.Error(n)
	}
}

func TestEventLine(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 123e6, time.UTC)
	finding := "WALL_CLOCK_EXCEEDED"
	tests := []struct {
		e    journal.Event
		want string
	}{
		{
			journal.Event{Time: now, Event: "exec_ended", Exec: "e000001", ExecEnd: &journal.ExecEnd{Outcome: "exited", WallMS: 12.1}},
			"15:04:05.123  exec_ended  e000001  exited 0  12 ms",
		},
		{journal.Event{Time: now, Event: "exec_ended", Exec: "e000002", ExecEnd: &journal.ExecEnd{
			Outcome: "timeout", Finding: &finding, ExitCode: 124, WallMS: 30012,
		}}, "15:04:05.123  exec_ended  e000002  timeout 124  WALL_CLOCK_EXCEEDED  30.0 s"},
		{journal.Event{Time: now.Add(-24 * time.Hour), Event: "exec_started", Exec: "e1", ExecStart: &journal.ExecStart{
			Command: "\x1b[31mx", Detached: true,
		}}, "2026-01-01 15:04:05.123  exec_started  e1  ?[31mx  detached"},
		{journal.Event{Time: now, Event: "created", Creation: &journal.Creation{
			Name: "a\x07b", Policy: "/p\u009b.toml", Owner: &owner.Owner{PID: 7, Name: "s\x1bh"},
			Limits: []spec.Limit{{Name: "memory", Value: 512 << 20}, {Name: "wall", Value: 1.5}, {Name: "pids", Value: 8}, {Name: "cpus", Value: 0.5}},
		}}, `15:04:05.123  created  name "a\ab"  policy /p?.toml  owner 7 (s?h)  memory 512M  wall 1.5s  pids 8  cpus 0.5`},
		{journal.Event{Time: now, Event: "warning", Exec: "e1", Message: "a\nb"}, "15:04:05.123  warning  e1  a?b"},
		{journal.Event{Time: now, Event: "ended"}, "15:04:05.123  ended"},
		{journal.Event{Time: now, Event: "of a later version"}, "15:04:05.123  of a later version"},
	}
	for _, tt := range tests {
		if got := eventLine(&tt.e, now); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
