package netpolicy

import "strings"

// Within reports whether each host and port that a pattern allows is allowed by rules already, but for the addresses that its names have.
func (r *Rules) Within(p Pattern) bool {
	if r.mode == Host || r.mode == Public && !isLocal(p.Name) {
		return true
	}
	ports := []int{p.Port}
	if p.Port == 0 {
		ports = []int{443, 80}
	}
	for _, port := range ports {
		if !r.allowsAll(p, port) {
			return false
		}
	}
	return true
}

func (r *Rules) allowsAll(p Pattern, port int) bool {
	for _, rule := range r.allowed {
		if rule.holds(p) && rule.allows(port) {
			return true
		}
	}
	return false
}

// PrivateWithin reports whether rules let each host of a pattern have a private address already.
func (r *Rules) PrivateWithin(p Pattern) bool {
	if r.mode == Host {
		return true
	}
	for _, private := range r.private {
		if private.holds(p) {
			return true
		}
	}
	return false
}

// holds reports whether each name of another pattern is one of this one's.
func (p Pattern) holds(other Pattern) bool {
	if !p.Wildcard {
		return !other.Wildcard && other.Name == p.Name
	}
	return strings.HasSuffix(other.Name, "."+p.Name) || other.Wildcard && other.Name == p.Name
}
