package template

import "testing"

// TestPut: a template has each hole once, or it is none: a text that looks like a hole must not become one.
func TestPut(t *testing.T) {
	list := map[string]string{"111": "\x01a", "222": "\x01b"}
	for text, want := range map[string]string{
		`{"a":111,"b":"222"}` + "\n": `{"a":` + "\x01a" + `,"b":"` + "\x01b" + `"}`,
		`{"a":111}`:                  "",
		`{"a":111,"b":222,"c":111}`:  "",
		"":                           "",
	} {
		if got := put([]byte(text), list); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := put([]byte("x\n"), nil); got != "x" {
		t.Errorf("without holes: %q", got)
	}
}
