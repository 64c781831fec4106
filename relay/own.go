package relay

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// interfaceAddresses lists the addresses of this machine.
func interfaceAddresses() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list own addresses: %w", err)
	}
	var own []netip.Addr
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			own = append(own, p.Addr())
		}
	}
	return own, nil
}

// ownAddresses caches the list for a second, because listing the interfaces costs many times as much as a connection.
type ownAddresses struct {
	mu    sync.Mutex
	list  []netip.Addr
	until time.Time
}

func (o *ownAddresses) get(list func() ([]netip.Addr, error)) ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.After(o.until) {
		own, err := list()
		if err != nil {
			return nil, err
		}
		o.list, o.until = own, now.Add(time.Second)
	}
	return o.list, nil
}
