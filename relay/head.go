package relay

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

// badRequest is the fault of a request that the relay answers itself, before any server gets a byte.
type badRequest struct {
	status int
	why    string
}

func (b *badRequest) Error() string { return b.why }

func bad(why string) error { return &badRequest{statusBadRequest, why} }

// header is the fields of a head, in their order.
type header []field

type field struct{ name, value string }

// head is a request's first line and fields.
type head struct {
	method, target string
	minor          int // of HTTP/1.x
	header
	length int64 // of the body; 0 for none, or chunked
}

// Lengths of a body that is not counted in bytes beforehand.
const (
	chunked  = -1
	untilEnd = -2 // of the connection; responses only
)

// readHead reads up to the empty line. It is stricter than net/http: it refuses every form that two servers are known to read
// differently. A line that ends in a bare LF (CVE-2022-32214 of Node's parser), a CR inside one, a folded line (CVE-2022-32215, the
// same) and control characters are refused.
func readHead(r *bufio.Reader, limit int) (*head, error) {
	lines, err := readLines(r, limit, endCRLF)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, bad("the request is empty")
	}
	h := &head{}
	if err := h.requestLine(lines[0]); err != nil {
		return nil, err
	}
	if h.header, err = parseFields(lines[1:]); err != nil {
		return nil, err
	}
	return h, h.framing()
}

// maxFields is how many fields a head may have: Apache takes 100, and 12,000 short ones cost milliseconds to read.
const maxFields = 500

func tooLarge() error {
	return &badRequest{statusHeadTooLarge, "the head is too large"}
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
		return "", bad("a line does not end with CR LF")
	}
	if whole {
		line = line[:len(line)-1]
	}
	if bytes.ContainsFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c == 127 }) {
		return "", bad("a line holds a control character")
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

func (h *head) requestLine(line string) error {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !httpguts.ValidHeaderFieldName(parts[0]) || parts[1] == "" {
		return bad("the request line is not METHOD TARGET HTTP/1.x")
	}
	h.method, h.target = parts[0], parts[1]
	switch parts[2] {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
	default:
		return &badRequest{statusVersion, "only HTTP/1.1 and HTTP/1.0 are spoken here"}
	}
	if strings.ContainsRune(h.target, '\t') {
		return bad("the request line is not METHOD TARGET HTTP/1.x")
	}
	return nil
}

// parseFields splits lines into fields. A name ends right at its colon: with a space before that, some servers take it for
// the same field and some do not (CVE-2019-16276 of Go, CVE-2019-16869 of Netty, CVE-2019-18678 of Squid).
func parseFields(lines []string) (header, error) {
	fields := make(header, 0, len(lines))
	for _, line := range lines {
		if line[0] == ' ' || line[0] == '\t' {
			return nil, bad("a field is folded over several lines")
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return nil, bad("a line is no header field")
		}
		fields = append(fields, field{name, strings.Trim(value, " \t")})
	}
	return fields, nil
}

// values lists the values of all fields of a name.
func (h header) values(name string) []string {
	var found []string
	for _, f := range h {
		if strings.EqualFold(f.name, name) {
			found = append(found, f.value)
		}
	}
	return found
}

// has reports whether a comma-separated field lists a token.
func (h header) has(name, token string) bool {
	return httpguts.HeaderValuesContainsToken(h.values(name), token)
}

// framing sets the length of the body. It refuses a request that states it in more than one way: two servers that disagree on the length
// let one request hide in another (request smuggling, CWE-444; CVE-2020-10108 and -10109 of Twisted).
func (h *head) framing() error {
	if len(h.values("Host")) > 1 {
		return bad("there is more than one Host field")
	}
	codings, lengths := h.values("Transfer-Encoding"), h.values("Content-Length")
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return bad("Transfer-Encoding and Content-Length exclude each other")
	case len(codings) > 1 || len(codings) == 1 && (!strings.EqualFold(codings[0], "chunked") || h.minor == 0):
		return bad("the only transfer encoding is chunked, in HTTP/1.1")
	case len(codings) == 1:
		h.length = chunked
	case len(lengths) > 1:
		return bad("there is more than one Content-Length field")
	case len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 63) // no sign, no "_", no list
		if err != nil {
			return bad("Content-Length is not a number")
		}
		h.length = int64(n)
	}
	return nil
}

// keepAlive reports whether the client wants to send another request.
func (h *head) keepAlive() bool {
	if h.minor == 0 {
		return h.has("Connection", "keep-alive") || h.has("Proxy-Connection", "keep-alive")
	}
	return !h.has("Connection", "close") && !h.has("Proxy-Connection", "close")
}

// upgrade returns the protocol that the client asks to change to, or "". It never returns HTTP/2, because requests inside it could go to
// hosts that nobody has judged ("h2c smuggling", Bishop Fox 2020).
func (h *head) upgrade() string {
	v := h.values("Upgrade")
	if len(v) != 1 || !h.has("Connection", "Upgrade") || h.length != 0 || h.minor == 0 {
		return ""
	}
	for token := range strings.SplitSeq(v[0], ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(token), "/"); strings.EqualFold(name, "h2c") || strings.EqualFold(name, "http") {
			return ""
		}
	}
	return v[0]
}

// hopByHop reports whether a field concerns one connection alone, by its name or because Connection lists it (RFC 9110,
// section 7.6.1). Those that we set ourselves are among them.
func hopByHop(name string, connection []string) bool {
	switch strings.ToLower(name) {
	case "host", "content-length", "connection", "proxy-connection", "keep-alive", "proxy-authenticate",
		"proxy-authorization", "proxy-authentication-info", "te", "transfer-encoding", "upgrade", "http2-settings":
		return true
	}
	return slices.ContainsFunc(connection, func(v string) bool {
		return httpguts.HeaderValuesContainsToken([]string{v}, name)
	})
}
