// Package tlstest makes the first bytes of TLS connections for tests.
package tlstest

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

const recordHeader = 5

// ClientHello is what Go's client really sends.
func ClientHello(t testing.TB, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer func() { _ = b.Close() }()
	go func() {
		_ = tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
		_ = a.Close()
	}()
	head := make([]byte, recordHeader)
	if _, err := io.ReadFull(b, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// Records splits a record over records of at most n bytes.
func Records(hello []byte, n int) []byte {
	var b []byte
	for body := hello[recordHeader:]; len(body) > 0; {
		k := min(n, len(body))
		b = append(b, 22, 3, 1, byte(k>>8), byte(k))
		b = append(b, body[:k]...)
		body = body[k:]
	}
	return b
}

// HandMade is a ClientHello with these extensions, each a type and a body.
func HandMade(extensions ...string) []byte {
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
	return Wrap(1, body)
}

// Wrap makes a record of one handshake message.
func Wrap(kind byte, body []byte) []byte {
	n := len(body)
	msg := append([]byte{kind, 0, byte(n >> 8), byte(n)}, body...)
	return append([]byte{22, 3, 1, byte(len(msg) >> 8), byte(len(msg))}, msg...)
}

// SNIType is the number of the extension server_name.
const SNIType = "\x00\x00"

// SNIBody is the body of that extension, with one name.
func SNIBody(name string) string {
	n := len(name)
	return string([]byte{byte((n + 3) >> 8), byte(n + 3), 0, byte(n >> 8), byte(n)}) + name
}
