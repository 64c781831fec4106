package inspect

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/hooks"
)

func TestPrintChecks(t *testing.T) {
	print := func(asJSON bool) string {
		out, err := os.CreateTemp(t.TempDir(), "out")
		if err != nil {
			t.Fatal(err)
		}
		p := &Commands{&caller.Caller{Out: &caller.Output{File: out}}}
		p.printChecks(asJSON)
		data, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	text := print(false)
	var table []hooks.Check
	if err := json.Unmarshal([]byte(print(true)), &table); err != nil || len(table) != len(hooks.Checks()) {
		t.Fatal(len(table), err)
	}
	for _, c := range table {
		if !strings.Contains(text, c.Name+" ("+c.Layer+")\n    claim      "+c.Claim+"\n") {
			t.Errorf("%s is not in\n%s", c.Name, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("there is colour in a file")
	}
}
