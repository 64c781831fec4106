package relay

import (
	"bufio"
	"errors"
	"io"
	"net/netip"

	"github.com/sandboxrun/sandboxrun/relay/pipe"
	"github.com/sandboxrun/sandboxrun/relay/tlsname"
)

// guardName is the prelude of a connection that was made for host. Where it begins with a ClientHello, nothing is sent
// before that is complete and its server name is the host's: a server of many names would otherwise be asked for one that
// is not allowed ("domain fronting"). Other bytes are passed on as they come. Bytes from the server never wait.
//
// What it cannot see is the name inside an encrypted ClientHello (ECH), the Host header inside TLS, and TLS that begins
// later in a connection (STARTTLS).
func (s *server) guardName(host string, port int, src *bufio.Reader) pipe.Prelude {
	return func(dst io.Writer) (int64, error) {
		start, name, tls, err := tlsname.ReadStart(src)
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
		more, err := pipe.Rest(src)(dst)
		return int64(sent) + more, err
	}
}

func (s *server) judgeHello(host string, port int, name string, tls error) error {
	if errors.Is(tls, tlsname.ErrHello) {
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
