package policy

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/sandboxrun/sandboxrun/spec/document"
)

// How paths of a policy are read. "~", "$VAR" and "${VAR}" expand if they are the whole first component of a path;
// "$$" at the very beginning is a literal "$"; everywhere else "$", "~" and every other character are
// literal, so that a directory with any name can be granted. A first component that only begins like one of them
// ("~bob", "$HOME-old") is refused: it is more likely a mistake than a name.

// hostPath is the rule for paths on the host: relative ones are relative to the policy file.
func (s *scope) hostPath(p string) (string, error) {
	full, err := s.expand(p)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(full) {
		full = path.Join(s.dir, full)
	}
	return checkPath(p, full)
}

// insidePath is the rule for paths inside. They must be absolute, because there is no directory that they could be relative to.
func (s *scope) insidePath(p string) (string, error) {
	full, err := s.expand(p)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(full) {
		return "", fmt.Errorf("path %q is not absolute", p)
	}
	return checkPath(p, full)
}

// checkPath cleans a path. It refuses a path that is not UTF-8, because an OCI configuration cannot have it. Such bytes can come from
// the environment, the home and the policy's directory.
func checkPath(p, full string) (string, error) {
	if !utf8.ValidString(full) || strings.Contains(full, "\x00") {
		return "", fmt.Errorf("path %q stands for %q, which is not UTF-8", p, full)
	}
	return path.Clean(full), nil
}

// expand replaces the first component of a path if it is "~" or a variable.
func (s *scope) expand(p string) (string, error) {
	first, _, _ := strings.Cut(p, "/")
	rest := p[len(first):]
	switch {
	case first == "~":
		if !path.IsAbs(s.in.Home) {
			return "", fmt.Errorf("expand %q: the home directory is not known", p)
		}
		return s.in.Home + rest, nil
	case strings.HasPrefix(first, "$$"):
		return p[1:], nil
	case strings.HasPrefix(first, "~"), strings.HasPrefix(first, "$") && variable(first) == "":
		return "", fmt.Errorf("expand %q: %q is no variable and no home; for a file of that name write %q", p, first, "./"+p)
	case strings.HasPrefix(first, "$"):
		v, err := s.lookup(variable(first))
		if err != nil {
			return "", fmt.Errorf("expand %q: %w", p, err)
		}
		return v + rest, nil
	}
	return p, nil
}

// lookup returns a variable's value. An empty one would turn "$DIR/cache" into "/cache".
func (s *scope) lookup(name string) (string, error) {
	if s.policy != nil {
		s.policy.Expanded = append(s.policy.Expanded, name)
	}
	switch v, ok := s.in.Env[name]; {
	case !ok:
		return "", fmt.Errorf("variable %q is not set", name)
	case v == "":
		return "", fmt.Errorf("variable %q is empty", name)
	default:
		return v, nil
	}
}

// variable returns the name in "$NAME" or "${NAME}", or "".
func variable(s string) string {
	name := strings.TrimPrefix(s, "$")
	if strings.HasPrefix(name, "{") && strings.HasSuffix(name, "}") {
		name = name[1 : len(name)-1]
	}
	if checkName(name) != nil {
		return ""
	}
	return name
}

// checkName returns the fault of a variable's name, or nil.
func checkName(name string) error {
	if name == "" || name[0] >= '0' && name[0] <= '9' || strings.Trim(name, document.NameChars) != "" {
		return errors.New("want a name of letters, digits and \"_\" that does not begin with a digit")
	}
	return nil
}
