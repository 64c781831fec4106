// Package tlsname reads the server name that the first bytes of a TLS connection ask for. It accepts no form that another reader could
// understand differently, because the relay compares the name with the host that the policy has allowed. It imports nothing of ours.
package tlsname

import (
	"encoding/binary"
	"errors"
	"io"
)

// Limits of TLS records (RFC 8446, section 5.1; 256 more are allowed to encrypted ones) and of a ClientHello: post-quantum
// key shares make one about 2 KiB. maxHello is with the heads of its records, of which there can be one for each byte.
const (
	recordHeader = 5
	maxRecord    = 1<<14 + 256
	maxHello     = 48 << 10
)

// What a connection can begin with, besides a ClientHello that is understood.
var (
	errMore   = errors.New("the ClientHello is not complete")
	errNotTLS = errors.New("it is not TLS")
	ErrHello  = errors.New("it begins like TLS, but not with a ClientHello that can be read")
)

// serverName reads the server name from the first bytes of a connection; "" where a ClientHello has none. The error is
// errMore as long as more bytes could make a difference, errNotTLS, or ErrHello for what some server could read otherwise
// than this function does: another record first, empty records, two names.
func serverName(b []byte) (string, error) {
	if len(b) == 0 {
		return "", errMore
	}
	if b[0] < 20 || b[0] > 24 {
		return "", errNotTLS
	}
	if len(b) == 1 {
		return "", errMore
	}
	if b[1] != 3 { // what every client sends: the major version is that of SSL 3, for ever
		return "", oddVersion(b)
	}
	hello, err := handshake(b)
	if err != nil {
		return "", err
	}
	return helloName(hello)
}

// oddVersion judges what would be TLS if the version in its first record were one. A server need not care about that (RFC 8446,
// section 5.1: it "MUST be ignored for all purposes"; Go's takes any below 0x1000), so it must hide no ClientHello, nor one
// behind a record that a server may pass over.
func oddVersion(b []byte) error {
	if len(b) < recordHeader+1 {
		return errMore
	}
	n := binary.BigEndian.Uint16(b[3:])
	switch {
	case n == 0,
		b[0] == 22 && b[recordHeader] == 1 && n <= maxRecord, // ClientHello
		b[0] == 21 && n == 2, // alert
		b[0] == 20 && n == 1: // change of cipher
		return ErrHello
	}
	return errNotTLS
}

// handshake gathers the first handshake message out of the records that it is split over (CVE-2014-3511 was about those),
// and gives its body.
func handshake(b []byte) ([]byte, error) {
	var msg []byte
	more := errMore
	if len(b) > maxHello {
		more = ErrHello
	}
	for len(b) >= recordHeader {
		n := int(binary.BigEndian.Uint16(b[3:]))
		if b[0] != 22 || b[1] != 3 || n == 0 || n > maxRecord {
			return nil, ErrHello
		}
		b = b[recordHeader:]
		msg = append(msg, b[:min(n, len(b))]...)
		b = b[min(n, len(b)):]
		if body, err := messageBody(msg); !errors.Is(err, errMore) {
			return body, err
		}
	}
	if len(b) > 0 && b[0] != 22 {
		return nil, ErrHello
	}
	return nil, more
}

// messageBody is what a handshake message, which must be a ClientHello, holds.
func messageBody(msg []byte) ([]byte, error) {
	switch {
	case len(msg) > 0 && msg[0] != 1:
		return nil, ErrHello
	case len(msg) < 4:
		return nil, errMore
	}
	n := int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3])
	if len(msg) < 4+n {
		return nil, errMore
	}
	return msg[4 : 4+n], nil
}

// helloName finds the server name in a ClientHello's body (RFC 8446, section 4.1.2; RFC 6066, section 3).
func helloName(hello []byte) (string, error) {
	r := fields{b: hello}
	r.take(2 + 32) // version, random
	r.vector(1)    // session
	r.vector(2)    // cipher suites
	r.vector(1)    // compression methods
	if r.bad {
		return "", ErrHello
	}
	if len(r.b) == 0 {
		return "", nil // as clients before extensions did
	}
	extensions := fields{b: r.vector(2)}
	if r.bad || len(r.b) > 0 {
		return "", ErrHello
	}
	name, seen := "", false
	for len(extensions.b) > 0 {
		kind := extensions.take(2)
		body := extensions.vector(2)
		if extensions.bad {
			return "", ErrHello
		}
		if kind[0] != 0 || kind[1] != 0 {
			continue
		}
		var ok bool
		if name, ok = nameList(body); !ok || seen {
			return "", ErrHello
		}
		seen = true
	}
	return name, nil
}

// nameList takes a list of exactly one name, a host's: more than that no client sends, and no two servers agree on.
func nameList(b []byte) (string, bool) {
	r := fields{b: b}
	list := fields{b: r.vector(2)}
	kind := list.take(1)
	name := list.vector(2)
	if r.bad || list.bad || len(r.b) > 0 || len(list.b) > 0 || kind[0] != 0 || len(name) == 0 {
		return "", false
	}
	return string(name), true
}

// fields reads the parts of TLS messages. After a part that is cut short bad is true, and every later part is empty.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) take(n int) []byte {
	if f.bad || len(f.b) < n {
		f.bad, f.b = true, nil
		return nil
	}
	var got []byte
	got, f.b = f.b[:n], f.b[n:]
	return got
}

// vector reads a length of size bytes, and as many bytes as that says.
func (f *fields) vector(size int) []byte {
	n := 0
	for _, c := range f.take(size) {
		n = n<<8 | int(c)
	}
	return f.take(n)
}

// ReadStart reads until serverName can decide, or the input ends. name and tls are the results of serverName.
func ReadStart(src io.Reader) (start []byte, name string, tls, err error) {
	start = make([]byte, 0, 2<<10)
	for {
		if len(start) == cap(start) {
			start = append(start, 0)[:len(start)]
		}
		n, err := src.Read(start[len(start):cap(start)])
		start = start[:len(start)+n]
		name, tls = serverName(start)
		switch {
		case errors.Is(err, io.EOF): // it is seen again by what follows
			return start, name, tls, nil
		case err != nil || !errors.Is(tls, errMore):
			return start, name, tls, err
		}
	}
}
