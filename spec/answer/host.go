package answer

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Host explains whether the program can reach a port of a host. It uses the rules that the relay uses, and resolves no
// name. The error is a fault in the policy's network.
func Host(p *policy.Policy, plan *spec.Plan, host string, port int) (Answer, error) {
	a := Answer{Asked: netAddress(host, port), Why: []string{}, Rule: "network.mode", From: rootfs.PlaceOf(p.Network.From)}
	n := &p.Network
	if n.Mode == netpolicy.Host {
		a.OK, a.Is = true, "allowed"
		a.say("%s is %q: the program has the host's own network, and no rule applies", a.at(), n.Mode)
		return a, nil
	}
	if isLoopback(host) && a.forwarded(plan, host, port) {
		return a, nil
	}
	if err := a.judge(p, plan, host, port); err != nil {
		return a, err
	}
	if isLoopback(host) && !a.OK && port >= 1 && port <= math.MaxUint16 {
		a.ownLoopback(port)
	}
	return a, nil
}

// judge applies the rules.
func (a *Answer) judge(p *policy.Policy, plan *spec.Plan, host string, port int) error {
	rules, err := netpolicy.Compile(&p.Network)
	if err != nil {
		return fmt.Errorf("compile network rules: %w", err)
	}
	d := rules.Name(host, port)
	a.OK, a.Is = d.Allow, "allowed"
	if !d.Allow {
		a.Is = "not allowed"
	}
	for _, key := range []string{"network.allowed_hosts", "network.services"} {
		if at := p.Place(key, d.Rule); d.Rule != "" && at != "" {
			a.Rule, a.From = key, at
		}
	}
	why := d.Explain()
	if a.From != "" && a.From != rootfs.FromDefault {
		why += " (" + a.From + ")"
	}
	a.say("%s", why)
	if !d.Allow {
		return nil
	}
	if plan.Relay != nil {
		if proxy := rules.Proxy(plan.Relay.Proxies, d, port == 80); proxy != nil {
			a.say("the relay asks the proxy %s for it, by network.upstream_proxy at %s; what address its name has only that proxy knows", proxy,
				p.Place("network.upstream_proxy", p.Network.UpstreamProxy))
			a.sayWay(plan, port)
			return nil
		}
	}
	if _, err := netip.ParseAddr(d.Host); err != nil {
		a.sayAddresses(p, d.Host)
	}
	a.sayWay(plan, port)
	return nil
}

// sayWay adds how a program reaches the host.
func (a *Answer) sayWay(plan *spec.Plan, port int) {
	proxy := func(d spec.Listener) bool { return d.Kind == spec.ListenProxy }
	direct := func(d spec.Listener) bool { return d.Kind == spec.ListenDirect && int(d.Listen.Port()) == port }
	switch {
	case plan.Relay == nil || !slices.ContainsFunc(plan.Relay.Listeners, proxy):
		a.OK, a.Is = false, "not reachable"
		a.say("this sandbox has no relay for the connection")
	case slices.ContainsFunc(plan.Relay.Listeners, direct):
		a.say("programs that ignore proxy variables reach it too")
	default:
		a.say("programs reach it through the proxy that HTTPS_PROXY names; programs that ignore proxy variables do not reach it")
	}
}

// sayAddresses adds which addresses the name may resolve to.
func (a *Answer) sayAddresses(p *policy.Policy, host string) {
	for _, text := range p.Network.AllowPrivate {
		one := netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{text}}
		rules, err := netpolicy.Compile(&one)
		if err == nil && rules.Known(host) {
			a.say("it may resolve to any address, also to a private one: network.allow_private at %s has %q", p.Place("network.allow_private", text), text)
			return
		}
	}
	a.say("it may resolve only to public addresses, because network.allow_private does not name it: not to a private, loopback or " +
		"link-local address or one of this machine")
}

// forwarded reports whether the relay listens on this port of 127.0.0.1, ::1 or localhost, and explains it.
func (a *Answer) forwarded(plan *spec.Plan, host string, port int) bool {
	if plan.Relay == nil {
		return false
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	for _, d := range plan.Relay.Listeners {
		at := d.Listen.Addr()
		if d.Kind == spec.ListenDirect || int(d.Listen.Port()) != port || err == nil && at != addr.Unmap() || err != nil && at == spec.Resolver() {
			continue
		}
		if d.Kind != spec.ListenForward {
			a.OK, a.Is = true, "the sandbox's own "+map[bool]string{true: "proxy", false: "name server"}[d.Kind == spec.ListenProxy]
			a.say("%s is %q: the relay listens there, and forwards what the rules allow", a.at(), plan.Network)
			return true
		}
		a.OK, a.Is, a.Rule, a.From = true, "forwarded to "+d.Target, d.Key, d.From
		a.say("%s forwards the port to %s", a.at(), d.Target)
		if d.Variable != "" {
			a.say("the variable %s of the passed environment holds its URL", d.Variable)
		}
		return true
	}
	return false
}

// ownLoopback explains a loopback port that is not forwarded.
func (a *Answer) ownLoopback(port int) {
	a.Is, a.Rule, a.From, a.Why = "not forwarded", rootfs.FromDefault, "", nil
	a.say("no rule forwards port %d", port)
	a.say("the sandbox has its own loopback: the program reaches servers of its sandbox there, and none of the host")
	a.Hint = fmt.Sprintf("network.ports = [%d]", port)
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err == nil {
		return a.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// netAddress writes "host:port", or "[v6]:port".
func netAddress(host string, port int) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}
