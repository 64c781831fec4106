package netpolicy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Decision is the decision of the rules on one connection.
type Decision struct {
	Allow   bool
	Host    string     // as the rules compare it and as it is to be resolved; quoted, fit to be printed, for bad_name
	Port    int        // as asked
	Address netip.Addr // the address that was judged: the one to connect to; the zero Addr before there is one
	Via     string     // the upstream proxy that makes the connection, so that Address is unknown; the relay sets it
	Rule    string     // the rule that names the host and port (for wrong_port, the host alone), as the policy says it, or ""
	Reason  string     // why not: one of the Reason constants; "" when it is allowed
}

func (d Decision) allow(rule string) Decision {
	d.Allow, d.Rule, d.Reason = true, rule, ""
	return d
}

func (d Decision) refuse(reason string) Decision {
	d.Allow, d.Reason = false, reason
	return d
}

// Explain names in one sentence the rule that allows the connection, or the rule that is missing. The sentence never has the address of
// a name, because refusals must not show programs the names of this network.
func (d Decision) Explain() string {
	if d.Allow {
		return d.target() + " is allowed by " + d.rule()
	}
	return d.target() + " is not allowed: " + d.missing()
}

// target writes what was asked for, as "host:port".
func (d Decision) target() string {
	if d.Reason == ReasonBadName {
		return d.Host
	}
	return Pattern{Name: d.Host}.String() + ":" + strconv.Itoa(d.Port)
}

// rule names the key of the policy that holds the rule.
func (d Decision) rule() string {
	switch {
	case strings.HasPrefix(d.Rule, "mode = "):
		return "network." + d.Rule
	case strings.Contains(d.Rule, "://"):
		return strconv.Quote(d.Rule) + " of network.services"
	}
	return strconv.Quote(d.Rule) + " of network.allowed_hosts"
}

func (d Decision) missing() string {
	wish := Pattern{Name: d.Host, Port: d.Port}
	if isWeb(d.Port) {
		wish.Port = 0
	}
	switch d.Reason {
	case ReasonIsolated:
		return fmt.Sprintf(`network.mode is "isolated"; it takes "allowlist", and %q in network.allowed_hosts`, wish)
	case ReasonBadName:
		return "it is neither a host name nor an IP address"
	case ReasonBadPort:
		return "a port is a number from 1 to 65535"
	case ReasonNoRule:
		return fmt.Sprintf("no rule of network.allowed_hosts names it; add %q%s", wish, d.andPrivate())
	case ReasonWrongPort:
		wish.Port = d.Port
		return fmt.Sprintf("%s is for another port; add %q to network.allowed_hosts%s", d.rule(), wish, d.andPrivate())
	case ReasonNotPublic:
		return fmt.Sprintf(`network.mode is "public", and this is a local name; add %q to network.allowed_hosts`, wish)
	case ReasonPrivate:
		return fmt.Sprintf("it %s%s; add %q to network.allow_private", d.resolved(), kind(d.Address), d.Host)
	case ReasonOwn:
		return fmt.Sprintf("it %san address of this machine; add %q to network.allow_private", d.resolved(), d.Host)
	case ReasonBadAddress:
		return "it resolves to what is no address to connect to"
	case ReasonOtherAddress:
		return "it was to be connected to another address"
	}
	return "no policy was asked"
}

// resolved begins what is said of the address: "is" where it is the host itself.
func (d Decision) resolved() string {
	if d.Address.String() == d.Host {
		return "is "
	}
	return "resolves to "
}

// andPrivate is what else an address that is not public will take.
func (d Decision) andPrivate() string {
	if a, err := netip.ParseAddr(d.Host); err == nil && kind(a) != "" {
		return fmt.Sprintf(", and %q to network.allow_private, since it is %s", d.Host, kind(a))
	}
	return ""
}
