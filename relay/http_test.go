package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// webWorld has one real HTTP server, at several names.
func webWorld(t testing.TB, handler http.Handler) (w *world, proxy string) {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return rawWebWorld(t, srv.Listener.Addr().String())
}

func rawWebWorld(t testing.TB, server string) (w *world, proxy string) {
	t.Helper()
	w = &world{
		names:   map[string][]string{"api.example.test": {"93.184.216.34"}, "two.example.test": {"93.184.216.35"}, "priv.example.test": {"10.0.0.1"}},
		servers: map[string]string{"93.184.216.34:80": server, "93.184.216.35:80": server, "93.184.216.34:8443": server, "10.0.0.1:80": server},
	}
	return w, w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
}

// throughProxy is a real client.
func throughProxy(t testing.TB, proxy string) *http.Client {
	t.Helper()
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}), ExpectContinueTimeout: 5 * time.Second, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// do gives the status, the fields and the body of a response.
func do(t testing.TB, client *http.Client, method, url, body string, fields ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	check(t, err)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	resp, err := client.Do(req)
	check(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	check(t, err)
	return resp.StatusCode, resp.Header, string(b)
}

func TestHTTP(t *testing.T) {
	var conns []string
	w, proxy := webWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		conns = append(conns, r.RemoteAddr)
		b, _ := io.ReadAll(r.Body)
		rw.Header().Set("X-Saw", fmt.Sprintf("%s %s %s len=%d te=%v", r.Method, r.RequestURI, r.Host, r.ContentLength, r.TransferEncoding))
		rw.Header().Add("Set-Cookie", "a=1")
		rw.Header().Add("Set-Cookie", "b=2")
		switch r.URL.Path {
		case "/none":
			rw.WriteHeader(http.StatusNoContent)
		case "/same":
			rw.WriteHeader(http.StatusNotModified)
		case "/length":
			rw.Header().Set("Content-Length", fmt.Sprint(len(b)))
			_, _ = rw.Write(b)
		default:
			rw.(http.Flusher).Flush()
			_, _ = rw.Write(b)
		}
	}))
	client := throughProxy(t, proxy)
	big := strings.Repeat("0123456789abcdef", 100_000)
	for i, test := range []struct{ method, path, body, saw string }{
		{"GET", "/", "", "GET / api.example.test len=0 te=[]"},
		{"GET", "/a%2fb/../%zz?q=%20&x", "", ""},
		{"GET", "//evil.test/x", "", "GET //evil.test/x api.example.test len=0 te=[]"},
		{"HEAD", "/length", "", "HEAD /length api.example.test len=0 te=[]"},
		{"POST", "/length", "hello", "POST /length api.example.test len=5 te=[]"},
		{"POST", "/length", big, "POST /length api.example.test len=1600000 te=[]"},
		{"POST", "/", big, "POST / api.example.test len=1600000 te=[]"},
		{"PUT", "/none", "x", "PUT /none api.example.test len=1 te=[]"},
		{"GET", "/same", "", "GET /same api.example.test len=0 te=[]"},
		{"DELETE", "/x?y", "", "DELETE /x?y api.example.test len=0 te=[]"},
	} {
		if test.saw == "" {
			continue // Go's client writes no such target; see TestHTTPRaw
		}
		_, fields, body := do(t, client, test.method, "http://api.example.test"+test.path, test.body)
		if fields.Get("X-Saw") != test.saw {
			t.Errorf("%d: the server saw %q", i, fields.Get("X-Saw"))
		}
		if want := test.body; test.path != "/none" && body != want {
			t.Errorf("%d: %d bytes came back of %d", i, len(body), len(want))
		}
		if c := fields.Values("Set-Cookie"); !slices.Equal(c, []string{"a=1", "b=2"}) {
			t.Errorf("%d: cookies %q", i, c)
		}
	}
	if n := len(slices.Compact(conns)); n != 1 {
		t.Errorf("%d connections were made, want one that is kept", n)
	}
	if ev := w.event(t, 4); ev.Kind != "http" || ev.Host != "api.example.test" || ev.Port != 80 || ev.Rule != "*.example.test" || ev.Up != 1600000 || ev.Down != 1600000 || ev.Verdict != Allowed {
		t.Errorf("%+v", ev)
	}
}

// Every request of a kept connection is judged by its own target.
func TestHTTPJudgesEachRequest(t *testing.T) {
	w, proxy := webWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.Host) }))
	c := dial(t, proxy)
	r := bufio.NewReader(c)
	for i, test := range []struct{ target, host, want string }{
		{"http://api.example.test/", "api.example.test", "api.example.test"},
		{"http://evil.test/", "api.example.test", ""},
		{"http://api.example.test:80/", "evil.test", "api.example.test"}, // the target counts
		{"http://two.example.test/", "api.example.test", "two.example.test"},
		{"http://priv.example.test/", "api.example.test", ""},
		{"HTTP://API.example.test.:8443/", "", "api.example.test:8443"},
		{"http://api.example.test?x", "", "api.example.test"},
		{"http://api.example.test:22/", "", ""},
	} {
		send(t, c, "GET "+test.target+" HTTP/1.1\r\n")
		if test.host != "" {
			send(t, c, "Host: "+test.host+"\r\n")
		}
		send(t, c, "\r\n")
		resp, err := http.ReadResponse(r, nil)
		check(t, err)
		b, err := io.ReadAll(resp.Body)
		check(t, err)
		check(t, resp.Body.Close())
		if want := test.want; want == "" && (resp.StatusCode != 403 || !strings.Contains(string(b), "is not allowed: ")) || want != "" && string(b) != want {
			t.Errorf("%d: %d %q", i, resp.StatusCode, b)
		}
		if ev := w.event(t, i); (ev.Verdict == Allowed) != (test.want != "") {
			t.Errorf("%d: %+v", i, ev)
		}
	}
}

// rawServer answers every request with a canned response, and hands on what it heard.
func rawServer(t testing.TB, response string) (addr string, heard chan string) {
	t.Helper()
	heard = make(chan string, 10)
	return tcpServer(t, func(c *net.TCPConn) {
		var b strings.Builder
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			b.WriteString(line)
			if line == "\r\n" || err != nil {
				break
			}
		}
		_, _ = io.WriteString(c, response)
		_ = c.CloseWrite()
		rest, _ := io.ReadAll(r)
		heard <- b.String() + string(rest)
	}), heard
}

// What goes on is what came, byte for byte, but for what concerns the connection to the proxy.
func TestHTTPRaw(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	for _, test := range []struct{ name, sent, heard string }{
		{
			"hop by hop fields",
			"GET http://api.example.test/a%2fb/../%zz?q=%20&x HTTP/1.1\r\nHost: evil.test\r\nuser-AGENT:  x y\t\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\n" +
				"Connection: keep-alive, X-Mine, host\r\nKeep-Alive: 5\r\nX-Mine: 1\r\nTE: trailers, gzip\r\nUpgrade: websocket\r\nX-Empty:\r\nAccept-Encoding: br\r\n\r\n",
			"GET /a%2fb/../%zz?q=%20&x HTTP/1.1\r\nHost: api.example.test\r\nuser-AGENT: x y\r\nX-Empty: \r\nAccept-Encoding: br\r\nTE: trailers\r\n\r\n",
		},
		{
			"h2c", "GET http://api.example.test/ HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.test\r\n\r\n",
		},
		{
			"length", "POST http://api.example.test/ HTTP/1.1\r\nContent-Length: 003\r\n\r\nabc",
			"POST / HTTP/1.1\r\nHost: api.example.test\r\nContent-Length: 3\r\n\r\nabc",
		},
		{
			"length 0", "POST http://api.example.test/ HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: api.example.test\r\nContent-Length: 0\r\n\r\n",
		},
		{
			"chunks", "POST http://api.example.test/ HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nTrailer: X-Sum\r\n\r\n3;ext=\"x\"\r\nabc\r\n0a \r\n0123456789\r\n0;x\r\nX-Sum: 1\r\nContent-Length: 5\r\nHost: x\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: api.example.test\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n",
		},
		{
			"HTTP/1.0", "GET http://api.example.test HTTP/1.0\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.test\r\n\r\n",
		},
		{
			"an empty line before", "\r\nGET http://93.184.216.34/ HTTP/1.1\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: 93.184.216.34\r\n\r\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, heard := rawServer(t, ok)
			_, proxy := rawWebWorld(t, server)
			c := dial(t, proxy)
			send(t, c, test.sent)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			check(t, err)
			defer func() { _ = resp.Body.Close() }()
			b, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 200 || string(b) != "ok" || err != nil {
				t.Errorf("%d %q %v", resp.StatusCode, b, err)
			}
			check(t, c.Close())
			if got := <-heard; got != test.heard {
				t.Errorf("the server heard %q\nwant %q", got, test.heard)
			}
		})
	}
}

// What two servers might read differently is answered with an error, and nobody hears of it.
func TestSmuggling(t *testing.T) {
	const get, post, host = "GET http://api.example.test/ HTTP/1.1\r\n", "POST http://api.example.test/ HTTP/1.1\r\n", "Host: api.example.test\r\n"
	for _, test := range []struct {
		name, sent string
		status     int
	}{
		{"length and coding", post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"coding and length", post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
		{"two lengths", post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
		{"two equal lengths", post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
		{"list of lengths", post + "Content-Length: 5, 5\r\n\r\nhello", 400},
		{"signed length", post + "Content-Length: +5\r\n\r\nhello", 400},
		{"negative length", post + "Content-Length: -5\r\n\r\nhello", 400},
		{"hexadecimal length", post + "Content-Length: 0x5\r\n\r\nhello", 400},
		{"underscored length", post + "Content-Length: 1_0\r\n\r\nhello", 400},
		{"empty length", post + "Content-Length:\r\n\r\nhello", 400},
		{"huge length", post + "Content-Length: 9223372036854775808\r\n\r\nhello", 400},
		{"two codings", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
		{"two coding fields", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400},
		{"other coding", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
		{"coding with a tab", post + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", 400},
		{"quoted coding", post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400},
		{"coding in HTTP/1.0", "POST http://api.example.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"folded", get + "X: a\r\n b\r\n\r\n", 400},
		{"folded with a tab", get + "Transfer-Encoding:\r\n\tchunked\r\n\r\n", 400},
		{"folded first", get + " Host: x\r\n\r\n", 400},
		{"space before the colon", get + "Host : api.example.test\r\n\r\n", 400},
		{"tab before the colon", post + "Content-Length\t: 5\r\n\r\nhello", 400},
		{"no colon", get + "Host\r\n\r\n", 400},
		{"no name", get + ": x\r\n\r\n", 400},
		{"two hosts", get + host + host + "\r\n", 400},
		{"bare LF in the request line", "GET http://api.example.test/ HTTP/1.1\n\r\n", 400},
		{"bare LF in a field", get + "X: a\nHost: b\r\n\r\n", 400},
		{"bare LF at the end", get + host + "\n", 400},
		{"bare CR", get + "X: a\rHost: b\r\n\r\n", 400},
		{"bare CR at the end", get + "X: a\r\r\n\r\n", 400},
		{"NUL", get + "X: a\x00b\r\n\r\n", 400},
		{"control character in the target", "GET http://api.example.test/\x01 HTTP/1.1\r\n\r\n", 400},
		{"space in the target", "GET http://api.example.test/ x HTTP/1.1\r\n\r\n", 400},
		{"tab for a space", "GET\thttp://api.example.test/ HTTP/1.1\r\n\r\n", 400},
		{"two spaces", "GET  http://api.example.test/ HTTP/1.1\r\n\r\n", 400},
		{"no version", "GET http://api.example.test/\r\n\r\n", 400},
		{"other version", "GET http://api.example.test/ HTTP/1.2\r\n\r\n", 505},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"lower case version", "GET http://api.example.test/ http/1.1\r\n\r\n", 505},
		{"method", "G@T http://api.example.test/ HTTP/1.1\r\n\r\n", 400},
		{"origin form", "GET / HTTP/1.1\r\nHost: api.example.test\r\n\r\n", 400},
		{"asterisk form", "OPTIONS * HTTP/1.1\r\nHost: api.example.test\r\n\r\n", 400},
		{"authority form", "GET api.example.test:80 HTTP/1.1\r\n\r\n", 400},
		{"https", "GET https://api.example.test/ HTTP/1.1\r\n\r\n", 400},
		{"ftp", "GET ftp://api.example.test/ HTTP/1.1\r\n\r\n", 400},
		{"user", "GET http://u:p@api.example.test/ HTTP/1.1\r\n\r\n", 400},
		{"user that looks like the host", "GET http://api.example.test@evil.test/ HTTP/1.1\r\n\r\n", 400},
		{"backslash", "GET http://api.example.test\\@evil.test/ HTTP/1.1\r\n\r\n", 400},
		{"fragment", "GET http://api.example.test/#@evil.test HTTP/1.1\r\n\r\n", 400},
		{"percent in the host", "GET http://api.example.test%2f.evil.test/ HTTP/1.1\r\n\r\n", 400},
		{"no host", "GET http:///x HTTP/1.1\r\n\r\n", 400},
		{"port 0", "GET http://api.example.test:0/ HTTP/1.1\r\n\r\n", 400},
		{"empty port", "GET http://api.example.test:/ HTTP/1.1\r\n\r\n", 400},
		{"two ports", "GET http://api.example.test:80:81/ HTTP/1.1\r\n\r\n", 400},
		{"non-ASCII host", "GET http://\u0430pi.example.test/ HTTP/1.1\r\n\r\n", 400},
		{"expectation", post + "Expect: 101-x\r\nContent-Length: 1\r\n\r\n", 417},
		{"large head", get + "X: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", 431},
		{"many fields", get + strings.Repeat("X: a\r\n", 20000) + "\r\n", 431},
		{"TLS", "\x16\x03\x01\x00\x05hello\r\n\r\n", 400},
		{"CONNECT with a body", "CONNECT api.example.test:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400},
		{"empty", "\r\n\r\n", 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, proxy := rawWebWorld(t, "127.0.0.1:1")
			c := dial(t, proxy)
			_, _ = io.WriteString(c, test.sent+get+"\r\n") // and one that would be fine
			_ = c.CloseWrite()
			all, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(all), fmt.Sprintf("HTTP/1.1 %d ", test.status)) || strings.Count(string(all), "Content-Type: ") != 1 {
				t.Errorf("%q, %v", all, err)
			}
			if dialed := w.list(&w.dialed); len(dialed) > 0 {
				t.Errorf("dialed %q", dialed)
			}
			if ev := w.event(t, 0); ev.Verdict != Refused || ev.Reason == "" {
				t.Errorf("%+v", ev)
			}
		})
	}
}

// A body that is malformed cuts the server off: it must not take what it has for the whole.
func TestSmugglingInBodies(t *testing.T) {
	const post = "POST http://api.example.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, sent := range []string{
		"3\nabc\r\n0\r\n\r\n", "3;a\nb\r\nabc\r\n0\r\n\r\n", "x\r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "+3\r\nabc\r\n0\r\n\r\n", "\r\nabc\r\n0\r\n\r\n",
		"3\r\nabcd\r\n0\r\n\r\n", "3\r\nabc\n0\r\n\r\n", "ffffffffffffffff\r\nabc", "-1\r\n", "3\r\nabc\r\n0\r\nX : y\r\n\r\n", "3\r\nabc\r\n0\r\n\n", "0\r\n a: b\r\n\r\n",
	} {
		server := tcpServer(t, func(c *net.TCPConn) {
			r := bufio.NewReader(c)
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if b, err := io.ReadAll(req.Body); err == nil {
				t.Errorf("%q: the server takes %q for the whole body", sent, b)
			}
		})
		w, proxy := rawWebWorld(t, server)
		c := dial(t, proxy)
		send(t, c, post+sent+"GET http://two.example.test/ HTTP/1.1\r\n\r\n")
		check(t, c.CloseWrite())
		if all, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 400 ") {
			t.Errorf("%q: %q, %v", sent, all, err)
		}
		if ev := w.event(t, 0); ev.Verdict != Refused {
			t.Errorf("%q: %+v", sent, ev)
		}
		if dialed := w.list(&w.dialed); len(dialed) > 1 {
			t.Errorf("%q: dialed %q", sent, dialed)
		}
	}
}
