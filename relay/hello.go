package relay

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
)

// Limits of TLS records (RFC 8446, section 5.1; 256 more are allowed to encrypted ones) and of a ClientHello: post-quantum
// key shares make one about 2 KiB. maxHello is with the heads of its records, of which there can be one for each byte.
const (
	recordHeader = 5
	maxRecord    = 1<<14 + 256
	maxHello     = 48 << 10
)

var (
	errMore   = errors.New("the ClientHello is not complete")
	errNotTLS = errors.New("it is not TLS")
	errHello  = errors.New("it begins like TLS, but not with a ClientHello that can be read")
)

// serverName reads the server name from the first bytes of a connection; "" where a ClientHello has none. The error is
// errMore as long as more bytes could make a difference, errNotTLS, or errHello for what some server could read otherwise
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
		return errHello
	}
	return errNotTLS
}

// handshake gathers the first handshake message out of the records that it is split over (CVE-2014-3511 was about those),
// and gives its body.
func handshake(b []byte) ([]byte, error) {
	var msg []byte
	more := errMore
	if len(b) > maxHello {
		more = errHello
	}
	for len(b) >= recordHeader {
		n := int(binary.BigEndian.Uint16(b[3:]))
		if b[0] != 22 || b[1] != 3 || n == 0 || n > maxRecord {
			return nil, errHello
		}
		b = b[recordHeader:]
		msg = append(msg, b[:min(n, len(b))]...)
		b = b[min(n, len(b)):]
		if body, err := messageBody(msg); !errors.Is(err, errMore) {
			return body, err
		}
	}
	if len(b) > 0 && b[0] != 22 {
		return nil, errHello
	}
	return nil, more
}

// messageBody is what a handshake message, which must be a ClientHello, holds.
func messageBody(msg []byte) ([]byte, error) {
	switch {
	case len(msg) > 0 && msg[0] != 1:
		return nil, errHello
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
		return "", errHello
	}
	if len(r.b) == 0 {
		return "", nil // as clients before extensions did
	}
	extensions := fields{b: r.vector(2)}
	if r.bad || len(r.b) > 0 {
		return "", errHello
	}
	name, seen := "", false
	for len(extensions.b) > 0 {
		kind := extensions.take(2)
		body := extensions.vector(2)
		if extensions.bad {
			return "", errHello
		}
		if kind[0] != 0 || kind[1] != 0 {
			continue
		}
		var ok bool
		if name, ok = nameList(body); !ok || seen {
			return "", errHello
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

// guardName is the prelude of a connection that was made for host. Where it begins with a ClientHello, nothing is sent
// before that is complete and its server name is the host's: a server of many names would otherwise be asked for one that
// is not allowed ("domain fronting"). Other bytes are passed on as they come. Bytes from the server never wait.
//
// What it cannot see is the name inside an encrypted ClientHello (ECH), the Host header inside TLS, and TLS that begins
// later in a connection (STARTTLS).
func (s *server) guardName(host string, port int, src *bufio.Reader) prelude {
	return func(dst io.Writer) (int64, error) {
		start, name, tls, err := readStart(src)
		if err != nil {
			return 0, err
		}
		if no := s.judgeHello(host, port, name, tls); no != nil {
			return 0, no
		}
		sent, err := dst.Write(start)
		if err != nil {
			return int64(sent), err
		}
		more, err := rest(src)(dst)
		return int64(sent) + more, err
	}
}

// readStart reads until serverName can decide, or the input ends. name and tls are the results of serverName.
func readStart(src io.Reader) (start []byte, name string, tls, err error) {
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

func (s *server) judgeHello(host string, port int, name string, tls error) error {
	if errors.Is(tls, errHello) {
		return refusef("%v, so its server name cannot be compared with %q", tls, host)
	}
	if name == "" {
		return nil
	}
	d := s.judge.Name(name, port)
	if d.Host == host || isAddress(host) && d.Allow { // an allowed address has no name of its own
		return nil
	}
	return refusef("the TLS server name %s is not %q, the host that the connection was made for", d.Host, host)
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
