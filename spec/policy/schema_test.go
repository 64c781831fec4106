package policy

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/spec/document"
)

var update = flag.Bool("update", false, "write docs/policy.md anew")

// allowedKeys lists every key that a schema allows.
func allowedKeys(s map[string]any, prefix string, found map[string]bool) {
	visit := func(v any, prefix string) {
		if m, ok := v.(map[string]any); ok {
			allowedKeys(m, prefix, found)
		}
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for name, v := range properties {
			full := under(prefix, name)
			found[full] = v.(map[string]any)["description"] != ""
			visit(v, full)
		}
	}
	if own, ok := s["additionalProperties"].(map[string]any); ok && own["properties"] != nil {
		visit(own, prefix+".own")
	}
	visit(s["items"], prefix)
	if any, ok := s["anyOf"].([]any); ok {
		for _, v := range any {
			visit(v, prefix)
		}
	}
}

func TestSchemaHasEveryKey(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	allowedKeys(schema, "", found)
	got := slices.Sorted(maps.Keys(found))
	want := keyNames(infos(policyKeys()), "", "views.own.x")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the schema has\n%q\nthe loader\n%q", got, want)
	}
	for name, described := range found {
		if !described {
			t.Errorf("%s has no description", name)
		}
	}
}

// TestInterfaceKeys keeps the table true to the contract: the policy that it shows has every key.
func TestInterfaceKeys(t *testing.T) {
	root, f := document.ReadTOML([]byte(readTestdata(t, "interface.toml")))
	if f != nil {
		t.Fatal(f)
	}
	names := keyNames(infos(policyKeys()), "", "views.judge.x")
	for _, n := range names {
		table, found := root, true
		for part := range strings.SplitSeq(n, ".") {
			if table.Kind == document.ListNode && len(table.Items) > 0 {
				table = table.Items[0]
			}
			f := table.Get(part)
			if found = f != nil; !found {
				break
			}
			table = f.Value
		}
		if !found && n != "files.base.rootfs" { // left out there
			t.Errorf("the interface does not show %s", n)
		}
	}
}

func TestReference(t *testing.T) {
	const path = "../../docs/policy.md"
	if *update {
		if err := os.WriteFile(path, reference(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, reference()) {
		t.Error("docs/policy.md is out of date: go test ./spec/policy -run TestReference -update")
	}
	for _, k := range keyNames(infos(policyKeys()), "", "") {
		last := k[strings.LastIndex(k, ".")+1:]
		if !strings.Contains(string(got), "| `"+last+"` |") {
			t.Errorf("the reference lacks %s", k)
		}
	}
}
