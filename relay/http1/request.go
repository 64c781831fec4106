// Package http1 is the HTTP/1.1 of the relay: heads, targets and bodies. It refuses every request that two servers are known to read in
// different ways, and every head that it passes on is written anew (docs/decisions/0032). It decides nothing about hosts, opens no
// connection, and imports nothing of ours.
package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// BadRequest is the fault of a request that the relay answers itself, before any server gets a byte.
type BadRequest struct {
	Status int
	Why    string
}

// Error is the reason, for the program.
func (b *BadRequest) Error() string { return b.Why }

// Bad is a BadRequest of status 400.
func Bad(why string) error { return &BadRequest{StatusBadRequest, why} }

// Header is the fields of a head, in their order.
type Header []Field

// Field is one field of a head.
type Field struct{ Name, Value string }

// Head is a request's first line and fields.
type Head struct {
	Method, Target string
	Minor          int // of HTTP/1.x
	Header
	Length int64 // of the body; 0 for none, or Chunked
}

// Lengths of a body that is not counted in bytes beforehand.
const (
	Chunked  = -1
	UntilEnd = -2 // of the connection; responses only
)

// ReadHead reads up to the empty line. It is stricter than net/http: it refuses every form that two servers are known to read
// differently. A line that ends in a bare LF (CVE-2022-32214 of Node's parser), a CR inside one, a folded line (CVE-2022-32215, the
// same) and control characters are refused.
func ReadHead(r *bufio.Reader, limit int) (*Head, error) {
	lines, err := readLines(r, limit, endCRLF)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, Bad("the request is empty")
	}
	h := &Head{}
	if err := h.requestLine(lines[0]); err != nil {
		return nil, err
	}
	if h.Header, err = parseFields(lines[1:]); err != nil {
		return nil, err
	}
	return h, h.framing()
}

// maxFields is how many fields a head may have: Apache takes 100, and 12,000 short ones cost milliseconds to read.
const maxFields = 500

func tooLarge() error {
	return &BadRequest{StatusHeadTooLarge, "the head is too large"}
}

// readLines reads lines up to an empty one, without their ends. One empty line before them is passed over: some clients send it
// after a body (RFC 9112, section 2.2).
func readLines(r *bufio.Reader, limit int, end string) ([]string, error) {
	var lines []string
	for first := true; ; first = false {
		line, err := readLine(r, limit, end)
		if err != nil {
			return nil, err
		}
		limit -= len(line) + 2
		if len(lines) > maxFields {
			return nil, tooLarge()
		}
		if len(line) > 0 {
			lines = append(lines, line)
		} else if !first {
			return lines, nil
		}
	}
}

// Ends of a line. Some servers, but no client, end the lines of a head with a bare LF; a head that is written anew does not.
const (
	endCRLF = "\r\n"
	endLF   = "\n"
)

// readLine reads a line without its end.
func readLine(r *bufio.Reader, limit int, end string) (string, error) {
	line, err := readToLF(r, limit)
	if err != nil {
		return "", err
	}
	whole := bytes.HasSuffix(line, []byte("\r"))
	if !whole && end == endCRLF {
		return "", Bad("a line does not end with CR LF")
	}
	if whole {
		line = line[:len(line)-1]
	}
	if bytes.ContainsFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c == 127 }) {
		return "", Bad("a line holds a control character")
	}
	return string(line), nil
}

func readToLF(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, tooLarge()
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func (h *Head) requestLine(line string) error {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !httpguts.ValidHeaderFieldName(parts[0]) || parts[1] == "" {
		return Bad("the request line is not METHOD TARGET HTTP/1.x")
	}
	h.Method, h.Target = parts[0], parts[1]
	switch parts[2] {
	case "HTTP/1.1":
		h.Minor = 1
	case "HTTP/1.0":
	default:
		return &BadRequest{StatusVersion, "only HTTP/1.1 and HTTP/1.0 are spoken here"}
	}
	if strings.ContainsRune(h.Target, '\t') {
		return Bad("the request line is not METHOD TARGET HTTP/1.x")
	}
	return nil
}

// parseFields splits lines into fields. A name ends right at its colon: with a space before that, some servers take it for
// the same field and some do not (CVE-2019-16276 of Go, CVE-2019-16869 of Netty, CVE-2019-18678 of Squid).
func parseFields(lines []string) (Header, error) {
	fields := make(Header, 0, len(lines))
	for _, line := range lines {
		if line[0] == ' ' || line[0] == '\t' {
			return nil, Bad("a field is folded over several lines")
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return nil, Bad("a line is no header field")
		}
		fields = append(fields, Field{name, strings.Trim(value, " \t")})
	}
	return fields, nil
}

// Values lists the values of all fields of a name.
func (h Header) Values(name string) []string {
	var found []string
	for _, f := range h {
		if strings.EqualFold(f.Name, name) {
			found = append(found, f.Value)
		}
	}
	return found
}

// Has reports whether a comma-separated field lists a token.
func (h Header) Has(name, token string) bool {
	return httpguts.HeaderValuesContainsToken(h.Values(name), token)
}

// framing sets the length of the body. It refuses a request that states it in more than one way: two servers that disagree on the length
// let one request hide in another (request smuggling, CWE-444; CVE-2020-10108 and -10109 of Twisted).
func (h *Head) framing() error {
	if len(h.Values("Host")) > 1 {
		return Bad("there is more than one Host field")
	}
	codings, lengths := h.Values("Transfer-Encoding"), h.Values("Content-Length")
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return Bad("Transfer-Encoding and Content-Length exclude each other")
	case len(codings) > 1 || len(codings) == 1 && (!strings.EqualFold(codings[0], "chunked") || h.Minor == 0):
		return Bad("the only transfer encoding is chunked, in HTTP/1.1")
	case len(codings) == 1:
		h.Length = Chunked
	case len(lengths) > 1:
		return Bad("there is more than one Content-Length field")
	case len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 63) // no sign, no "_", no list
		if err != nil {
			return Bad("Content-Length is not a number")
		}
		h.Length = int64(n)
	}
	return nil
}

// KeepAlive reports whether the client wants to send another request.
func (h *Head) KeepAlive() bool {
	if h.Minor == 0 {
		return h.Has("Connection", "keep-alive") || h.Has("Proxy-Connection", "keep-alive")
	}
	return !h.Has("Connection", "close") && !h.Has("Proxy-Connection", "close")
}

// Upgrade returns the protocol that the client asks to change to, or "". It never returns HTTP/2, because requests inside it could go to
// hosts that nobody has judged ("h2c smuggling", Bishop Fox 2020).
func (h *Head) Upgrade() string {
	v := h.Values("Upgrade")
	if len(v) != 1 || !h.Has("Connection", "Upgrade") || h.Length != 0 || h.Minor == 0 {
		return ""
	}
	for token := range strings.SplitSeq(v[0], ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(token), "/"); strings.EqualFold(name, "h2c") || strings.EqualFold(name, "http") {
			return ""
		}
	}
	return v[0]
}

// HopByHop reports whether a field concerns one connection alone, by its name or because Connection lists it (RFC 9110,
// section 7.6.1). Those that we set ourselves are among them.
func HopByHop(name string, connection []string) bool {
	switch strings.ToLower(name) {
	case "host", "content-length", "connection", "proxy-connection", "keep-alive", "proxy-authenticate",
		"proxy-authorization", "proxy-authentication-info", "te", "transfer-encoding", "upgrade", "http2-settings":
		return true
	}
	return slices.ContainsFunc(connection, func(v string) bool {
		return httpguts.HeaderValuesContainsToken([]string{v}, name)
	})
}
