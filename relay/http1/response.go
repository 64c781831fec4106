package http1

import (
	"bufio"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Response is a response's head.
type Response struct {
	Status int
	line   string // the status and the reason, as the server wrote them
	Minor  int    // of HTTP/1.x
	Header
	Length   int64  // of the body; 0 for none, Chunked or UntilEnd
	Declared string // Content-Length; in an answer to HEAD it is not the length of the body. "" if there is none
	Last     bool   // the server's connection cannot be used again
}

// ReadResponse reads the head of a response. It accepts a bare LF at the end of a line and folded fields, because some servers write
// these and the relay writes the head anew. An ambiguous length of the body is an error.
func ReadResponse(r *bufio.Reader, limit int, method string) (*Response, error) {
	lines, err := readLines(r, limit, endLF)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, errors.New("it is empty")
	}
	resp := &Response{}
	if err := resp.statusLine(lines[0]); err != nil {
		return nil, err
	}
	if resp.Header, err = parseFields(unfold(lines[1:])); err != nil {
		return nil, err
	}
	resp.Last = resp.Has("Connection", "close") || resp.Minor == 0 && !resp.Has("Connection", "keep-alive")
	return resp, resp.framing(method)
}

func (r *Response) statusLine(line string) error {
	version, status, _ := strings.Cut(line, " ")
	r.line = strings.TrimLeft(status, " ")
	code, _, _ := strings.Cut(r.line, " ")
	n, err := strconv.ParseUint(code, 10, 16)
	if err != nil || len(code) != 3 || n < StatusContinue || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return errors.New("the first line is not HTTP/1.x STATUS")
	}
	r.Status = int(n)
	if version == "HTTP/1.1" {
		r.Minor = 1
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
func (r *Response) framing(method string) error {
	codings, lengths := r.Values("Transfer-Encoding"), slices.Compact(r.Values("Content-Length"))
	var n uint64
	if len(lengths) > 0 {
		var err error
		if n, err = strconv.ParseUint(lengths[0], 10, 63); err != nil || len(lengths) > 1 {
			return errors.New("Content-Length is not one number")
		}
		r.Declared = strconv.FormatUint(n, 10)
	}
	switch {
	case method == "HEAD" || r.Status < 200 || r.Status == StatusNoContent || r.Status == StatusNotModified:
	case len(codings) > 0 && r.Minor > 0:
		if len(codings) > 1 || !strings.EqualFold(codings[0], "chunked") {
			return errors.New("the only transfer encoding is chunked")
		}
		r.Length = Chunked
		r.Last = r.Last || r.Declared != "" // the server states two lengths, so what follows the body is in doubt
	case r.Declared != "":
		r.Length = int64(n)
	default:
		r.Length, r.Last = UntilEnd, true
	}
	return nil
}

// Render writes the head anew, without the fields of the server's connection, and with ours.
func (r *Response) Render(ours string) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 " + r.line + "\r\n")
	connection := r.Values("Connection")
	for _, f := range r.Header {
		if !HopByHop(f.Name, connection) {
			b.WriteString(f.Name + ": " + f.Value + "\r\n")
		}
	}
	b.WriteString(ours + "\r\n")
	return b.String()
}
