package secret

import (
	"strings"
	"testing"
)

func TestVariables(t *testing.T) {
	long := strings.Repeat("é", MinLength)
	for name, want := range map[string]struct{ redacted, secret bool }{
		"A_KEY": {true, true}, "MY_API_KEY": {true, true}, "A_TOKEN": {true, true}, "A_SECRET": {true, true}, "_KEY": {true, true},
		"KEY": {false, true}, "A_KEY_ID": {false, true}, "a_key": {false, true}, "DB_PASSWORD": {false, true}, "PGPASS": {false, true},
		"SESSION_COOKIE": {false, true}, "OAUTH": {false, true}, "HOME": {}, "LANG": {}, "": {},
	} {
		if got := Redacted(name, long); got != want.redacted {
			t.Errorf("Redacted(%q) = %v", name, got)
		}
		if got := Variable(name); got != want.secret {
			t.Errorf("Variable(%q) = %v", name, got)
		}
		if Redacted(name, long[:len(long)-len("é")]) {
			t.Errorf("%q with a value of %d characters is redacted", name, MinLength-1)
		}
	}
}

func TestFile(t *testing.T) {
	for name, want := range map[string]bool{
		"id_rsa": true, ".netrc": true, "Secrets": true, "server.KEY": true, "krb5.keytab": true, ".key": true, "id_rsa.pub": false,
		"monkey": false, "passwd-": false, "tokens.json": false, "machine-id": true, "..netrc": false, "": false,
	} {
		if got := File(name); got != want {
			t.Errorf("File(%q) = %v", name, got)
		}
	}
}
