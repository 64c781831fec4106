package relay

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

const wsAsk = "GET http://api.example.test/ws HTTP/1.1\r\nHost: api.example.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n"

func TestUpgrade(t *testing.T) {
	server := tcpServer(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil || req.Header.Get("Upgrade") != "websocket" || req.Header.Get("Connection") != "Upgrade" || req.Header.Get("Sec-Websocket-Key") != "eA==" {
			t.Errorf("%v, %+v", err, req)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Ws: 1\r\n\r\n\x81\x05hello")
		for {
			b := make([]byte, 4096)
			n, err := r.Read(b)
			if err != nil {
				_, _ = io.WriteString(c, "bye")
				return
			}
			_, _ = c.Write(append([]byte("E:"), b[:n]...))
		}
	})
	w, proxy := rawWebWorld(t, server)
	for i, early := range []string{"", "\x00early"} {
		c := dial(t, proxy)
		send(t, c, wsAsk+early)
		r := bufio.NewReader(c)
		if head := headOf(t, r); head != "HTTP/1.1 101 Switching Protocols\r\nX-Ws: 1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" {
			t.Errorf("%q", head)
		}
		expect(t, r, "\x81\x05hello")
		if early != "" {
			expect(t, r, "E:"+early)
		}
		send(t, c, "\x00\xffping")
		expect(t, r, "E:\x00\xffping")
		check(t, c.CloseWrite())
		expect(t, r, "bye")
		expectEnd(t, r)
		if ev := w.event(t, i); ev.Verdict != Allowed || ev.Up != int64(6+len(early)) {
			t.Errorf("%+v", ev)
		}
	}
}

func TestUpgradeRefusedByServer(t *testing.T) {
	_, proxy := webWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "no", http.StatusForbidden) }))
	c := dial(t, proxy)
	r := bufio.NewReader(c)
	for range 2 { // and the connection is kept
		send(t, c, wsAsk)
		resp, err := http.ReadResponse(r, nil)
		check(t, err)
		if b, err := io.ReadAll(resp.Body); resp.StatusCode != 403 || string(b) != "no\n" || err != nil {
			t.Errorf("%d %q %v", resp.StatusCode, b, err)
		}
		check(t, resp.Body.Close())
	}
}

func TestStreaming(t *testing.T) {
	next := make(chan bool)
	_, proxy := webWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		rw.Header().Set("Content-Type", "text/event-stream")
		rw.Header().Set("Trailer", "X-Sum")
		for i := range 3 {
			_, _ = fmt.Fprintf(rw, "data: %d\n\n", i)
			rw.(http.Flusher).Flush()
			<-next
		}
		b := make([]byte, 4)
		for range 2 { // what is uploaded comes at once, too
			_, _ = io.ReadFull(r.Body, b)
			_, _ = rw.Write(b)
			rw.(http.Flusher).Flush()
		}
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("X-Sum", r.Trailer.Get("X-Up"))
		rw.Header().Set(http.TrailerPrefix+"X-Late", "yes")
	}))
	c := dial(t, proxy)
	send(t, c, "POST http://api.example.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\nTrailer: X-Up\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	check(t, err)
	defer resp.Body.Close()
	for i := range 3 {
		expect(t, resp.Body, fmt.Sprintf("data: %d\n\n", i))
		next <- true
	}
	send(t, c, "4\r\nping\r\n")
	expect(t, resp.Body, "ping")
	send(t, c, "4\r\npo")
	time.Sleep(10 * time.Millisecond)
	send(t, c, "ng\r\n")
	expect(t, resp.Body, "pong")
	send(t, c, "0\r\nX-Up: 7\r\n\r\n")
	expectEnd(t, resp.Body)
	if resp.Trailer.Get("X-Sum") != "7" || resp.Trailer.Get("X-Late") != "yes" {
		t.Errorf("trailer %v", resp.Trailer)
	}
}

func TestExpectContinue(t *testing.T) {
	_, proxy := webWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		b, _ := io.ReadAll(r.Body)
		_, _ = rw.Write(b)
	}))
	client := throughProxy(t, proxy)
	if status, _, body := do(t, client, "POST", "http://api.example.test/yes", "hello", "Expect", "100-continue"); status != 200 || body != "hello" {
		t.Errorf("%d %q", status, body)
	}
	c := dial(t, proxy)
	send(t, c, "POST http://api.example.test/no HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	all, err := io.ReadAll(c) // it is closed: whether the body will come nobody knows
	if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 401 ") || !strings.Contains(string(all), "\r\nConnection: close\r\n") {
		t.Errorf("%q, %v", all, err)
	}
	server := tcpServer(t, func(c *net.TCPConn) { // one that has never heard of it
		r := bufio.NewReader(c)
		headOf(t, r)
		_, _ = io.ReadFull(r, make([]byte, 5))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	_, proxy = rawWebWorld(t, server)
	c = dial(t, proxy)
	send(t, c, "POST http://api.example.test/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	r := bufio.NewReader(c)
	if head := headOf(t, r); head != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Errorf("%q", head)
	}
	send(t, c, "hello")
	if head := headOf(t, r); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Errorf("%q", head)
	}
}

// responses are what servers answer, and what the program gets.
func TestResponses(t *testing.T) {
	const closing = "GET http://api.example.test/ HTTP/1.1\r\nConnection: close\r\n\r\n"
	for _, test := range []struct{ name, request, response, want string }{
		{
			"early hints", "GET http://api.example.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
			"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
		},
		{
			"to the end", "GET http://api.example.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 Fine by me\r\nX-b: 1\r\nProxy-Authenticate: Basic\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\nxyz",
			"HTTP/1.1 200 Fine by me\r\nX-b: 1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nxyz\r\n0\r\n\r\n",
		},
		{"to the end, HTTP/1.0", "GET http://api.example.test/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nxyz", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nxyz"},
		{"chunks to HTTP/1.0", "GET http://api.example.test/ HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nxyz"},
		{"folded and bare LF", closing, "HTTP/1.1  200 OK\nX-A: 1\r\n\t 2\nContent-Length: 3\nContent-Length: 3\n\nxyz", "HTTP/1.1 200 OK\r\nX-A: 1 2\r\nContent-Length: 3\r\nConnection: close\r\n\r\nxyz"},
		{
			"coding and length", closing, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nxyz\r\n0\r\nX-T: 1\r\nHost: x\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nxyz\r\n0\r\nX-T: 1\r\n\r\n",
		},
		{"coding in HTTP/1.0", closing, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"},
		{"no content", closing, "HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 204 None\r\nConnection: close\r\n\r\n"},
		{"two lengths", closing, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", "HTTP/1.1 502 *"},
		{"list of lengths", closing, "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nxy", "HTTP/1.1 502 *"},
		{"signed length", closing, "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nxy", "HTTP/1.1 502 *"},
		{"other coding", closing, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "HTTP/1.1 502 *"},
		{"two codings", closing, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 502 *"},
		{"bare CR", closing, "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n\r\n", "HTTP/1.1 502 *"},
		{"space before the colon", closing, "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx", "HTTP/1.1 502 *"},
		{"other version", closing, "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 502 *"},
		{"short status", closing, "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 502 *"},
		{"HEAD", "HEAD http://api.example.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 77\r\nConnection: close\r\n\r\n"},
		{"HEAD refused", "HEAD http://evil.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", "", "HTTP/1.1 403 *Connection: close\r\n\r\n"},
		{"nothing", "GET http://api.example.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", "", "HTTP/1.1 502 *"},
		{"garbage", "GET http://api.example.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 502 *"},
		{"unasked upgrade", "GET http://api.example.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "HTTP/1.1 502 *"},
		{"endless head", "GET http://api.example.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: a\r\n", 100_000), "HTTP/1.1 502 *"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, _ := rawServer(t, test.response)
			_, proxy := rawWebWorld(t, server)
			c := dial(t, proxy)
			send(t, c, test.request)
			all, err := io.ReadAll(c)
			start, end, any := strings.Cut(test.want, "*")
			got := string(all)
			if err != nil || !strings.HasPrefix(got, start) || !strings.HasSuffix(got, end) || !any && got != test.want {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// A response that was cut off does not look whole.
func TestCutOff(t *testing.T) {
	for _, response := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\nxyz", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\nzz\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\nxyz\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyzGET / HTTP/1.1\r\n\r\n",
	} {
		for _, version := range []string{"1.0", "1.1"} {
			server, _ := rawServer(t, response)
			w, proxy := rawWebWorld(t, server)
			c := dial(t, proxy)
			send(t, c, "GET http://api.example.test/ HTTP/"+version+"\r\nConnection: close\r\n\r\n")
			if all, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q: %q, %v", response, all, err)
			}
			if ev := w.event(t, 0); ev.Verdict != Failed {
				t.Errorf("%q: %+v", response, ev)
			}
		}
	}
}

// A server that answers before it has read the body, and reads no more of it.
func TestEarlyAnswer(t *testing.T) {
	server := tcpServer(t, func(c *net.TCPConn) {
		headOf(t, bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!")
		_ = c.CloseWrite()
		time.Sleep(100 * time.Millisecond)
	})
	_, proxy := rawWebWorld(t, server)
	c := dial(t, proxy)
	send(t, c, "POST http://api.example.test/ HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n")
	go func() { _, _ = io.Copy(c, zeros{}) }()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	check(t, err)
	defer resp.Body.Close()
	expect(t, resp.Body, "no!")
	if resp.StatusCode != 413 || !resp.Close {
		t.Errorf("%+v", resp)
	}
}

// Who goes away is not waited for.
func TestClientGone(t *testing.T) {
	gone := make(chan string, 1)
	_, proxy := webWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		gone <- r.URL.Path
	}))
	for _, request := range []string{"GET http://api.example.test/get HTTP/1.1\r\n\r\n", "POST http://api.example.test/post HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"} {
		for _, half := range []bool{false, true} {
			c := dial(t, proxy)
			send(t, c, request)
			if half {
				check(t, c.CloseWrite())
			}
			time.Sleep(50 * time.Millisecond)
			pipe.Reset(c)
			select {
			case <-gone:
			case <-time.After(5 * time.Second):
				t.Errorf("%q: the server still works on it", request)
			}
		}
	}
}

// A client that has ended only its own direction gets its answer.
func TestHalfClosedClient(t *testing.T) {
	_, proxy := webWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond)
		_, _ = io.WriteString(rw, "late")
	}))
	c := dial(t, proxy)
	send(t, c, "GET http://api.example.test/ HTTP/1.0\r\n\r\n")
	check(t, c.CloseWrite())
	if all, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(all), "\r\n\r\nlate") {
		t.Errorf("%q, %v", all, err)
	}
}

// Servers close connections that were idle; whoever asks then does not notice.
func TestStaleUpstream(t *testing.T) {
	for _, closing := range []string{"at once", "at the next request"} {
		t.Run(closing, func(t *testing.T) {
			served := 0
			server := tcpServer(t, func(c *net.TCPConn) {
				headOf(t, bufio.NewReader(c))
				served++
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				if closing != "at once" {
					_, _ = c.Read(make([]byte, 1))
				}
			})
			_, proxy := rawWebWorld(t, server)
			c := dial(t, proxy)
			r := bufio.NewReader(c)
			for range 3 {
				send(t, c, "GET http://api.example.test/ HTTP/1.1\r\n\r\n")
				resp, err := http.ReadResponse(r, nil)
				check(t, err)
				expect(t, resp.Body, "ok")
				check(t, resp.Body.Close())
				time.Sleep(20 * time.Millisecond)
			}
			if served != 3 {
				t.Errorf("served %d", served)
			}
		})
	}
}

func TestPipelining(t *testing.T) {
	_, proxy := webWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(rw, "%s%s", r.URL.Path, b)
	}))
	c := dial(t, proxy)
	send(t, c, "GET http://api.example.test/1 HTTP/1.1\r\n\r\nPOST http://two.example.test/2 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET http://evil.test/ HTTP/1.1\r\n\r\n"+
		"POST http://api.example.test/4 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n\r\nGET http://api.example.test/5 HTTP/1.1\r\nConnection: close\r\n\r\n")
	r := bufio.NewReader(c)
	for i, want := range []string{"/1", "/2abc", "", "/4x", "/5"} {
		resp, err := http.ReadResponse(r, nil)
		check(t, err)
		b, err := io.ReadAll(resp.Body)
		check(t, err)
		check(t, resp.Body.Close())
		if want != "" && string(b) != want || want == "" && resp.StatusCode != 403 {
			t.Errorf("%d: %d %q", i, resp.StatusCode, b)
		}
	}
	expectEnd(t, r)
}

func TestBigBodies(t *testing.T) {
	_, proxy := webWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ContentLength >= 0 {
			rw.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
		}
		_ = http.NewResponseController(rw).EnableFullDuplex()
		_, _ = io.Copy(rw, r.Body)
	}))
	data := make([]byte, 20<<20)
	_, _ = rand.Read(data)
	client := throughProxy(t, proxy)
	for _, body := range []io.Reader{bytes.NewReader(data), io.MultiReader(bytes.NewReader(data))} { // the length known, and not
		resp, err := client.Post("http://api.example.test/", "", body)
		check(t, err)
		got, err := io.ReadAll(resp.Body)
		check(t, err)
		check(t, resp.Body.Close())
		if !bytes.Equal(got, data) {
			t.Errorf("%d other bytes came back", len(got))
		}
	}
}
