package http1

import (
	"bufio"
	"errors"
	"slices"
	"strings"
	"testing"
)

func readHead(text string, limit int) (*Head, error) {
	return ReadHead(bufio.NewReaderSize(strings.NewReader(text), 64), limit)
}

// head is a request of which fields differ.
func head(fields ...string) string {
	return "POST /x HTTP/1.1\r\nHost: a.test\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

func TestReadHead(t *testing.T) {
	h, err := readHead("\r\nGET http://a.test/x HTTP/1.0\r\nHost: a.test\r\nX-Long: "+strings.Repeat("y", 200)+"\r\nA: \t b \r\na:\r\n\r\n", 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	if h.Method != "GET" || h.Target != "http://a.test/x" || h.Minor != 0 || h.Length != 0 || len(h.Header) != 4 {
		t.Errorf("%+v", h)
	}
	if got := h.Values("A"); !slices.Equal(got, []string{"b", ""}) {
		t.Errorf("values %q", got)
	}
	for text, want := range map[string]int64{
		head():                                0,
		head("Content-Length: 0"):             0,
		head("Content-Length: 7"):             7,
		head("Transfer-Encoding: chunked"):    Chunked,
		head("Transfer-Encoding:   CHUNKED "): Chunked,
	} {
		if h, err := readHead(text, 1<<10); err != nil || h.Length != want {
			t.Errorf("%q: %+v, %v", text, h, err)
		}
	}
}

func TestReadHeadRefuses(t *testing.T) {
	for text, want := range map[string]struct {
		status int
		why    string
	}{
		"\r\n\r\n":                                                 {400, "empty"},
		"GET / HTTP/1.1\n\r\n":                                     {400, "CR LF"},
		"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n":                        {400, "control character"},
		"GET / HTTP/1.1\r\nA: b\x00\r\n\r\n":                       {400, "control character"},
		"GET / HTTP/1.1\r\nA: b\x7f\r\n\r\n":                       {400, "control character"},
		"GET  / HTTP/1.1\r\n\r\n":                                  {400, "METHOD TARGET"},
		"GET / HTTP/1.1 x\r\n\r\n":                                 {400, "METHOD TARGET"},
		"G(T / HTTP/1.1\r\n\r\n":                                   {400, "METHOD TARGET"},
		"GET /\ta HTTP/1.1\r\n\r\n":                                {400, "METHOD TARGET"},
		"GET /\r\n\r\n":                                            {400, "METHOD TARGET"},
		"GET / HTTP/2.0\r\n\r\n":                                   {505, "HTTP/1.1"},
		"GET / http/1.1\r\n\r\n":                                   {505, "HTTP/1.1"},
		head(" folded"):                                            {400, "folded"},
		head("A: b", "\tfolded"):                                   {400, "folded"},
		head("A : b"):                                              {400, "no header field"},
		head("no colon"):                                           {400, "no header field"},
		head(": b"):                                                {400, "no header field"},
		head("host: b.test"):                                       {400, "more than one Host"},
		head("Content-Length: +1"):                                 {400, "not a number"},
		head("Content-Length: 1, 1"):                               {400, "not a number"},
		head("Content-Length: 0x1"):                                {400, "not a number"},
		head("Content-Length: 1_0"):                                {400, "not a number"},
		head("Content-Length:"):                                    {400, "not a number"},
		head("Content-Length: -1"):                                 {400, "not a number"},
		head("Content-Length: 1", "Content-Length: 1"):             {400, "more than one Content-Length"},
		head("Content-Length: 1", "Transfer-Encoding: chunked"):    {400, "exclude each other"},
		head("Transfer-Encoding: gzip, chunked"):                   {400, "chunked"},
		head("Transfer-Encoding: chunked", "Transfer-Encoding: x"): {400, "chunked"},
		head("Transfer-Encoding: \x0bchunked"):                     {400, "control character"},
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n":    {400, "chunked"},
		head("X: " + strings.Repeat("y", 1<<10)):                   {431, "too large"},
		head(slices.Repeat([]string{"A:"}, maxFields+1)...):        {431, "too large"},
	} {
		limit := 1 << 10
		if strings.Count(text, "A:") > maxFields {
			limit = 1 << 20
		}
		_, err := readHead(text, limit)
		bad, ok := errors.AsType[*BadRequest](err)
		if !ok || bad.Status != want.status || !strings.Contains(bad.Why, want.why) {
			t.Errorf("%.80q: %v, want %d %s", text, err, want.status, want.why)
		}
	}
	for _, text := range []string{"", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a"} {
		if _, err := readHead(text, 1<<10); err == nil {
			t.Errorf("%q: half a head is read", text)
		}
	}
}

func TestConnection(t *testing.T) {
	for text, want := range map[string]struct {
		keep    bool
		upgrade string
	}{
		head():                          {true, ""},
		head("Connection: Close"):       {false, ""},
		head("Connection: a, close"):    {false, ""},
		head("Proxy-Connection: close"): {false, ""},
		"GET / HTTP/1.0\r\n\r\n":        {false, ""},
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n":                     {true, ""},
		head("Connection: upgrade", "Upgrade: websocket"):                      {true, "websocket"},
		head("Upgrade: websocket"):                                             {true, ""},
		head("Connection: upgrade", "Upgrade: h2c"):                            {true, ""},
		head("Connection: upgrade", "Upgrade: websocket, HTTP/2.0"):            {true, ""},
		head("Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c"):      {true, ""},
		head("Connection: upgrade", "Upgrade: websocket", "Content-Length: 1"): {true, ""},
		"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n":  {false, ""},
	} {
		h, err := readHead(text, 1<<10)
		if err != nil || h.KeepAlive() != want.keep || h.Upgrade() != want.upgrade {
			t.Errorf("%q: %+v, %v", text, h, err)
		}
	}
	for name, want := range map[string]bool{"TE": true, "host": true, "X-Own": true, "X-Other": false, "Cookie": false} {
		if got := HopByHop(name, []string{"close, x-own"}); got != want {
			t.Errorf("HopByHop(%q) = %v", name, got)
		}
	}
}

func TestReadResponse(t *testing.T) {
	for _, c := range []struct {
		method, text string
		status       int
		length       int64
		last         bool
	}{
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 200, 3, false},
		{"GET", "HTTP/1.1 200\nContent-Length: 3\n\n", 200, 3, false},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 200, 3, false},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, Chunked, false},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 200, Chunked, true},
		{"GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\n", 200, 3, true},
		{"GET", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n", 200, 3, true},
		{"GET", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, UntilEnd, true},
		{"GET", "HTTP/1.1 200 OK\r\n\r\n", 200, UntilEnd, true},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 200, 0, false},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", 304, 0, false},
		{"GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, 0, false},
		{"GET", "HTTP/1.1 100 Continue\r\n\r\n", 100, 0, false},
	} {
		r, err := ReadResponse(bufio.NewReader(strings.NewReader(c.text)), 1<<10, c.method)
		if err != nil || r.Status != c.status || r.Length != c.length || r.Last != c.last {
			t.Errorf("%s %q: %+v, %v", c.method, c.text, r, err)
		}
	}
	for _, text := range []string{
		"\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 99 X\r\n\r\n", "HTTP/1.1 099 X\r\n\r\n", "HTTP/1.1 2000 X\r\n\r\n", "HTTP/1.1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
	} {
		if r, err := ReadResponse(bufio.NewReader(strings.NewReader(text)), 1<<10, "GET"); err == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

func TestRender(t *testing.T) {
	const text = "HTTP/1.0  404 Gone away\r\nContent-Length: 3\r\nConnection: X-Own\r\nX-Own: 1\r\nX-Long: a\r\n  b\r\nKeep-Alive: 5\r\n\r\n"
	r, err := ReadResponse(bufio.NewReader(strings.NewReader(text)), 1<<10, "GET")
	if err != nil {
		t.Fatal(err)
	}
	const want = "HTTP/1.1 404 Gone away\r\nX-Long: a b\r\nContent-Length: 3\r\n\r\n"
	if got := r.Render("Content-Length: 3\r\n"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]Target{
		"http://a.test":          {"a.test", 80, "/"},
		"HTTP://a.test:8080/x?y": {"a.test", 8080, "/x?y"},
		"http://a.test?y=/":      {"a.test", 80, "/?y=/"},
		"http://[::1]:81/":       {"[::1]", 81, "/"},
		"http://[::1]/":          {"[::1]", 80, "/"},
	} {
		if got, err := Absolute(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"/x", "a.test:80", "https://a.test/", "ftp://a.test/", "http://a.test/#x", "http:///x", "http://u@a.test/", "http://a.test:0/",
		"http://a.test:65536/", "http://a.test:+1/", "http://a.test:/", "http://::1/", "http://a b/", "http://a%2etest/", "http://ä.test/",
		`http://a\b/`, "http://[::1]x:80/", "http://a.test\t/",
	} {
		if got, err := Absolute(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if _, err := ParseAuthority("a.test", 0); err == nil {
		t.Error("CONNECT needs no port")
	}
	for want, c := range map[string]Target{"a.test": {"a.test", 80, ""}, "a.test:81": {"a.test", 81, ""}, "[::1]": {"::1", 80, ""}, "[::1]:81": {"::1", 81, ""}} {
		if got := HostField(c.Host, c.Port); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestPlainAnswer(t *testing.T) {
	for _, headOnly := range []bool{false, true} {
		r := bufio.NewReader(strings.NewReader(PlainAnswer(StatusForbidden, "no\n", true, headOnly)))
		resp, err := ReadResponse(r, 1<<10, "GET")
		if err != nil || resp.Status != StatusForbidden || resp.Length != 3 || !resp.Last {
			t.Errorf("%+v, %v", resp, err)
		}
		if rest := r.Buffered(); rest != map[bool]int{false: 3, true: 0}[headOnly] {
			t.Errorf("head only %v: %d bytes follow", headOnly, rest)
		}
	}
}
