package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
)

// problems loads a policy and returns its problems, one a line.
func problems(t *testing.T, in Input) string {
	t.Helper()
	_, err := Load(in)
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*Error](err); !ok {
		t.Fatalf("no PolicyError: %v", err)
	}
	return err.Error()
}

// TestProblems has every kind of error with its place. The first line of each policy is "version = 1".
func TestProblems(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		// Keys.
		{"[files]\nraed = []", `3:1: files.raed: unknown key, did you mean "files.read"?`},
		{"files.wriet = []", `2:7: files.wriet: unknown key, did you mean "files.write"?`},
		{"[fils]\nread = []", `2:2: fils: unknown key, did you mean "files"?`},
		{"read = []", `2:1: read: unknown key, did you mean "files.read"?`},
		{"[network]\nmemory = 1", `3:1: network.memory: unknown key, did you mean "limits.memory"?`},
		{"[files]\nzzzzzz = []", `3:1: files.zzzzzz: unknown key`},
		{"[[bind]]\nsource='/a'\ntarget='/b'\n  wriable = true", `5:3: bind.wriable: unknown key, did you mean "bind.writable"?`},
		{"[files]\ntmpfs = [{ path = '/x', szie = 1 }]", `3:25: files.tmpfs.szie: unknown key, did you mean "files.tmpfs.size"?`},
		{"[views.judge]\nraed = []", `3:1: views.judge.raed: unknown key, did you mean "views.judge.read"?`},
		{"[files]\nbase = { rotfs = '/x' }", "3:8: files.base.rootfs: missing\n" +
			`3:10: files.base.rotfs: unknown key, did you mean "files.base.rootfs"?`},
		{"'files.read' = []", `2:1: "files.read": unknown key, did you mean "files.read"?`},
		{"'é\"' = 1", `2:1: "é\"": unknown key`},
		{"user = 1\nname = 'x'\nuser = 2", `4:1: user: set twice, first at line 2`},
		{"[files]\nread = []\n[env]\n[files]\nwrite = []", `5:2: files: table files already exists`},
		{"files = { read = [], read = [] }", `2:22: read: set twice, first at line 2`},
		{"files.read = []\n[files]\nwrite = []", `3:2: files: table files already exists as defined by a dotted key`},
		{"user = 1\n[user.x]", `3:2: user: set twice, first at line 2`},
		{"user = 1\nuser.x = 1", `3:1: user: set twice, first at line 2`},
		{"bind = []\n[[bind]]", `3:3: bind: key bind already exists as a value, but should be an array table`},
		{"[bind]\n[[bind]]", `3:3: bind: set twice, first at line 2`},
		// Syntax.
		{"name = ", `2:8: unexpected character U+000A at start of value`},
		{"name = 'x", `2:10: literal strings cannot have new lines`},
		{"é = 1", `2:1: invalid character at start of key: U+00C3 'Ã'`},
		{"name = \"\\q\"", `2:9: invalid escape character U+0071 'q'`},
		{"user = 99999999999999999999", `2:8: decimal number is too large to fit in a 64-bit signed integer`},
		{"name = '\xff'", `2:9: the file is not UTF-8`},
		// Types.
		{"[files]\nread = '/x'", `3:8: files.read: want a list of paths, got a string`},
		{"[files]\nread = ['/x', 1,\n  [2], {}, true, 1.5, 1979-05-27]", `3:15: files.read: want a string, got an integer
4:3: files.read: want a string, got a list
4:8: files.read: want a string, got a table
4:12: files.read: want a string, got true or false
4:18: files.read: want a string, got a number with a fraction
4:23: files.read: want a string, got a date`},
		{"files = 'x'", `2:9: files: want a table, got a string`},
		{"views = 1", `2:9: views: want a table, got an integer`},
		{"views.x = []", `2:11: views.x: want a table, got a list`},
		{"[views.'a b']", `2:8: views."a b": check name "a b": want letters, digits, "_", "." and "-", at most 128`},
		{"bind = {}", `2:8: bind: want a list of tables, got a table`},
		{"bind = [1]", `2:9: bind: want a table, got an integer`},
		{"[[bind]]\nwritable = 'yes'", "2:3: bind.source: missing\n2:3: bind.target: missing\n" +
			"3:12: bind.writable: want true or false, got a string"},
		{"[env]\nset = { A = 1 }", `3:13: env.set.A: want a string in quotes, got an integer`},
		{"[env]\nset = 1", `3:7: env.set: want a table of strings, got an integer`},
		{"[env]\nredact = 1", `3:10: env.redact: want true or false, got an integer`},
		{"name = 1", `2:8: name: want a string, got an integer`},
		{"extends = 1", `2:11: extends: want a string, got an integer`},
		{"enforce = []", `2:11: enforce: want one of "required", "best_effort", got a list`},
		{"[limits]\nmemory = 1.5", `3:10: limits.memory: want a size such as "512M", got a number with a fraction`},
		{"[limits]\nwall = true", `3:8: limits.wall: want a duration such as "1m30s", or seconds, got true or false`},
		{"[limits]\npids = '5'", `3:8: limits.pids: want an integer, got a string`},
		{"[limits]\ncpus = '5'", `3:8: limits.cpus: want a number, got a string`},
		{"[network]\nports = [1.5]", `3:10: network.ports: want a port such as 8000 or "9000=127.0.0.1:9001", got a number with a fraction`},
		// Values.
		{"enforce = 'maybe'", `2:11: enforce: want one of "required", "best_effort", got "maybe"`},
		{"user = 'nobody'", `2:8: user: want "caller", "root" or a number, got "nobody"`},
		{"user = -1", `2:8: user: want 0 to 4294967294, got -1`},
		{"user = 4294967295", `2:8: user: want 0 to 4294967294, got 4294967295`},
		{"user = true", `2:8: user: want "caller", "root" or a number, got true or false`},
		{"name = ''", `2:8: name: is an empty string`},
		{"[files]\nbase = 'all'", `3:8: files.base: want "system", "host", "none" or { rootfs = "DIR" }, got "all"`},
		{"[files]\nbase = 1", `3:8: files.base: want "system", "host", "none" or { rootfs = "DIR" }, got an integer`},
		{"[files]\nmissing = 'ok'", `3:11: files.missing: want one of "error", "skip", got "ok"`},
		{"[files]\nhide_modules = ['a-b']", `3:17: files.hide_modules: check module "a-b": want a name such as "torch" or "torch.cuda"`},
		{"[env]\nallow = ['A-B', '1A', '']", `3:10: env.allow: check pattern "A-B": want a name of letters, digits, "_" and "*" that does not begin with a digit
3:17: env.allow: check pattern "1A": want a name of letters, digits, "_" and "*" that does not begin with a digit
3:23: env.allow: is an empty string`},
		{"[env.set]\n'A B' = ''", `3:1: env.set."A B": check name "A B": want a name of letters, digits and "_" that does not begin with a digit`},
		{"[env.set]\nA = \"x\\u0000\"", `3:5: env.set.A: has a NUL character`},
		{"[limits]\nmemory = '512 M'", `3:10: limits.memory: parse size "512 M": want bytes, or a whole number with K, M, G or T`},
		{"[limits]\nmemory = 0", `3:10: limits.memory: want 1 to 2^60 bytes, got 0`},
		{"[limits]\nwall = -1", `3:8: limits.wall: it must not be negative`},
		{"[limits]\nwall = nan", `3:8: limits.wall: it is not a number`},
		{"[limits]\nwall = 'soon'", `3:8: limits.wall: parse duration "soon": want something like "1m30s", or a number of seconds`},
		{"[limits]\ncpus = 0", `3:8: limits.cpus: want 0.01 to 4096, got 0`},
		{"[limits]\ncpus = nan", `3:8: limits.cpus: want 0.01 to 4096, got NaN`},
		{"[limits]\npids = 0\nnofile = 2147483648", "3:8: limits.pids: want 1 to 2147483647, got 0\n" +
			`4:10: limits.nofile: want 1 to 2147483647, got 2147483648`},
		{"[processes]\nguard = 'ruby'", `3:9: processes.guard: want one of "", "python", got "ruby"`},
		{"[processes]\nsteps = 5", `3:1: processes.steps: a step budget needs guard = "python"`},
		{"[workspace]\nlifetime = 'exec'", `2:2: workspace.source: missing: a workspace has a directory or "tmpfs" as its source`},
		{"[workspace]\nsource = '/x'\nsize = '5M'", `4:1: workspace.size: only a workspace with source = "tmpfs" has a size`},
		{"[workspace]\nsource = ''", `3:10: workspace.source: is an empty string`},
		// Paths.
		{"[files]\nread = ['']", `3:9: files.read: is an empty string`},
		{"[files]\nread = [\"a\\u0000b\"]", `3:9: files.read: has a NUL character`},
		{"[files]\nread = ['$NOPE/x']", `3:9: files.read: expand "$NOPE/x": variable "NOPE" is not set`},
		{"[files]\nread = ['${EMPTY}/x']", `3:9: files.read: expand "${EMPTY}/x": variable "EMPTY" is empty`},
		{"[files]\nread = ['~bob/x']", `3:9: files.read: expand "~bob/x": "~bob" is no variable and no home; for a file of that name write "./~bob/x"`},
		{"[files]\nread = ['$BYTES']", `3:9: files.read: path "$BYTES" stands for "/\xff", which is not UTF-8`},
		{"[workspace]\nsource = 'tmpfs'\npath = 'w'", `4:8: workspace.path: path "w" is not absolute`},
		{"[files]\ntmpfs = [{ path = 'tmp' }]", `3:19: files.tmpfs.path: path "tmp" is not absolute`},
		{"[[bind]]\nsource = 'x'\ntarget = '$REL'", `4:10: bind.target: path "$REL" is not absolute`},
		// Network.
		{"[network]\nmode = 'open'", `3:8: network.mode: want one of "isolated", "allowlist", "public", "host", got "open"`},
		{"[network]\nports = [80, 0, '80=81']", `3:14: network.ports: parse port "0": port "0" is not a number from 1 to 65535
3:17: network.ports: port 80 is forwarded already, by p.toml:3:10: network.ports`},
		{"[network]\nservices = ['ftp://x']", `3:13: network.services: parse service "ftp://x": want a URL that begins with http:// or https://`},
		{"[network]\nupstream_proxy = 'https://p'", `3:18: network.upstream_proxy: parse proxy: its scheme is "https": want http or socks5; the relay speaks no TLS to a proxy`},
		{"[network]\nupstream_proxy = 'http://u:p@p'", `3:18: network.upstream_proxy: a URL in a policy must hold no user name or password: they are taken from HTTPS_PROXY of the caller`},
		{"[network]\nno_proxy = ['a b']", `3:13: network.no_proxy: parse no_proxy "a b": want "*", a host, .SUFFIX, an address or ADDRESS/BITS`},
		{"[network]\nallowed_hosts = ['a b']", `3:18: network.allowed_hosts: parse host "a b": it has the character ' '`},
		{"[network]\nallow_private = ['a:1']", `3:18: network.allow_private: parse host "a:1": it must have no port`},
		// Columns count characters.
		{"name = 'é'; ", `2:11: expected newline but got U+003B ';'`},
		{"files = { read = ['日本', 1] }", `2:25: files.read: want a string, got an integer`},
	} {
		want := "p.toml:" + strings.ReplaceAll(c.want, "\n", "\np.toml:")
		if got := problems(t, input("p.toml", "version = 1\n"+c.data+"\n")); got != want {
			t.Errorf("%s\n got %s\nwant %s", c.data, got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	for data, want := range map[string]string{
		"":                           "p:1:1: version: missing: a policy says version = 1",
		"# a\n[files]\nraed = []":    "p:1:1: version: missing: a policy says version = 1",
		"\n version = 2\nbad = 1":    "p:2:12: version: version 2 is not known: this sandboxrun reads version 1",
		"version = '1'":              "p:1:11: version: want the number 1, got a string",
		"version = 1.0":              "p:1:11: version: want the number 1, got a number with a fraction",
		`{"version": "1"}`:           "p:1:13: version: want the number 1, got a string",
		"{\n}":                       "p:1:1: version: missing: a policy says version = 1",
		"\ufeffversion = 1\r\n":      "",
		"\ufeff{\"version\": 1}\r\n": "",
	} {
		if got := problems(t, input("p", data)); got != want {
			t.Errorf("%q:\n got %s\nwant %s", data, got, want)
		}
	}
}

func TestJSONProblems(t *testing.T) {
	for data, want := range map[string]string{
		`{"version": 1, "files": {"raed": []}}`:                 `1:26: files.raed: unknown key, did you mean "files.read"?`,
		"{\"version\": 1,\n \"user\": 1,\n \"user\": 2}":        `3:2: user: set twice, first at line 2`,
		"{\"version\": 1,\n \"files\": {\"read\": [\"é\", 1]}}": `2:26: files.read: want a string, got an integer`,
		`{"version": 1, "name": null}`:                          `1:24: name: want a string, got null`,
		`{"version": 1, "user": 1.0}`:                           `1:24: user: want "caller", "root" or a number, got a number with a fraction`,
		`{"version": 1, "user": 99999999999999999999}`:          `1:24: the number does not fit in 64 bits`,
		`{"version": 1, "limits": {"wall": 1e999}}`:             `1:35: limits.wall: it is above ten years`,
		`{"version": 1,}`:                                       `1:15: read JSON: invalid character '}' `,
		`{"version": 1`:                                         `1:14: the file ends too early`,
		`{"version": 1}}`:                                       `1:15: more text after the end of the JSON object`,
		"{\"version\": 1}\n{}":                                  `2:1: more text after the end of the JSON object`,
		`[1]`:                                                   `1:1: want a JSON object`,
		``:                                                      `1:1: the file ends too early`,
		`{"version": 1, "name": "\ud800x"}`:                     `1:24: a \u escape in this string is half of a surrogate pair`,
		`{"version": 1, "name": "\udc00\ud800"}`:                `1:24: a \u escape in this string is half of a surrogate pair`,
		`{"version": 1, 5: "x"}`:                                `1:16: read JSON: invalid character '5'`,
		"{\"version\": 1, \"name\": \"a\nb\"}":                  `1:24: read JSON: invalid character '\n' in string literal`,
		strings.Repeat("[", 200):                                `1:102: values nest too deep`,
		`{"version": 1, "name": "` + "\xc3" + `"}`:              `1:25: the file is not UTF-8`,
	} {
		if got := problems(t, input("p.json", data)); !strings.HasPrefix(got, "p.json:"+want) {
			t.Errorf("%s\n got %s\nwant %s", data, got, want)
		}
	}
	for _, name := range []string{`"\ud83d\ude00"`, `"😀"`, `"\ufffd"`, `"\\ud800"`, "\"\ufffd\""} {
		if got := problems(t, input("p.json", `{"version": 1, "name": `+name+`}`)); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestProblemsAreSortedAndCounted(t *testing.T) {
	data := "version = 1\n"
	for i := range 13 {
		data += fmt.Sprintf("bad%c = 1\n", 'A'+i)
	}
	_, err := Load(input("p.toml", "zzz = 1\n"+data))
	var bad *Error
	if !errors.As(err, &bad) || len(bad.Problems) != maxProblems || bad.More != 4 {
		t.Fatalf("got %v", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if lines[0] != "p.toml:1:1: zzz: unknown key" || lines[10] != "and 4 more" || asFault(err).Code != fault.PolicyInvalid {
		t.Errorf("got %q", lines)
	}
	for i, p := range bad.Problems[1:] {
		if p.Line != i+3 {
			t.Errorf("problem %d is at line %d", i, p.Line)
		}
	}
}

func TestLoadRefusesInput(t *testing.T) {
	if _, err := Load(Input{Name: "p", Data: []byte("version = 1"), Dir: "relative"}); err == nil {
		t.Error("a relative directory is accepted")
	}
	p, err := Load(Input{Name: "-", Data: []byte("version = 1\nworkdir = 'x'"), Cwd: "/c"})
	if err != nil || p.Files.Workdir.Path != "/c/x" {
		t.Errorf("without a directory, paths are not relative to Cwd: %+v, %v", p, err)
	}
	big := "version = 1\n#" + strings.Repeat("x", maxFile)
	if got := problems(t, input("p", big)); got != "p:1:1: the file is larger than 1048576 bytes" {
		t.Errorf("got %.200s", got)
	}
}

func asFault(err error) *fault.Error {
	e, _ := errors.AsType[*fault.Error](err)
	return e
}
