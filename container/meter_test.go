package container

import (
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/stats"
)

// TestMeter looks at real programs.
func TestMeter(t *testing.T) {
	sb := sandboxOf(t, "limits.pids = 50\nlimits.memory = \"1G\"\nlimits.cpus = 1\nlimits.cpu = 60\nenforce = \"best_effort\"")
	m := sb.Meter()
	look := func() stats.Stats {
		t.Helper()
		s, err := m.Read()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := look()
	if s.Execs != 0 || s.Pids != 0 || s.CPUMS != 0 || s.MemoryBytes > 2<<20 || s.CPUPercent != nil || s.DiskBytes != nil || s.DiskLimit != nil {
		t.Errorf("nothing runs: %+v", s)
	}
	if *s.PidsLimit != 50 || *s.MemoryLimit != 1<<30 || *s.CPULimitPercent != 100 || *s.CPULimitMS != 60000 {
		t.Errorf("limits: %+v", s)
	}
	idle := startReady(t, sb, "head -c 20000000 /dev/zero >/tmp/file; sleep 100 & sleep 100 & echo ready; wait")
	busy := startReady(t, sb, "echo ready; while :; do :; done")
	look()
	time.Sleep(400 * time.Millisecond)
	s = look()
	if s.Execs != 2 || s.Pids != 4 || s.MemoryBytes < 20_000_000 || s.MemoryBytes > 60_000_000 {
		t.Errorf("two execs: %+v", s)
	}
	if s.CPUMS < 30 || s.CPUMS > 20_000 || *s.CPUPercent < 5 || *s.CPUPercent > 130 {
		t.Errorf("a busy one: %v ms, %v %%", s.CPUMS, *s.CPUPercent)
	}
	for _, r := range []*Running{idle, busy} {
		if err := r.process.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := r.Wait(); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	look()
	time.Sleep(200 * time.Millisecond)
	if s = look(); s.Execs != 0 || s.Pids != 0 || *s.CPUPercent > 5 || s.CPUMS != 0 {
		t.Errorf("nothing runs any more: %+v", s)
	}
	sb.end()
	if _, err := m.Read(); err == nil || err.(*Error).Code != "sandbox_lost" { //nolint:errorlint // it is one
		t.Error(err)
	}
	if !sb.WaitEnd(t.Context(), time.Hour) {
		t.Error("it has not ended")
	}
}

func TestWaitEndWaits(t *testing.T) {
	sb := newSandbox(t)
	for _, d := range []time.Duration{0, 500 * time.Microsecond, 230 * time.Millisecond} {
		start := time.Now()
		if sb.WaitEnd(t.Context(), d) || time.Since(start) < d || time.Since(start) > d+2*time.Second {
			t.Errorf("%v: waited %v", d, time.Since(start))
		}
	}
}

func BenchmarkLook(b *testing.B) {
	sb := newSandbox(b)
	m := sb.Meter()
	for b.Loop() {
		if _, err := m.Read(); err != nil {
			b.Fatal(err)
		}
	}
}
