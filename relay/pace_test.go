package relay

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
)

func TestBrake(t *testing.T) {
	var b brake
	now := time.Now()
	for i := range refusalBurst {
		if d := b.take(now, 1); d > 0 {
			t.Fatalf("number %d of a burst waits for %v", i, d)
		}
	}
	for i := 1; i <= 3; i++ {
		want := time.Duration(i) * time.Second / refusalRate
		if d := b.take(now, 1); (d - want).Abs() > time.Millisecond {
			t.Errorf("number %d after it waits for %v, want %v", i, d, want)
		}
	}
	if d := b.take(now.Add(time.Hour), refusalBurst); d > 0 {
		t.Errorf("after an hour a burst waits for %v", d)
	}
	if d := b.take(now.Add(time.Hour), refusalRate); (d - time.Second).Abs() > time.Millisecond {
		t.Errorf("more than a burst has been saved up: %v", d)
	}
}

func TestPacer(t *testing.T) {
	var used time.Duration
	p := pacer{share: 0.5, used: func() time.Duration { return used }}
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
	p = pacer{used: func() time.Duration { t.Error("asked without a limit"); return 0 }}
	p.wait(context.Background())
	if processorTime() <= 0 {
		t.Error("no processor time")
	}
}

// Requests that are refused are answered at a rate, however many are sent at once over however many connections, and a
// relay that ends does not wait for that.
func TestRefusalsAreSlow(t *testing.T) {
	w := &world{}
	addr := w.start(t, netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{"allowed.test"}}, Listener{Kind: Proxy})[0]
	const conns, within = 20, 1500 * time.Millisecond
	answers := make(chan int, conns)
	for range conns {
		c, err := net.Dial("tcp", addr)
		check(t, err)
		go func() {
			_, _ = io.WriteString(c, strings.Repeat("GET http://no.test/ HTTP/1.1\r\nHost: a\r\n\r\n", 1000))
		}()
		go func() {
			_ = c.SetReadDeadline(time.Now().Add(within))
			b, _ := io.ReadAll(c)
			answers <- strings.Count(string(b), "HTTP/1.1 403")
			shut(c)
		}()
	}
	sum := 0
	for range conns {
		sum += <-answers
	}
	most := refusalBurst + conns + int(2*within.Seconds()*refusalRate)
	if sum < refusalBurst || sum > most {
		t.Errorf("%d refusals, want %d to %d", sum, refusalBurst, most)
	}
}
