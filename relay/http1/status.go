package http1

import (
	"fmt"
	"strings"
)

// PlainAnswer writes a whole response.
func PlainAnswer(status int, text string, last, headOnly bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\n",
		status, statusText(status), len(text))
	if last {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	if !headOnly {
		b.WriteString(text)
	}
	return b.String()
}

// Statuses that the framing of a response depends on, and those of answers that are the relay's own.
const (
	StatusContinue     = 100
	StatusSwitching    = 101
	StatusNoContent    = 204
	StatusNotModified  = 304
	StatusBadRequest   = 400
	StatusForbidden    = 403
	StatusProxyAuth    = 407
	StatusTimeout      = 408
	StatusExpectation  = 417
	StatusHeadTooLarge = 431
	StatusBadGateway   = 502
	StatusUnavailable  = 503
	StatusVersion      = 505
)

func statusText(status int) string {
	return map[int]string{
		StatusBadRequest: "Bad Request", StatusForbidden: "Forbidden", StatusTimeout: "Request Timeout",
		StatusExpectation: "Expectation Failed", StatusHeadTooLarge: "Request Header Fields Too Large",
		StatusBadGateway: "Bad Gateway", StatusUnavailable: "Service Unavailable", StatusVersion: "HTTP Version Not Supported",
	}[status]
}
