package spec

import (
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/netpolicy"
)

// ExplainHost says whether the program can talk to a port of a host, and which rule decides. It asks the same rules as
// what carries the connections, and resolves no name. The error is a fault in the policy's network.
func ExplainHost(p *Policy, plan *Plan, caller map[string]string, host string, port int) (Answer, error) {
	a := Answer{Asked: netAddress(host, port), Why: []string{}, Rule: "network.mode", From: cutKey(p.Network.From)}
	n := &p.Network
	if n.Mode == netpolicy.Host {
		a.OK, a.Is = true, "allowed"
		a.say("%s is %q: the program has the host's own network, and nobody judges its connections", a.at(), n.Mode)
		return a, nil
	}
	if isLoopback(host) && port >= 1 && port <= math.MaxUint16 {
		a.loopback(p, plan, caller, port)
	} else if err := a.judge(p, host, port); err != nil {
		return a, err
	}
	// What is not carried must not look as if it were.
	if missing := network(n); a.OK && len(missing) > 0 {
		a.OK, a.Is = false, "not reachable"
		a.Why = append(slices.Clone(missing), a.Why...)
	}
	return a, nil
}

// judge asks the rules.
func (a *Answer) judge(p *Policy, host string, port int) error {
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
	if a.From != "" && a.From != fromDefault {
		why += " (" + a.From + ")"
	}
	a.say("%s", why)
	if _, err := netip.ParseAddr(d.Host); err == nil || !d.Allow {
		return nil
	}
	a.sayAddresses(p, d.Host)
	return nil
}

// sayAddresses says what the addresses are held to that a name turns out to have.
func (a *Answer) sayAddresses(p *Policy, host string) {
	for _, text := range p.Network.AllowPrivate {
		one := netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{text}}
		rules, err := netpolicy.Compile(&one)
		if err == nil && rules.Known(host) {
			a.say("it may resolve to any address, also a private one: network.allow_private at %s has %q", p.Place("network.allow_private", text), text)
			return
		}
	}
	a.say("each address that it resolves to is looked at then, and must be a public one: none that is private, loopback, " +
		"link-local or this machine's own, since network.allow_private does not name it")
}

// loopback is about ports of 127.0.0.1, ::1 and localhost: inside, they are the sandbox's own.
func (a *Answer) loopback(p *Policy, plan *Plan, caller map[string]string, port int) {
	a.Is, a.Rule, a.From = "not forwarded", fromDefault, ""
	for _, f := range forwards(p, plan, caller) {
		if f.port == port {
			a.OK, a.Is, a.Rule, a.From = true, "forwarded to "+f.to, f.key, f.from
			a.say("%s forwards the port to %s", a.at(), f.to)
			if f.note != "" {
				a.say("%s", f.note)
			}
			return
		}
	}
	a.say("no rule forwards port %d", port)
	a.say("the sandbox's loopback is its own: the program reaches what it has started there itself, and nothing of the host's")
	a.Hint = fmt.Sprintf("network.ports = [%d]", port)
}

// forward is a loopback port that leads out.
type forward struct {
	port                int
	to, key, from, note string
}

// forwards lists what the policy forwards: ports first, then services, then URLs in the environment.
func forwards(p *Policy, plan *Plan, caller map[string]string) []forward {
	var list []forward
	for _, port := range p.Network.Ports {
		list = append(list, forward{port.Inside, port.Outside, "network.ports", cutKey(port.From), ""})
	}
	for _, text := range p.Network.Services {
		if svc, err := netpolicy.ParseService(text); err == nil && svc.Loopback() {
			list = append(list, forward{svc.Port, netAddress(svc.Host, svc.Port), "network.services", p.Place("network.services", text), ""})
		}
	}
	if !p.Network.EnvURLs {
		return list
	}
	for _, kv := range plan.Exec.Environ(caller, nil) {
		name, value, _ := strings.Cut(kv, "=")
		u, err := url.Parse(value)
		if err != nil || u.Host == "" {
			continue
		}
		svc, err := netpolicy.ParseService(u.Scheme + "://" + u.Host) // not the rest: it may hold a key
		if err != nil || !svc.Loopback() {
			continue
		}
		list = append(list, forward{
			svc.Port, netAddress(svc.Host, svc.Port), "network.env_urls", "", "the variable " + name + " of the passed environment holds its URL",
		})
	}
	return list
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

// cutKey cuts the key off a From.
func cutKey(from string) string {
	if i := strings.LastIndex(from, ": "); i > 0 {
		return from[:i]
	}
	return from
}
