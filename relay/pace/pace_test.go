package pace

import (
	"context"
	"testing"
	"time"
)

func TestBrake(t *testing.T) {
	var b Brake
	now := time.Now()
	for i := range RefusalBurst {
		if d := b.take(now, 1); d > 0 {
			t.Fatalf("number %d of a burst waits for %v", i, d)
		}
	}
	for i := 1; i <= 3; i++ {
		want := time.Duration(i) * time.Second / RefusalRate
		if d := b.take(now, 1); (d - want).Abs() > time.Millisecond {
			t.Errorf("number %d after it waits for %v, want %v", i, d, want)
		}
	}
	if d := b.take(now.Add(time.Hour), RefusalBurst); d > 0 {
		t.Errorf("after an hour a burst waits for %v", d)
	}
	if d := b.take(now.Add(time.Hour), RefusalRate); (d - time.Second).Abs() > time.Millisecond {
		t.Errorf("more than a burst has been saved up: %v", d)
	}
}

func TestPacer(t *testing.T) {
	var used time.Duration
	p := Pacer{Share: 0.5, Used: func() time.Duration { return used }}
	now := time.Now()
	used = time.Hour // before the first look: not of these connections
	for _, step := range []struct {
		work, later, waits time.Duration
	}{
		{0, 0, -2 * time.Second},
		{time.Second, 0, 0},
		{time.Second, 0, 2 * time.Second},
		{0, 2 * time.Second, 0},
		{0, time.Hour, -2 * time.Second}, // no more is saved up than a burst
		{3 * time.Second, 0, 4 * time.Second},
	} {
		used, now = used+step.work, now.Add(step.later)
		if d := p.take(now); d != step.waits {
			t.Errorf("%+v: waits for %v", step, d)
		}
	}
	p = Pacer{Used: func() time.Duration { t.Error("asked without a limit"); return 0 }}
	p.Wait(context.Background())
	if ProcessorTime() <= 0 {
		t.Error("no processor time")
	}
}
