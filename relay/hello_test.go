package relay

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
)

// clientHello is what Go's client really sends.
func clientHello(t testing.TB, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer shut(b)
	go func() {
		_ = tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
		shut(a)
	}()
	head := make([]byte, recordHeader)
	_, err := io.ReadFull(b, head)
	check(t, err)
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, err = io.ReadFull(b, body)
	check(t, err)
	return append(head, body...)
}

// records splits a record over records of at most n bytes.
func records(hello []byte, n int) []byte {
	var b []byte
	for body := hello[recordHeader:]; len(body) > 0; {
		k := min(n, len(body))
		b = append(b, 22, 3, 1, byte(k>>8), byte(k))
		b = append(b, body[:k]...)
		body = body[k:]
	}
	return b
}

// handMade is a ClientHello with these extensions, each a type and a body.
func handMade(extensions ...string) []byte {
	var ext []byte
	for i := 0; i < len(extensions); i += 2 {
		ext = append(ext, extensions[i]...)
		ext = append(ext, byte(len(extensions[i+1])>>8), byte(len(extensions[i+1])))
		ext = append(ext, extensions[i+1]...)
	}
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	if extensions != nil {
		body = append(body, byte(len(ext)>>8), byte(len(ext)))
		body = append(body, ext...)
	}
	return wrap(1, body)
}

func wrap(kind byte, body []byte) []byte {
	n := len(body)
	msg := append([]byte{kind, 0, byte(n >> 8), byte(n)}, body...)
	return append([]byte{22, 3, 1, byte(len(msg) >> 8), byte(len(msg))}, msg...)
}

const sniType = "\x00\x00"

func sniBody(name string) string {
	n := len(name)
	return string([]byte{byte((n + 3) >> 8), byte(n + 3), 0, byte(n >> 8), byte(n)}) + name
}

func TestServerName(t *testing.T) {
	real := clientHello(t, "api.example.test")
	trailing := handMade(sniType, sniBody("a.test"))
	for _, test := range []struct {
		name  string
		bytes []byte
		want  string
		err   error
	}{
		{"Go's client", real, "api.example.test", nil},
		{"Go's client, without a name", clientHello(t, ""), "", nil},
		{"with more behind it", append(bytes.Clone(real), "more"...), "api.example.test", nil},
		{"in records of 1 byte", records(real, 1), "api.example.test", nil},
		{"in records of 7 bytes", records(real, 7), "api.example.test", nil},
		{"as written", handMade(sniType, sniBody("API.Example.test.")), "API.Example.test.", nil},
		{"no extensions", handMade(), "", nil},
		{"other extensions", handMade("\x00\x10", "x", "\x00\x2b", ""), "", nil},
		{"name last", handMade("\x00\x10", "x", sniType, sniBody("a.test")), "a.test", nil},
		{"two names", handMade(sniType, "\x00\x08\x00\x00\x01a\x00\x00\x01b"), "", errHello},
		{"two lists", handMade(sniType, sniBody("a"), sniType, sniBody("b")), "", errHello},
		{"empty list", handMade(sniType, "\x00\x00"), "", errHello},
		{"empty extension", handMade(sniType, ""), "", errHello},
		{"empty name", handMade(sniType, sniBody("")), "", errHello},
		{"another kind of name", handMade(sniType, "\x00\x04\x01\x00\x01a"), "", errHello},
		{"bytes after the list", handMade(sniType, sniBody("a")+"b"), "", errHello},
		{"bytes after the extensions", wrap(1, append(bytes.Clone(trailing[9:]), 0)), "", errHello},
		{"extensions cut short", wrap(1, trailing[9:len(trailing)-1]), "", errHello},
		{"a body cut short", wrap(1, trailing[9:30]), "", errHello},
		{"ServerHello", wrap(2, trailing[9:]), "", errHello},
		{"empty record first", append([]byte{22, 3, 1, 0, 0}, real...), "", errHello},
		{"alert first", append([]byte{21, 3, 1, 0, 2, 1, 0}, real...), "", errHello},
		{"change of cipher first", append([]byte{20, 3, 1, 0, 1, 1}, real...), "", errHello},
		{"application data", []byte{23, 3, 3, 0, 1, 1}, "", errHello},
		{"another record between", append(records(real, 50)[:55], 20, 3, 1, 0, 1, 1), "", errHello},
		{"another version between", append(records(real, 50)[:55], 22, 2, 1, 0, 1), "", errHello},
		{"record too long", []byte{22, 3, 1, 0xff, 0xff}, "", errHello},
		{"endless", records(wrap(1, make([]byte, 65000))[:maxHello-100], 2), "", errHello},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), "", errNotTLS},
		{"SSH", []byte("SSH-2.0-x"), "", errNotTLS},
		{"SSL 2", []byte{0x80, 0x2e, 1, 3, 1}, "", errNotTLS},
		{"odd version", append([]byte{22, 10}, real[2:]...), "", errHello},
		{"odd version, alert first", append([]byte{21, 10, 1, 0, 2, 1, 0}, real...), "", errHello},
		{"odd version, change of cipher first", append([]byte{20, 0, 0, 0, 1, 1}, real...), "", errHello},
		{"odd version, empty record first", append([]byte{22, 0, 0, 0, 0}, real...), "", errHello},
		{"odd version, not complete", []byte{22, 4, 0}, "", errMore},
		{"odd version, another message", []byte{22, 0, 1, 0, 9, 2}, "", errNotTLS},
		{"odd version, too long", []byte{22, 0, 1, 0xff, 0xff, 1}, "", errNotTLS},
		{"odd version, data", []byte{23, 0, 1, 0, 9, 2}, "", errNotTLS},
		{"nothing", nil, "", errMore},
	} {
		got, err := serverName(test.bytes)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
	for n := range real {
		if _, err := serverName(real[:n]); !errors.Is(err, errMore) {
			t.Fatalf("%d bytes of a ClientHello: %v", n, err)
		}
	}
}

// Where Go's own server finds a name, this finds the same or refuses.
func FuzzServerName(f *testing.F) {
	f.Add(clientHello(f, "api.example.test"))
	f.Add(handMade(sniType, sniBody("a.test"), "\x00\x10", "x"))
	f.Add(records(handMade(sniType, sniBody("a.test")), 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		theirs, found := "", false
		conn := &bytesConn{Reader: bytes.NewReader(b)}
		_ = tls.Server(conn, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			theirs, found = h.ServerName, true
			return nil, errMore
		}}).Handshake()
		ours, err := serverName(b)
		if found && (err == nil && ours != theirs || errors.Is(err, errMore) || errors.Is(err, errNotTLS)) {
			t.Errorf("%x: Go finds %q, we %q, %v", b, theirs, ours, err)
		}
	})
}

type bytesConn struct {
	*bytes.Reader
	net.Conn
}

func (c *bytesConn) Read(p []byte) (int, error)  { return c.Reader.Read(p) }
func (c *bytesConn) Write(p []byte) (int, error) { return len(p), nil }
func (c *bytesConn) Close() error                { return nil }

// tunnels starts a relay whose world has a server at api.example.test:443, and gives ways to get there.
func tunnels(t *testing.T, server func(c *net.TCPConn)) (w *world, ways map[string]func(t *testing.T) *net.TCPConn) {
	t.Helper()
	w = &world{names: map[string][]string{"api.example.test": {"93.184.216.34"}}, servers: map[string]string{"93.184.216.34:443": tcpServer(t, server)}}
	policy := netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{"api.example.test", "93.184.216.34", "other.example.test"}}
	addr := w.start(t, policy, Listener{Kind: Proxy, Port: 3128})[0]
	return w, map[string]func(t *testing.T) *net.TCPConn{
		"CONNECT": func(t *testing.T) *net.TCPConn {
			t.Helper()
			c := dial(t, addr)
			send(t, c, "CONNECT API.example.test:443 HTTP/1.1\r\nHost: api.example.test:443\r\n\r\n")
			expect(t, c, "HTTP/1.1 200 Connection established\r\n\r\n")
			return c
		},
		"SOCKS": func(t *testing.T) *net.TCPConn {
			t.Helper()
			c := dial(t, addr)
			send(t, c, "\x05\x01\x00\x05\x01\x00\x03\x10api.example.test\x01\xbb")
			expect(t, c, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
			return c
		},
		"address": func(t *testing.T) *net.TCPConn {
			t.Helper()
			c := dial(t, addr)
			send(t, c, "CONNECT 93.184.216.34:443 HTTP/1.1\r\n\r\n")
			expect(t, c, "HTTP/1.1 200 Connection established\r\n\r\n")
			return c
		},
	}
}

func TestTunnelServerName(t *testing.T) {
	good, other, evil := clientHello(t, "api.example.test"), clientHello(t, "other.example.test"), clientHello(t, "evil.example.test")
	heard := make(chan string, 1)
	w, ways := tunnels(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		heard <- string(b)
	})
	n := 0
	for _, test := range []struct {
		way    string
		bytes  []byte
		passes bool
	}{
		{"CONNECT", good, true},
		{"CONNECT", records(good, 9), true},
		{"CONNECT", clientHello(t, ""), true},
		{"CONNECT", handMade(sniType, sniBody("API.EXAMPLE.TEST")), true},
		{"CONNECT", good[:50], true}, // it ended there
		{"CONNECT", []byte("\x16"), true},
		{"CONNECT", []byte("plain"), true},
		{"CONNECT", other, false}, // allowed, but not what was asked for
		{"CONNECT", evil, false},
		{"CONNECT", records(evil, 1), false},
		{"CONNECT", append([]byte{21, 3, 1, 0, 2, 1, 0}, evil...), false},
		{"CONNECT", append([]byte{22, 10}, evil[2:]...), false},
		{"CONNECT", handMade(sniType, sniBody("api.example.test\x00.evil.test")), false},
		{"SOCKS", good, true},
		{"SOCKS", evil, false},
		{"address", clientHello(t, ""), true},
		{"address", good, true},
		{"address", evil, false},
	} {
		c := ways[test.way](t)
		var failed error
		for rest := test.bytes; len(rest) > 0; { // in segments, of which some hold half a header
			k := min(len(rest), max(3, len(test.bytes)/4))
			if _, failed = c.Write(rest[:k]); failed != nil {
				break
			}
			rest = rest[k:]
			time.Sleep(2 * time.Millisecond)
		}
		_ = c.CloseWrite()
		_, err := io.ReadAll(c)
		got, want := <-heard, string(test.bytes)
		if !test.passes {
			want = ""
		}
		if got != want || test.passes != (err == nil && failed == nil) {
			t.Errorf("%s %.20x...: the server heard %d bytes of %d, the client %v", test.way, test.bytes, len(got), len(test.bytes), err)
		}
		ev := w.event(t, n)
		n++
		if test.passes && ev.Verdict != Allowed || !test.passes && (ev.Verdict != Refused || !strings.Contains(ev.Reason, "server name")) {
			t.Errorf("%s %.20x...: %+v", test.way, test.bytes, ev)
		}
	}
}

// A server that speaks first is heard, though the client has said nothing, or not enough.
func TestTunnelServerFirst(t *testing.T) {
	_, ways := tunnels(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "SSH-2.0-test\r\n")
		_, _ = io.Copy(c, c)
	})
	for _, way := range []string{"CONNECT", "SOCKS"} {
		c := ways[way](t)
		expect(t, c, "SSH-2.0-test\r\n")
		send(t, c, "abc")
		expect(t, c, "abc")
		check(t, c.CloseWrite())
		expectEnd(t, c)
		c = ways[way](t)
		send(t, c, "\x16\x03\x01")
		expect(t, c, "SSH-2.0-test\r\n")
	}
}
