package relay

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pace"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// Requests that are refused are answered at a rate, however many are sent at once over however many connections, and a
// relay that ends does not wait for that.
func TestRefusalsAreSlow(t *testing.T) {
	w := &world{}
	addr := w.start(t, netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{"allowed.test"}}, Listener{Kind: Proxy})[0]
	const conns, within = 20, 1500 * time.Millisecond
	answers := make(chan int, conns)
	for range conns {
		c, err := net.Dial("tcp", addr)
		check(t, err)
		go func() {
			_, _ = io.WriteString(c, strings.Repeat("GET http://no.test/ HTTP/1.1\r\nHost: a\r\n\r\n", 1000))
		}()
		go func() {
			_ = c.SetReadDeadline(time.Now().Add(within))
			b, _ := io.ReadAll(c)
			answers <- strings.Count(string(b), "HTTP/1.1 403")
			pipe.Shut(c)
		}()
	}
	sum := 0
	for range conns {
		sum += <-answers
	}
	most := pace.RefusalBurst + conns + int(2*within.Seconds()*pace.RefusalRate)
	if sum < pace.RefusalBurst || sum > most {
		t.Errorf("%d refusals, want %d to %d", sum, pace.RefusalBurst, most)
	}
}
