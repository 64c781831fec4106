package hooks

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocs compares the table of checks in docs/security.md, and its numbers, with the code.
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
	text := strings.Join(strings.Fields(string(data)), " ")
	if want := fmt.Sprintf(" %d of the grants (all denies and secrets)", MaxGrants); !strings.Contains(text, want) {
		t.Errorf("docs/security.md should say %q", want)
	}
}
