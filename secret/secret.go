// Package secret knows by their names which variables and files hold keys and passwords. It imports none of ours.
package secret

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// MinLength is the minimum length, in characters, of a value that is redacted. Shorter values occur in all kinds of text by
// chance.
const MinLength = 16

// Ends are the ends of the names of variables whose values are redacted (env.redact).
func Ends() []string { return []string{"_KEY", "_TOKEN", "_SECRET"} }

// Redacted reports whether stored output must not have a variable's value.
func Redacted(name, value string) bool {
	return slices.ContainsFunc(Ends(), func(end string) bool { return strings.HasSuffix(name, end) }) && utf8.RuneCountInString(value) >= MinLength
}

// Variable reports whether a variable may be a key, so that messages do not have its value. It is true of more variables than
// Redacted, because a message loses nothing without a value, and a program's output does.
func Variable(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"KEY", "TOKEN", "SECRET", "PASS", "PWD", "CRED", "AUTH", "COOKIE", "SESSION", "PRIVATE"},
		func(word string) bool { return strings.Contains(name, word) })
}

// File reports whether files of this name hold keys or passwords.
func File(name string) bool {
	name = strings.ToLower(name)
	switch path.Ext(name) {
	case ".jks", ".kdbx", ".key", ".keytab", ".p12", ".pfx":
		return true
	}
	switch strings.TrimPrefix(name, ".") {
	case "authorized_keys", "credentials", "htpasswd", "id_dsa", "id_ecdsa", "id_ed25519", "id_rsa", "machine-id", "netrc", "passwd",
		"password", "passwords", "pgpass", "secret", "secrets", "shadow", "token", "tokens":
		return true
	}
	return false
}
