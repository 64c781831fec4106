package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Exit statuses of the launcher. Every other status is the program's.
const (
	exitRefused  = 1 // verify: the record is not good; redact: a value is left; doctor: the default policy cannot be enforced; explain: not inside
	exitLauncher = 125
	exitSignal   = 128 // plus the signal's number
)

// errorText is an error as it is printed.
type errorText struct{ code, message, hint string }

func describe(err error) errorText {
	var (
		u  *usage
		ce *container.Error
		se *spec.Error
		re *rootfs.Error
		pe *spec.PolicyError
	)
	if hint := diagnose.Scarce(err); hint != "" {
		if errors.As(err, &ce) && ce.Code == diagnose.CodeLimitReached {
			hint = ce.Hint
		}
		return errorText{diagnose.CodeLimitReached, err.Error(), hint}
	}
	switch {
	case errors.As(err, &u):
		return errorText{"usage", u.message, u.hint}
	case errors.As(err, &ce):
		return errorText{ce.Code, err.Error(), ce.Hint}
	case errors.As(err, &se):
		return errorText{se.Code, err.Error(), se.Hint}
	case errors.As(err, &re):
		return errorText{re.Code, err.Error(), re.Hint}
	case errors.As(err, &pe):
		return describePolicy(pe)
	}
	return errorText{"failed", err.Error(), ""}
}

func describePolicy(pe *spec.PolicyError) errorText {
	s := errorText{code: "policy_invalid", message: pe.Error()}
	for _, problem := range pe.Problems {
		if problem.Hint != "" {
			s.hint = problem.Hint
			break
		}
	}
	return s
}

// report prints an error on standard error and, if the caller asked for a result, writes it as a result.
func (p *program) report(err error) int {
	s := describe(err)
	p.complain(s)
	result := result.FromError(err, &result.Error{Code: s.code, Message: s.message, Hint: s.hint})
	if p.jsonResult && !p.resultPrinted {
		p.printJSON(result)
	}
	p.writeResult(result)
	return result.ExitCode
}

func (p *program) complain(s errorText) {
	red, off := p.colour("\x1b[1;31m"), p.colour("\x1b[0m")
	fmt.Fprintf(p.err, "%ssandboxrun: %s:%s %s\n", red, s.code, off, s.message)
	if s.hint != "" {
		fmt.Fprintf(p.err, "hint: %s\n", s.hint)
	}
}

func (p *program) warn(message string) {
	if p.warned != nil {
		*p.warned = append(*p.warned, message)
		return
	}
	yellow, off := p.colour("\x1b[33m"), p.colour("\x1b[0m")
	fmt.Fprintf(p.err, "%ssandboxrun: warning:%s %s\n", yellow, off, strings.TrimSuffix(message, "\n"))
}

// colour is the escape sequence if standard error is a terminal with colours and the user wants them, else "".
func (p *program) colour(sequence string) string {
	if !p.colours(p.err) {
		return ""
	}
	return sequence
}

func (p *program) colours(f *os.File) bool {
	return p.env["NO_COLOR"] == "" && p.env["TERM"] != "dumb" && isTerminal(f)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (p *program) printJSON(v any) {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // lostOutput reports the error
	p.resultPrinted = true
}
