package container

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/spec"
)

// No two sockets of a relay's may want the same port of overlapping addresses: then one of them would need SO_REUSEPORT.
func TestRelayListeners(t *testing.T) {
	door := func(kind, at, target string) spec.Door {
		return spec.Door{Kind: kind, Listen: netip.MustParseAddrPort(at), Target: target}
	}
	_, listeners := relayListeners([]spec.Door{
		door(spec.DoorForward, "127.0.0.1:443", "127.0.0.1:9"), door(spec.DoorForward, "[::1]:443", "127.0.0.1:9"),
		door(spec.DoorForward, "127.0.0.2:443", "unix:/s"), door(spec.DoorForward, "127.0.0.1:443", "127.0.0.1:8"),
		door(spec.DoorForward, "127.0.0.1:8000", "127.0.0.1:7"), door(spec.DoorProxy, "127.0.0.1:3128", ""),
		door(spec.DoorDNS, "127.0.0.53:53", ""), door(spec.DoorDNSTCP, "127.0.0.53:53", ""),
		door(spec.DoorDirect, "0.0.0.0:53", ""), door(spec.DoorDirect, "0.0.0.0:443", ""),
	})
	var got []string
	for _, l := range listeners {
		text := fmt.Sprintf("%s:%d%s", l.Kind, l.Port, l.Target)
		var at []string
		for a, o := range l.At {
			at = append(at, fmt.Sprintf("+%s=%s%s", a, o.Kind, o.Target))
		}
		slices.Sort(at)
		got = append(got, text+strings.Join(at, ""))
	}
	want := "forward:443127.0.0.1:9 forward:8000127.0.0.1:7 proxy:3128 dns:53 direct:53+127.0.0.53=dns-tcp " +
		"direct:443+127.0.0.1=forward127.0.0.1:9+127.0.0.2=forwardunix:/s"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
