package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/http1"
	"github.com/sandboxrun/sandboxrun/relay/pace"
)

// Verdicts of an event.
const (
	Allowed = "allowed"
	Refused = "refused" // by the policy, or by the check of the TLS server name
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
	Reason   string        `json:"reason,omitempty"` // a Reason constant of netpolicy, or a sentence
	Up       int64         `json:"up"`               // bytes from inside, without HTTP heads and framing
	Down     int64         `json:"down"`             // bytes to inside
	Duration time.Duration `json:"duration_ns"`
	Explain  string        `json:"explain,omitempty"` // of a refusal: which rule is missing, in one sentence
}

// decided copies a decision into the event.
func (ev *Event) decided(d netpolicy.Decision) {
	ev.Host, ev.Port, ev.Rule, ev.Via = d.Host, d.Port, d.Rule, d.Via
	if d.Address.IsValid() {
		ev.Address = d.Address.String()
	}
}

// eventSink passes events to note, one at a time. Connections that were not allowed wait after their event, so that their rate is bounded.
type eventSink struct {
	mu    sync.Mutex
	note  func(Event)
	brake pace.Brake
	ctx   context.Context //nolint:containedctx // of Serve; its end ends all waits
}

func (n *eventSink) end(ev Event, verdict, reason string) {
	n.report(ev, verdict, reason)
	n.slow(verdict)
}

// slow delays the caller unless the connection was allowed.
func (n *eventSink) slow(verdict string) {
	if verdict != Allowed {
		n.brake.Wait(n.ctx, 1)
	}
}

// answered ends an event and answers the program. It reports the event first, so that the event can be read once the program has the
// answer.
func (n *eventSink) answered(ev Event, err error, answer func()) {
	verdict, reason := verdictOf(err)
	if _, ok := errors.AsType[*http1.BadRequest](err); ok {
		verdict = Refused
	}
	if verdict == Refused {
		ev.Explain = err.Error()
	}
	n.report(ev, verdict, reason)
	answer()
	n.slow(verdict)
}

func (n *eventSink) report(ev Event, verdict, reason string) {
	ev.Verdict, ev.Reason = verdict, reason
	ev.Duration = time.Since(ev.Time)
	ev.Time = ev.Time.Round(0) // without Go's monotonic clock reading
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note(ev)
}

// endWith ends an event as an error says; nil is success.
func (n *eventSink) endWith(ev Event, err error) {
	verdict, reason := verdictOf(err)
	n.end(ev, verdict, reason)
}
