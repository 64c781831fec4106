package relay

import (
	"fmt"
	"io"
	"net/netip"
	"testing"
)

// socksAsk writes a request for a host, as an address if it is one.
func socksAsk(host string, port int) string {
	ask := "\x05\x01\x00"
	if a, err := netip.ParseAddr(host); err != nil {
		ask += "\x03" + string([]byte{byte(len(host))}) + host
	} else if a.Is4() {
		ask += "\x01" + string(a.AsSlice())
	} else {
		ask += "\x04" + string(a.AsSlice())
	}
	return ask + string([]byte{byte(port >> 8), byte(port)})
}

func TestSocks(t *testing.T) {
	for _, a := range asks() {
		t.Run(fmt.Sprint(a.host, " ", a.port), func(t *testing.T) {
			w := publicWorld(t)
			addr := w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
			c := dial(t, addr)
			send(t, c, "\x05\x02\x02\x00")
			expect(t, c, "\x05\x00")
			send(t, c, socksAsk(a.host, a.port))
			expect(t, c, "\x05"+string([]byte{a.reply})+"\x00\x01\x00\x00\x00\x00\x00\x00")
			if a.reply == socksGranted {
				send(t, c, "hello\n")
				expect(t, c, "UP")
			}
			expectEnd(t, c)
			check(t, c.Close())
			w.expect(t, "socks", a.verdict, a.reason, a.dialed)
		})
	}
}

func TestSocksProtocol(t *testing.T) {
	w := publicWorld(t)
	addr := w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
	no := func(code byte) string {
		return "\x05\x00\x05" + string([]byte{code}) + "\x00\x01\x00\x00\x00\x00\x00\x00"
	}
	for _, test := range []struct{ name, sent, want string }{
		{"all at once", "\x05\x01\x00" + socksAsk("api.example.test", 443) + "hello\n", no(socksGranted) + "UP"},
		{"address as a name", "\x05\x01\x00\x05\x01\x00\x03\x0d93.184.216.34\x01\xbbhello\n", no(socksGranted) + "UP"},
		{"private address as a name", "\x05\x01\x00\x05\x01\x00\x03\x0410.1\x01\xbb", no(socksRefused)},
		{"mapped address", "\x05\x01\x00" + socksAsk("::ffff:10.0.0.1", 443), no(socksRefused)},
		{"loopback v6", "\x05\x01\x00" + socksAsk("::1", 443), no(socksRefused)},
		{"a port in the name", "\x05\x01\x00" + socksAsk("api.example.test:443", 22), no(socksRefused)},
		{"NUL in the name", "\x05\x01\x00" + socksAsk("evil.test\x00.example.test", 443), no(socksRefused)},
		{"no methods", "\x05\x00", "\x05\xff"},
		{"password only", "\x05\x01\x02", "\x05\xff"},
		{"BIND", "\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50", no(socksNoCommand)},
		{"UDP ASSOCIATE", "\x05\x01\x00\x05\x03\x00\x01\x01\x02\x03\x04\x00\x50", no(socksNoCommand)},
		{"unknown type", "\x05\x01\x00\x05\x01\x00\x02", no(socksNoType)},
		{"empty name", "\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50", no(socksNoType)},
		{"port 0", "\x05\x01\x00" + socksAsk("api.example.test", 0), no(socksRefused)},
		{"reserved byte", "\x05\x01\x00\x05\x01\x01\x01\x01\x02\x03\x04\x00\x50", no(socksFailure)},
		{"version in the request", "\x05\x01\x00\x04\x01\x00\x01\x01\x02\x03\x04\x00\x50", no(socksFailure)},
		{"cut short", "\x05\x01\x00\x05\x01\x00\x01\x01", no(socksFailure)},
		{"cut shorter", "\x05", ""},
	} {
		c := dial(t, addr)
		send(t, c, test.sent)
		check(t, c.CloseWrite())
		got, err := io.ReadAll(c)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
}
