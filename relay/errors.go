package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/sandboxrun/sandboxrun/netpolicy"
)

// refusal is the policy's no, or a guard's.
type refusal struct {
	reason  string // for the event
	explain string // for the program
}

func (r *refusal) Error() string { return r.explain }

func refuse(d netpolicy.Decision) *refusal { return &refusal{reason: d.Reason, explain: d.Explain()} }

func refusef(format string, args ...any) *refusal {
	s := fmt.Sprintf(format, args...)
	return &refusal{reason: s, explain: s}
}

// failure is a connection that was allowed and could not be made. Its words tell the program what it would have found out
// by itself, and not what the addresses or resolvers of this network are.
type failure struct {
	why  cause
	host string
	port int
}

type cause int

const (
	causeNone cause = iota
	causeUnreachable
	causeRefused
	causeTimeout
	causeNoHost
	causeBusy
	causeProxy
	causeProxyAuth
	causeProxyRefused
)

func (f *failure) Error() string {
	return fmt.Sprintf("connect %s: %s", net.JoinHostPort(f.host, fmt.Sprint(f.port)), f.why)
}

func (c cause) String() string {
	switch c {
	case causeRefused:
		return "connection refused"
	case causeTimeout:
		return "timed out"
	case causeNoHost:
		return "no such host"
	case causeBusy:
		return "too many connections are being made, try again"
	case causeProxy:
		return "the upstream proxy cannot be reached"
	case causeProxyAuth:
		return "the upstream proxy does not take the caller's credentials"
	case causeProxyRefused:
		return "the upstream proxy refuses the connection"
	}
	return "it cannot be reached"
}

// causeOf finds out what a resolver's or dialer's error means.
func causeOf(err error) cause {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return causeNoHost
	case errors.Is(err, syscall.ECONNREFUSED):
		return causeRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return causeTimeout
	}
	return causeUnreachable
}

// verdictOf says what an event says of an error.
func verdictOf(err error) (verdict, reason string) {
	var no *refusal
	switch {
	case err == nil:
		return Allowed, ""
	case errors.As(err, &no):
		return Refused, no.reason
	}
	return Failed, err.Error()
}
