package policy

import (
	"fmt"
	"strings"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/spec/document"
)

// FlagNames are the names of the flags.
func FlagNames() []string { return []string{"read", "write", "bind", "deny", "allow-host", "cwd"} }

// flag reads a flag as a document of its own.
func (l *loader) flag(f Flag) {
	s := &scope{l, source{name: flagMark + f.Name, dir: l.in.Cwd}}
	text, err := flagText(f)
	if err != nil {
		s.fail(place{file: s.name}, "", "%v", err)
		return
	}
	root, wrong := document.ReadJSON([]byte(text))
	if wrong != nil {
		s.fail(place{file: s.name}, "", "%s", wrong.Message)
		return
	}
	before := len(l.problems)
	readTable(s, "", l.keys, l.policy, root)
	for i := range l.problems[before:] {
		p := &l.problems[before+i]
		p.Line, p.Column, p.Key = 0, 0, ""
	}
	if f.Name == "allow-host" && l.policy.Network.Mode == netpolicy.Isolated {
		l.policy.Network.Mode, l.policy.Network.From = netpolicy.Allowlist, s.name
	}
}

func flagText(f Flag) (string, error) {
	value := quoteJSON(f.Value)
	switch f.Name {
	case "read", "write", "deny":
		return fmt.Sprintf(`{"files": {%q: [%s]}}`, f.Name, value), nil
	case "allow-host":
		return fmt.Sprintf(`{"network": {"allowed_hosts": [%s]}}`, value), nil
	case "cwd":
		return fmt.Sprintf(`{"workdir": %s}`, value), nil
	case "bind":
		return bindText(f.Value)
	}
	return "", fmt.Errorf("flag %q is not known", f.Name)
}

// bindText reads SOURCE:TARGET, SOURCE:TARGET:rw or SOURCE:TARGET:ro. The target is absolute, so a source may have colons.
func bindText(value string) (string, error) {
	rest, writable := strings.CutSuffix(value, ":rw")
	if !writable {
		rest = strings.TrimSuffix(rest, ":ro")
	}
	at := strings.LastIndex(rest, ":/")
	if at <= 0 {
		return "", fmt.Errorf("%q: want SOURCE:TARGET or SOURCE:TARGET:rw, with an absolute target", value)
	}
	return fmt.Sprintf(`{"bind": [{"source": %s, "target": %s, "writable": %t}]}`, quoteJSON(rest[:at]), quoteJSON(rest[at+1:]), writable), nil
}
