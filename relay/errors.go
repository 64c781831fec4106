package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/sandboxrun/sandboxrun/netpolicy"
)

// refusal is a connection that the policy or the check of the TLS server name refuses.
type refusal struct {
	reason  string // for the event
	explain string // for the program
}

func (r *refusal) Error() string { return r.explain }

// Refusal makes it a pipe.Refusal: a connection that is refused is reset.
func (r *refusal) Refusal() {}

func refuse(d netpolicy.Decision) *refusal { return &refusal{reason: d.Reason, explain: d.Explain()} }

func refusef(format string, args ...any) *refusal {
	s := fmt.Sprintf(format, args...)
	return &refusal{reason: s, explain: s}
}

// failure is an allowed connection that could not be made. Its message has what a direct connection would have shown, and no address or
// resolver of this network.
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

// causeOf classifies an error of the resolver or the dialer.
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

// verdictOf returns the verdict and reason of an event that ends with err.
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
