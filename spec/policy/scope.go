package policy

import (
	"fmt"
	"strings"

	"github.com/sandboxrun/sandboxrun/spec/document"
)

// loader reads a chain of files into one policy: the extended file first, then the file that extends it.
type loader struct {
	in       Input
	keys     []key[Policy]
	policy   *Policy
	problems []Problem
	places   map[string]place // the last place of each key
	chain    []source         // documents that are being read: each extends the next
}

// source is one file or preset of the chain.
type source struct {
	name string // for messages
	data []byte
	dir  string
	id   string // identifies the file or preset
}

// place is a position in one of the files.
type place struct {
	file string
	at   document.Position
}

// scope is a loader at one file.
type scope struct {
	*loader
	source
}

// fail adds a problem.
func (l *loader) fail(p place, key, format string, args ...any) {
	l.failHint(p, key, "", format, args...)
}

func (l *loader) failHint(p place, key, hint, format string, args ...any) {
	l.problems = append(l.problems, Problem{
		File: p.file, Line: p.at.Line, Column: p.at.Column, Key: key, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (s *scope) place(at document.Position) place { return place{s.name, at} }

func (s *scope) wrong(at document.Position, key, format string, args ...any) {
	s.fail(s.place(at), key, format, args...)
}

// from is the place of a key, for the From fields of the policy.
func (s *scope) from(at document.Position, key string) string {
	if strings.HasPrefix(s.name, flagMark) {
		return s.name
	}
	return fmt.Sprintf("%s:%d:%d: %s", s.name, at.Line, at.Column, key)
}

func (p *Policy) note(key, item string, at place) {
	if p.Places == nil {
		p.Places = map[string]string{}
	}
	if strings.HasPrefix(at.file, flagMark) {
		p.Places[key+" "+item] = at.file
		return
	}
	p.Places[key+" "+item] = fmt.Sprintf("%s:%d:%d", at.file, at.at.Line, at.at.Column)
}
