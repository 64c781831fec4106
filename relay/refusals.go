package relay

import (
	"sync"
	"time"
)

// refusals limits the events of refused names: one for each name, at a limited rate.
type refusals struct {
	mu       sync.Mutex
	reported map[string]bool
	tokens   float64
	last     time.Time
}

func (r *refusals) refused(events *eventSink, ev Event, reason string) {
	if r.fits(ev.Host, ev.Time) {
		events.report(ev, Refused, reason)
	}
}

func (r *refusals) fits(host string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported == nil {
		r.reported, r.tokens, r.last = map[string]bool{}, noteBurst, now
	}
	if r.reported[host] {
		return false
	}
	r.tokens = min(noteBurst, r.tokens+now.Sub(r.last).Seconds())
	r.last = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	if len(r.reported) >= maxRefused {
		clear(r.reported)
	}
	r.reported[host] = true
	return true
}
