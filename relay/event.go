package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
)

// What became of a connection.
const (
	Allowed = "allowed"
	Refused = "refused" // by the policy, or by a guard
	Failed  = "failed"  // it was allowed, and could not be made or kept
)

// Event is one connection, one request of a kept HTTP connection, or one refused DNS name.
type Event struct {
	Time     time.Time     `json:"time"`              // when it began
	Kind     string        `json:"kind"`              // "forward", "connect", "http", "socks", "direct" or "dns"
	Host     string        `json:"host,omitempty"`    // asked for; of a forward, its target
	Port     int           `json:"port,omitempty"`    // asked for; of a forward, the port inside
	Address  string        `json:"address,omitempty"` // that was connected to, or that was refused
	Via      string        `json:"via,omitempty"`     // the proxy that was asked for the connection, as "host:port"
	Rule     string        `json:"rule,omitempty"`    // the rule that allowed it, as the policy says it
	Verdict  string        `json:"verdict"`
	Reason   string        `json:"reason,omitempty"` // a word of netpolicy's for what its rules refused; else a sentence
	Up       int64         `json:"up"`               // bytes from inside, without HTTP heads and framing
	Down     int64         `json:"down"`             // bytes to inside
	Duration time.Duration `json:"duration_ns"`
	Explain  string        `json:"explain,omitempty"` // of a refusal: what the program is told, or would be
}

// decided takes over what netpolicy has said.
func (ev *Event) decided(d netpolicy.Decision) {
	ev.Host, ev.Port, ev.Rule, ev.Via = d.Host, d.Port, d.Rule, d.Via
	if d.Address.IsValid() {
		ev.Address = d.Address.String()
	}
}

// notes hands events on, one at a time. What was not allowed is told at a rate: whoever tells of it waits.
type notes struct {
	mu    sync.Mutex
	note  func(Event)
	brake brake
	ctx   context.Context //nolint:containedctx // of Serve, at whose end nobody waits any more
}

func (n *notes) end(ev Event, verdict, reason string) {
	n.tell(ev, verdict, reason)
	n.slow(verdict)
}

// slow makes whoever is not allowed, or fails, wait.
func (n *notes) slow(verdict string) {
	if verdict != Allowed {
		n.brake.wait(n.ctx, 1)
	}
}

// answered ends an event of which the program is told. The event comes first: once the program knows, it is there to be read.
func (n *notes) answered(ev Event, err error, answer func()) {
	verdict, reason := verdictOf(err)
	if _, ok := errors.AsType[*badRequest](err); ok {
		verdict = Refused
	}
	if verdict == Refused {
		ev.Explain = err.Error()
	}
	n.tell(ev, verdict, reason)
	answer()
	n.slow(verdict)
}

func (n *notes) tell(ev Event, verdict, reason string) {
	ev.Verdict, ev.Reason = verdict, reason
	ev.Duration = time.Since(ev.Time)
	ev.Time = ev.Time.Round(0) // without Go's monotonic clock, which is nobody else's
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note(ev)
}

// endWith ends an event as an error says; nil is success.
func (n *notes) endWith(ev Event, err error) {
	verdict, reason := verdictOf(err)
	n.end(ev, verdict, reason)
}
