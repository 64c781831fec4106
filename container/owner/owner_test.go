package owner

import "testing"

func TestWraps(t *testing.T) {
	self := []string{"sandboxrun", "create", "x"}
	for _, tt := range []struct {
		outer []string
		want  bool
	}{
		{[]string{"timeout", "60", "/usr/bin/sandboxrun", "create", "x"}, true},
		{[]string{"sudo", "env", "A=1", "sandboxrun", "create", "x"}, true},
		{self, false},
		{[]string{"sh", "-c", "sandboxrun create x"}, false},
		{[]string{"timeout", "60", "sandboxrun", "create", "y"}, false},
		{[]string{"harness"}, false},
		{nil, false},
	} {
		if got := wraps(tt.outer, self); got != tt.want {
			t.Errorf("wraps(%q) = %v", tt.outer, got)
		}
	}
}
