// Package proxytest is for tests alone: a proxy of somebody's network, as the relay asks it for connections. It stands apart from
// package relay because tests of the built command use it too.
package proxytest

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Proxy speaks HTTP and SOCKS5 on one port, and wants a user and password.
type Proxy struct {
	Address string // "127.0.0.1:PORT"

	mu    sync.Mutex
	asked []string
	login string
	dial  func(host string) (net.Conn, error)
}

// Start serves until the test ends. login is "USER:PASSWORD", or "" where everybody may. dial connects to "host:port", and
// Errors that it gives become refusals by the rules of the proxy.
func Start(t testing.TB, login string, dial func(host string) (net.Conn, error)) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), login: login, dial: dial}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close() //nolint:errcheck // nobody is left to be told
				p.serve(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return p
}

// Asked lists what the proxy was asked for, such as "CONNECT host:443", "GET http://host/" or "SOCKS host:443"; with "!" before where the
// password was wrong.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *Proxy) note(ok bool, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok {
		what = "!" + what
	}
	p.asked = append(p.asked, what)
}

func (p *Proxy) serve(c net.Conn) {
	r := bufio.NewReader(c)
	if first, err := r.Peek(1); err != nil {
		return
	} else if first[0] == 5 {
		_ = p.socks(c, r)
		return
	}
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	ok := p.login == "" || req.Header.Get("Proxy-Authorization") == "Basic "+base64.StdEncoding.EncodeToString([]byte(p.login))
	p.note(ok, req.Method+" "+req.RequestURI)
	host := req.URL.Host
	if req.Method != http.MethodConnect && req.URL.Port() == "" {
		host += ":80"
	}
	if !ok {
		_, _ = io.WriteString(c, "HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm=\"proxy\"\r\nContent-Length: 0\r\n\r\n")
		return
	}
	out, err := p.dial(host)
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 403 Not you\r\nContent-Length: 6\r\n\r\nsecret")
		return
	}
	defer out.Close() //nolint:errcheck // nobody is left to be told
	if req.Method == http.MethodConnect {
		_, _ = io.WriteString(c, "HTTP/1.1 200 Here you are\r\nVia: proxy\r\n\r\n")
		join(c, r, out)
		return
	}
	req.Header.Del("Proxy-Authorization")
	req.Close = true
	if req.Write(out) == nil {
		_, _ = io.Copy(c, out)
	}
}

func (p *Proxy) socks(c net.Conn, r *bufio.Reader) error {
	method := byte(2)
	if p.login == "" {
		method = 0
	}
	head := make([]byte, 2)
	_, err := io.ReadFull(r, head)
	methods := make([]byte, head[1])
	_, err2 := io.ReadFull(r, methods)
	if err = errors.Join(err, err2); err != nil || !slices.Contains(methods, method) {
		p.note(false, "SOCKS")
		_, _ = c.Write([]byte{5, 255})
		return err
	}
	_, _ = c.Write([]byte{5, method})
	if method == 2 {
		if err = p.password(c, r); err != nil {
			return err
		}
	}
	host, err := socksHost(r)
	if err != nil {
		return err
	}
	p.note(true, "SOCKS "+host)
	out, err := p.dial(host)
	if err != nil {
		_, _ = c.Write([]byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0})
		return err
	}
	defer out.Close() //nolint:errcheck // nobody is left to be told
	_, _ = c.Write([]byte{5, 0, 0, 3, 2, 'm', 'e', 0, 1})
	join(c, r, out)
	return nil
}

func (p *Proxy) password(c net.Conn, r *bufio.Reader) error {
	version, err := r.ReadByte()
	if err != nil || version != 1 {
		return errors.New("it is no RFC 1929")
	}
	user, err := short(r)
	if err != nil {
		return err
	}
	password, err := short(r)
	if err != nil {
		return err
	}
	if user+":"+password != p.login {
		p.note(false, "SOCKS")
		_, _ = c.Write([]byte{1, 1})
		return errors.New("it is another password")
	}
	_, err = c.Write([]byte{1, 0})
	return err
}

// short reads a length of one byte, and so many bytes.
func short(r *bufio.Reader) (string, error) {
	n, err := r.ReadByte()
	b := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(r, b)
	}
	return string(b), err
}

func socksHost(r *bufio.Reader) (string, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", err
	}
	host := ""
	switch head[3] {
	case 3:
		var err error
		if host, err = short(r); err != nil {
			return "", err
		}
	case 1, 4:
		ip := make([]byte, map[byte]int{1: 4, 4: 16}[head[3]])
		if _, err := io.ReadFull(r, ip); err != nil {
			return "", err
		}
		host = net.IP(ip).String()
	}
	port := make([]byte, 2)
	_, err := io.ReadFull(r, port)
	return net.JoinHostPort(host, fmt.Sprint(int(port[0])<<8|int(port[1]))), err
}

func join(c net.Conn, r io.Reader, out net.Conn) {
	done := make(chan bool)
	go func() {
		_, _ = io.Copy(out, r)
		if t, ok := out.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
		close(done)
	}()
	_, _ = io.Copy(c, out)
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
	<-done
}

// Local dials one address, whatever host was asked for, but refuses hosts that begin with "no.".
func Local(address string) func(string) (net.Conn, error) {
	return func(host string) (net.Conn, error) {
		if strings.HasPrefix(host, "no.") {
			return nil, errors.New("it is not allowed")
		}
		return net.Dial("tcp", address)
	}
}
