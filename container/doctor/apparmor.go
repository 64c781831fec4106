package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sandboxrun/sandboxrun/fault"
)

// AppArmorProfile is a profile that lets this binary, wherever it is, make user namespaces where AppArmor restricts them.
// Else it changes nothing. It has the form of those that Ubuntu ships for other programs of this kind.
func AppArmorProfile() (string, error) {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fault.New(fault.Failed, "install it and call it by its path", "find this binary: %w", err)
	}
	name, err := appArmorPath(path)
	if err != nil {
		return "", fault.New(fault.Failed, "install it elsewhere, such as in /usr/local/bin", "write a profile for %q: %w", path, err)
	}
	return fmt.Sprintf(appArmorText, name), nil
}

const appArmorText = `# Lets sandboxrun make user namespaces, as every user could before AppArmor restricted them. It restricts nothing.
abi <abi/4.0>,
include <tunables/global>

profile sandboxrun %s flags=(unconfined) {
  userns,

  # Site-specific additions and overrides.
  include if exists <local/sandboxrun>
}
`

// appArmorPath writes a path so that a profile means that file and no other: quoted, and with a backslash before what
// apparmor.d(5) reads as a pattern. What its quotes cannot hold for certain is refused.
func appArmorPath(path string) (string, error) {
	if !filepath.IsAbs(path) || !utf8.ValidString(path) {
		return "", errors.New("it is no absolute path in UTF-8")
	}
	var b strings.Builder
	for _, c := range path {
		switch {
		case c < ' ' || c == 0x7f || c == '"' || c == '\\':
			return "", fmt.Errorf("a profile cannot hold the character %q", c)
		case strings.ContainsRune("*?[]{}^", c):
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	if plainPath(path) {
		return path, nil
	}
	return `"` + b.String() + `"`, nil
}

// plainPath is a path that needs no quotes.
func plainPath(path string) bool {
	return !strings.ContainsFunc(path, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("/._-+", c)
	})
}
