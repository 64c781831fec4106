package tlsname

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"testing"

	"github.com/sandboxrun/sandboxrun/relay/tlsname/tlstest"
)

func TestServerName(t *testing.T) {
	real := tlstest.ClientHello(t, "api.example.test")
	trailing := tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("a.test"))
	for _, test := range []struct {
		name  string
		bytes []byte
		want  string
		err   error
	}{
		{"Go's client", real, "api.example.test", nil},
		{"Go's client, without a name", tlstest.ClientHello(t, ""), "", nil},
		{"with more behind it", append(bytes.Clone(real), "more"...), "api.example.test", nil},
		{"in tlstest.Records of 1 byte", tlstest.Records(real, 1), "api.example.test", nil},
		{"in tlstest.Records of 7 bytes", tlstest.Records(real, 7), "api.example.test", nil},
		{"as written", tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("API.Example.test.")), "API.Example.test.", nil},
		{"no extensions", tlstest.HandMade(), "", nil},
		{"other extensions", tlstest.HandMade("\x00\x10", "x", "\x00\x2b", ""), "", nil},
		{"name last", tlstest.HandMade("\x00\x10", "x", tlstest.SNIType, tlstest.SNIBody("a.test")), "a.test", nil},
		{"two names", tlstest.HandMade(tlstest.SNIType, "\x00\x08\x00\x00\x01a\x00\x00\x01b"), "", ErrHello},
		{"two lists", tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("a"), tlstest.SNIType, tlstest.SNIBody("b")), "", ErrHello},
		{"empty list", tlstest.HandMade(tlstest.SNIType, "\x00\x00"), "", ErrHello},
		{"empty extension", tlstest.HandMade(tlstest.SNIType, ""), "", ErrHello},
		{"empty name", tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("")), "", ErrHello},
		{"another kind of name", tlstest.HandMade(tlstest.SNIType, "\x00\x04\x01\x00\x01a"), "", ErrHello},
		{"bytes after the list", tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("a")+"b"), "", ErrHello},
		{"bytes after the extensions", tlstest.Wrap(1, append(bytes.Clone(trailing[9:]), 0)), "", ErrHello},
		{"extensions cut short", tlstest.Wrap(1, trailing[9:len(trailing)-1]), "", ErrHello},
		{"a body cut short", tlstest.Wrap(1, trailing[9:30]), "", ErrHello},
		{"ServerHello", tlstest.Wrap(2, trailing[9:]), "", ErrHello},
		{"empty record first", append([]byte{22, 3, 1, 0, 0}, real...), "", ErrHello},
		{"alert first", append([]byte{21, 3, 1, 0, 2, 1, 0}, real...), "", ErrHello},
		{"change of cipher first", append([]byte{20, 3, 1, 0, 1, 1}, real...), "", ErrHello},
		{"application data", []byte{23, 3, 3, 0, 1, 1}, "", ErrHello},
		{"another record between", append(tlstest.Records(real, 50)[:55], 20, 3, 1, 0, 1, 1), "", ErrHello},
		{"another version between", append(tlstest.Records(real, 50)[:55], 22, 2, 1, 0, 1), "", ErrHello},
		{"record too long", []byte{22, 3, 1, 0xff, 0xff}, "", ErrHello},
		{"endless", tlstest.Records(tlstest.Wrap(1, make([]byte, 65000))[:maxHello-100], 2), "", ErrHello},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), "", errNotTLS},
		{"SSH", []byte("SSH-2.0-x"), "", errNotTLS},
		{"SSL 2", []byte{0x80, 0x2e, 1, 3, 1}, "", errNotTLS},
		{"odd version", append([]byte{22, 10}, real[2:]...), "", ErrHello},
		{"odd version, alert first", append([]byte{21, 10, 1, 0, 2, 1, 0}, real...), "", ErrHello},
		{"odd version, change of cipher first", append([]byte{20, 0, 0, 0, 1, 1}, real...), "", ErrHello},
		{"odd version, empty record first", append([]byte{22, 0, 0, 0, 0}, real...), "", ErrHello},
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
	f.Add(tlstest.ClientHello(f, "api.example.test"))
	f.Add(tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("a.test"), "\x00\x10", "x"))
	f.Add(tlstest.Records(tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("a.test")), 3))
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
