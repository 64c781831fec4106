package relay

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/http1"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// The relay reaches hosts through a proxy of the caller's network where the policy has one (network.upstream_proxy). The rules
// judge name and port as ever, and the address of a host that is one. What address a name has only the proxy knows.

// through makes a connection to an allowed host by way of a proxy. With plain it ends at the proxy, which hears of the host in
// each request. The error is a *failure, without the proxy's own
// words, because these can describe its network.
func (s *server) through(ctx context.Context, p *netpolicy.Proxy, d netpolicy.Decision, plain bool) (pipe.Stream, error) {
	c, err := s.dial(ctx, "tcp", p.Address)
	if err != nil {
		return nil, &failure{causeProxy, d.Host, d.Port}
	}
	if plain {
		return c, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // it fails only where the connection is gone
	ask := askCONNECT
	if p.Scheme == netpolicy.ProxySOCKS {
		ask = askSOCKS
	}
	why := ask(c, p, d)
	if !stop() {
		why = causeTimeout
	}
	if why != causeNone {
		pipe.Shut(c)
		return nil, &failure{why, d.Host, d.Port}
	}
	return c, nil
}

// hostPort is how a host is written to a proxy.
func hostPort(d netpolicy.Decision) string { return net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) }

// authorization returns the field with the user and password for a proxy; "" if it has none.
func authorization(p *netpolicy.Proxy) string {
	if p.Secret() == "" {
		return ""
	}
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(p.Secret())) + "\r\n"
}

// slowly reads a byte at a time, so that the bytes after the proxy's answer stay in the socket for the program.
type slowly struct{ io.Reader }

func (s slowly) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(1, len(p))]) }

// askCONNECT asks an HTTP proxy for a tunnel.
func askCONNECT(c net.Conn, p *netpolicy.Proxy, d netpolicy.Decision) cause {
	host := hostPort(d)
	if _, err := io.WriteString(c, "CONNECT "+host+" HTTP/1.1\r\nHost: "+host+"\r\n"+authorization(p)+"\r\n"); err != nil {
		return causeProxy
	}
	resp, err := http1.ReadResponse(bufio.NewReaderSize(slowly{c}, 16), maxResponseHead, "HEAD") // no body follows what is let through
	if err != nil {
		return causeProxy
	}
	switch resp.Status {
	case 200, 201, 202, 204:
		return causeNone
	case http1.StatusProxyAuth:
		return causeProxyAuth
	case http1.StatusBadRequest, http1.StatusForbidden, 405:
		return causeProxyRefused
	}
	return causeUnreachable
}

// Numbers of RFC 1929.
const (
	socksPassword        = 2 // the method
	socksPasswordVersion = 1
)

// askSOCKS asks a SOCKS5 proxy for a connection. Names are the proxy's to resolve.
func askSOCKS(c net.Conn, p *netpolicy.Proxy, d netpolicy.Decision) cause {
	if why := greetSOCKS(c, p); why != causeNone {
		return why
	}
	request := []byte{socks5, socksConnect, 0}
	if a, err := netip.ParseAddr(d.Host); err != nil {
		request = append(append(request, socksName, byte(len(d.Host))), d.Host...)
	} else if a.Is4() {
		request = append(append(request, socksIPv4), a.AsSlice()...)
	} else {
		request = append(append(request, socksIPv6), a.AsSlice()...)
	}
	var reply [4]byte
	switch ok := askOnce(c, append(request, byte(d.Port>>8), byte(d.Port)), reply[:]); {
	case !ok || reply[0] != socks5:
		return causeProxy
	case reply[1] == socksGranted && skipAddress(c, reply[3]):
		return causeNone
	case reply[1] == socksRefused:
		return causeProxyRefused
	case reply[1] == socksNoServer:
		return causeRefused
	}
	return causeUnreachable
}

// greetSOCKS logs in at a SOCKS5 proxy.
func greetSOCKS(c net.Conn, p *netpolicy.Proxy) cause {
	methods := []byte{socks5, 1, socksNoAuth}
	if p.Secret() != "" {
		methods = []byte{socks5, 2, socksNoAuth, socksPassword}
	}
	var reply [2]byte
	switch ok := askOnce(c, methods, reply[:]); {
	case !ok || reply[0] != socks5:
		return causeProxy
	case reply[1] == socksNoAuth:
		return causeNone
	case reply[1] != socksPassword || p.Secret() == "":
		return causeProxyAuth
	}
	login := append([]byte{socksPasswordVersion, byte(len(p.User))}, p.User...)
	login = append(append(login, byte(len(p.Password))), p.Password...)
	if !askOnce(c, login, reply[:]) || reply[1] != socksGranted {
		return causeProxyAuth
	}
	return causeNone
}

func askOnce(c net.Conn, ask, reply []byte) bool {
	_, err := c.Write(ask)
	if err == nil {
		_, err = io.ReadFull(c, reply)
	}
	return err == nil
}

// skipAddress reads the address at which the proxy has connected.
func skipAddress(c net.Conn, kind byte) bool {
	n := map[byte]int64{socksIPv4: 4, socksIPv6: 16}[kind]
	if kind == socksName {
		var length [1]byte
		_, _ = io.ReadFull(c, length[:]) // an empty name is none
		n = int64(length[0])
	}
	if n == 0 {
		return false
	}
	_, err := io.CopyN(io.Discard, c, n+2)
	return err == nil
}
