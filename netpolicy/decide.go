package netpolicy

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Reasons of a decision, stable words for records.
const (
	ReasonIsolated     = "isolated"        // the mode allows nothing
	ReasonBadName      = "bad_name"        // the host is neither a name nor an address
	ReasonBadPort      = "bad_port"        // the port is none from 1 to 65535
	ReasonNoRule       = "no_rule"         // no rule names the host
	ReasonWrongPort    = "wrong_port"      // rules name the host, but not this port
	ReasonNotPublic    = "not_public"      // mode public, a name that only has a meaning on this network, and no rule
	ReasonPrivate      = "private_address" // the address is not a public one, and allow_private does not name the host
	ReasonOwn          = "own_address"     // the same, of this machine's own addresses
	ReasonBadAddress   = "bad_address"     // the address is none, or has a zone
	ReasonOtherAddress = "other_address"   // the host is an address, but not the one that is to be connected to
)

// Rules are a compiled policy. They are immutable, so goroutines can share them.
type Rules struct {
	mode    string
	allowed []rule
	private []Pattern
}

type rule struct {
	Pattern
	text string // as the policy says it
}

// Compile makes the rules of a policy: its allowed hosts, and its services but for those on the loopback, which are
// forwarded ports.
func Compile(p *Policy) (*Rules, error) {
	r := &Rules{mode: p.Mode}
	var faults []error
	if !slices.Contains(Modes(), p.Mode) {
		faults = append(faults, fmt.Errorf("check network mode %q: want one of %q", p.Mode, Modes()))
	}
	for _, s := range p.AllowedHosts {
		h, err := ParseHost(s)
		faults = append(faults, err)
		r.allowed = append(r.allowed, rule{h, s})
	}
	for _, s := range p.Services {
		svc, err := ParseService(s)
		faults = append(faults, err)
		if !svc.Loopback() {
			r.allowed = append(r.allowed, rule{Pattern{Name: svc.Host, Port: svc.Port}, s})
		}
	}
	for _, s := range p.AllowPrivate {
		h, err := ParsePrivateHost(s)
		faults = append(faults, err)
		r.private = append(r.private, h)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return r, nil
}

// Name decides on a connection by the name of the host. The relay resolves only hosts that Name allows, because a query can carry data
// out. It resolves Decision.Host, never the host as the program wrote it, because a resolver could read that differently. Name also
// judges a host that is an address, as Address does.
func (r *Rules) Name(host string, port int) Decision {
	name, addr, err := canonical(host)
	d := Decision{Host: name, Port: port}
	if err != nil {
		d.Host = quote(host)
	}
	switch {
	case r.mode == Host:
		return d.allow(`mode = "host"`)
	case err != nil:
		return d.refuse(ReasonBadName)
	case port < 1 || port > math.MaxUint16:
		return d.refuse(ReasonBadPort)
	case r.mode != Allowlist && r.mode != Public:
		return d.refuse(ReasonIsolated)
	}
	return r.literal(r.match(d, addr.IsValid()))
}

// match looks for a rule that names the host and port.
func (r *Rules) match(d Decision, literal bool) Decision {
	near := ""
	for _, rule := range r.allowed {
		switch {
		case !rule.names(d.Host):
		case rule.allows(d.Port):
			return d.allow(rule.text)
		default:
			near = rule.text
		}
	}
	local := r.mode == Public && !literal && isLocal(d.Host)
	switch {
	case r.mode == Public && !local:
		return d.allow(`mode = "public"`)
	case near != "":
		d.Rule = near
		return d.refuse(ReasonWrongPort)
	case local:
		return d.refuse(ReasonNotPublic)
	}
	return d.refuse(ReasonNoRule)
}

// literal judges an allowed host that is an address.
func (r *Rules) literal(d Decision) Decision {
	if a, err := netip.ParseAddr(d.Host); err == nil {
		return r.Address(d, a, nil)
	}
	return d
}

// Address decides on a connection that Name allowed, once its host is resolved: whether it may go to this address. The
// one to connect to is Decision.Address, with no second look-up. own are the machine's addresses.
//
// Only allow_private lets a connection go to an address that is not public, and only by naming the host that the program
// asked for: an address in it does not stand for the names that resolve to it, or each allowed name could be pointed there.
func (r *Rules) Address(d Decision, addr netip.Addr, own []netip.Addr) Decision {
	if !d.Allow {
		return d
	}
	d.Address = addr
	if r.mode == Host {
		return d
	}
	if !addr.IsValid() || addr.Zone() != "" {
		return d.refuse(ReasonBadAddress)
	}
	d.Address = addr.Unmap()
	if asked, err := netip.ParseAddr(d.Host); err == nil && asked != d.Address {
		return d.refuse(ReasonOtherAddress)
	}
	switch {
	case slices.ContainsFunc(r.private, func(p Pattern) bool { return p.names(d.Host) }):
		return d
	case kind(d.Address) != "":
		return d.refuse(ReasonPrivate)
	case isOwn(d.Address, own):
		return d.refuse(ReasonOwn)
	}
	return d
}

// Known reports whether Name allows some port of a host, so that dns may answer a query for it.
func (r *Rules) Known(host string) bool {
	d := r.Name(host, 443)
	if d.Reason == ReasonWrongPort {
		d = r.literal(d.allow(d.Rule))
	}
	return d.Allow
}

// Ports lists the ports that the rules name, sorted. The relay listens there for programs that use no proxy. Mode public allows every
// port, but adds only 80 and 443.
func (r *Rules) Ports() []int {
	var ports []int
	if r.mode != Allowlist && r.mode != Public {
		return nil
	}
	if r.mode == Public {
		ports = append(ports, 80, 443)
	}
	for _, rule := range r.allowed {
		if rule.Port != 0 {
			ports = append(ports, rule.Port)
		} else {
			ports = append(ports, 80, 443)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// names reports whether the pattern matches a host in canonical form. A wildcard matches no address, because an address never ends in a
// name.
func (p Pattern) names(host string) bool {
	if !p.Wildcard {
		return host == p.Name
	}
	below, ok := strings.CutSuffix(host, "."+p.Name)
	return ok && below != ""
}

func (p Pattern) allows(port int) bool { return port == p.Port || p.Port == 0 && isWeb(port) }

func isWeb(port int) bool { return port == 443 || port == 80 }

// isLocal reports whether a name has a meaning only in one network, and not in the public DNS.
func isLocal(name string) bool {
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "localhost", "local", "internal": // RFC 6761, RFC 6762, ICANN 2024-07-29; metadata.google.internal is one
		return true
	}
	return !strings.Contains(name, ".") // of /etc/hosts, or of a resolver that knows this network
}

// quote makes any bytes printable. The result is no valid name, because of its quotes.
func quote(s string) string {
	if len(s) > maxName {
		return strconv.QuoteToASCII(s[:maxName]) + "..."
	}
	return strconv.QuoteToASCII(s)
}
