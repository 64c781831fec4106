package relay

import (
	"net/netip"
	"sync"
)

// The pool is 127.77.0.0/16 without the addresses that end in 0 or 255. A program inside can bind and connect all of 127/8, and
// nobody else uses these.
const (
	poolA, poolB = 127, 77
	perNet       = 254
	maxNames     = 255 * perNet
)

// names maps each host name to an address of the sandbox's own loopback. A mapping lasts as long as the sandbox, because programs cache
// what they resolve.
type names struct {
	mu    sync.Mutex
	limit int
	index map[string]int
	hosts []string
}

func newNames(limit int) *names {
	return &names{limit: min(limit, maxNames), index: map[string]int{}}
}

// address returns the address of a host. It returns false when the pool is used up.
func (n *names) address(host string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.index[host]
	if !ok {
		if i = len(n.hosts); i >= n.limit {
			return netip.Addr{}, false
		}
		n.index[host] = i
		n.hosts = append(n.hosts, host)
	}
	return netip.AddrFrom4([4]byte{poolA, poolB, byte(i / perNet), byte(1 + i%perNet)}), true
}

// host returns the name that an address stands for.
func (n *names) host(a netip.Addr) (string, bool) {
	if a = a.Unmap(); !a.Is4() {
		return "", false
	}
	b := a.As4()
	i := int(b[2])*perNet + int(b[3]) - 1
	n.mu.Lock()
	defer n.mu.Unlock()
	if b[0] != poolA || b[1] != poolB || b[3] == 0 || b[3] == 255 || i >= len(n.hosts) {
		return "", false
	}
	return n.hosts[i], true
}
