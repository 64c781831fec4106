package relay

import (
	"bufio"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// uploadGrace is how long a response waits for the end of the request's body. It is short: a server that has read the body has it already.
const uploadGrace = 10 * time.Millisecond

// Statuses that a response's framing depends on.
const (
	statusContinue    = 100
	statusSwitching   = 101
	statusNoContent   = 204
	statusNotModified = 304
)

// response is a response's head.
type response struct {
	status int
	line   string // the status and the reason, as the server wrote them
	minor  int    // of HTTP/1.x
	header
	length   int64  // of the body; 0 for none, chunked or untilEnd
	declared string // Content-Length; in an answer to HEAD it is not the length of the body. "" if there is none
	last     bool   // the server's connection cannot be used again
}

// readResponse reads the head of a response. It accepts a bare LF at the end of a line and folded fields, because some servers write
// these and the relay writes the head anew. An ambiguous length of the body is an error.
func readResponse(r *bufio.Reader, limit int, method string) (*response, error) {
	lines, err := readLines(r, limit, endLF)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, errors.New("it is empty")
	}
	resp := &response{}
	if err := resp.statusLine(lines[0]); err != nil {
		return nil, err
	}
	if resp.header, err = parseFields(unfold(lines[1:])); err != nil {
		return nil, err
	}
	resp.last = resp.has("Connection", "close") || resp.minor == 0 && !resp.has("Connection", "keep-alive")
	return resp, resp.framing(method)
}

func (r *response) statusLine(line string) error {
	version, status, _ := strings.Cut(line, " ")
	r.line = strings.TrimLeft(status, " ")
	code, _, _ := strings.Cut(r.line, " ")
	n, err := strconv.ParseUint(code, 10, 16)
	if err != nil || len(code) != 3 || n < statusContinue || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return errors.New("the first line is not HTTP/1.x STATUS")
	}
	r.status = int(n)
	if version == "HTTP/1.1" {
		r.minor = 1
	}
	return nil
}

// unfold joins the lines of folded fields (RFC 9112, section 5.2).
func unfold(lines []string) []string {
	var whole []string
	for _, line := range lines {
		if n := len(whole); n > 0 && (line[0] == ' ' || line[0] == '\t') {
			whole[n-1] += " " + strings.TrimLeft(line, " \t")
		} else {
			whole = append(whole, line)
		}
	}
	return whole
}

// framing finds out where the body ends (RFC 9112, section 6.3).
func (r *response) framing(method string) error {
	codings, lengths := r.values("Transfer-Encoding"), slices.Compact(r.values("Content-Length"))
	var n uint64
	if len(lengths) > 0 {
		var err error
		if n, err = strconv.ParseUint(lengths[0], 10, 63); err != nil || len(lengths) > 1 {
			return errors.New("Content-Length is not one number")
		}
		r.declared = strconv.FormatUint(n, 10)
	}
	switch {
	case method == "HEAD" || r.status < 200 || r.status == statusNoContent || r.status == statusNotModified:
	case len(codings) > 0 && r.minor > 0:
		if len(codings) > 1 || !strings.EqualFold(codings[0], "chunked") {
			return errors.New("the only transfer encoding is chunked")
		}
		r.length = chunked
		r.last = r.last || r.declared != "" // the server states two lengths, so what follows the body is in doubt
	case r.declared != "":
		r.length = int64(n)
	default:
		r.length, r.last = untilEnd, true
	}
	return nil
}

// write writes the head anew, without the fields of the server's connection, and with ours.
func (r *response) write(ours string) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 " + r.line + "\r\n")
	connection := r.values("Connection")
	for _, f := range r.header {
		if !hopByHop(f.name, connection) {
			b.WriteString(f.name + ": " + f.value + "\r\n")
		}
	}
	b.WriteString(ours + "\r\n")
	return b.String()
}

// respond sends the final response. keep says whether the client's connection can be used again; the server's is dropped where it
// cannot.
func (x *exchange) respond(resp *response) (keep bool, err error) {
	known := resp.length >= 0
	chunks := !known && x.head.minor > 0
	sent := x.uploadedWithin(uploadGrace)
	keep = x.head.keepAlive() && sent && (chunks || known)

	start := []byte(resp.write(x.framing(resp, chunks, keep)))
	b := body{length: resp.length, r: x.up.r, src: x.up.stream, dst: x.conn, chunks: chunks, count: &x.got}
	ahead := 0
	if known { // what is here of the body goes with the head
		part, _ := x.up.r.Peek(int(min(int64(x.up.r.Buffered()), resp.length)))
		start, ahead = append(start, part...), len(part)
		b.length -= int64(ahead)
		_, _ = x.up.r.Discard(ahead) // Peek has returned them
	}
	x.out.Lock()
	x.begun = true
	_, err = x.conn.Write(start)
	x.out.Unlock()
	if err == nil {
		x.got = int64(ahead)
		err = b.copy(&x.pool)
	}
	if err != nil || resp.last || !sent {
		x.dropUpstream()
	}
	return keep, err
}

// framing writes the fields that say where the response ends.
func (x *exchange) framing(resp *response, chunks, keep bool) string {
	var b strings.Builder
	switch {
	case chunks:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case resp.length >= 0 && resp.declared != "" && resp.status != statusNoContent:
		b.WriteString("Content-Length: " + resp.declared + "\r\n")
	}
	switch {
	case !keep:
		b.WriteString("Connection: close\r\n")
	case x.head.minor == 0:
		b.WriteString("Connection: keep-alive\r\n")
	}
	return b.String()
}
