package hooks

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table in docs/security.md is this one.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, c := range Checks() {
		inside := c.Positive
		if c.Negative != "" {
			inside += "; " + c.Negative
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", c.Name, c.Claim, inside, c.Control)
	}
	if !strings.Contains(string(data), rows.String()) {
		t.Errorf("docs/security.md should have\n%s", rows.String())
	}
}
