package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// reference is the Markdown of docs/policy.md: every key of a policy.
func reference() []byte {
	var b strings.Builder
	b.WriteString(referenceIntro + pathRule + referencePaths())
	keys := infos(policyKeys())
	writeTable(&b, "The top of the file", "", keys)
	for _, k := range keys {
		writeSection(&b, k, "")
	}
	return []byte(b.String())
}

const referenceIntro = `# Policy reference

<!-- Generated from the table of keys in spec/policy/table.go: go test ./spec/policy -run TestReference -update -->

A policy is a TOML file. It may be JSON with the same keys, if its name ends in ` + "`.json`" + ` or its text begins with a brace. Unknown keys, keys that are
set twice and values of a wrong type are errors that name file, line and column. The order of the keys does not matter.

- **Sizes** are bytes, or a whole number with ` + "`K`, `M`, `G` or `T`" + ` (powers of 1024), from 1 byte to 2^60 bytes.
- **Durations** are Go's (` + "`\"1m30s\"`" + `); a bare number is seconds. 0 means no limit; the maximum is ten years.
- **Paths**: `

// referencePaths follows pathRule.
func referencePaths() string {
	return ` A first component
  that only begins like one of these (` + "`~bob`, `$HOME-old`" + `) is an error: write ` + "`./~bob`" + `. An unset or empty variable is
  an error. Paths are cleaned without following symlinks (` + "`a/../b` is `b`" + `). Paths inside must be absolute.
- **extends**: a policy's lists are appended to the lists of the policy that it extends; ` + "`env.set` and `views`" + ` merge by name; every other key
  overrides. Relative paths in an extended file are relative to that file. A chain has at most ` + strconv.Itoa(maxExtends) + ` files.

In the tables below, *inside* means in the sandbox.

`
}

// writeSection writes the table of a key that has inner keys, then the tables of these keys.
func writeSection(b *strings.Builder, k info, prefix string) {
	if k.inner == nil {
		return
	}
	full := under(prefix, k.name)
	title := "[" + full + "]"
	switch {
	case k.named:
		full += ".NAME"
		title = "[" + full + "]"
	case k.kind == kindRecords || k.kind == kindPathsOrTables:
		title = "[[" + full + "]]"
	case k.schema != nil:
		title = full
	}
	doc := describe(k)
	if k.schema != nil {
		doc = "" // its row has the description
	}
	writeTable(b, "`"+title+"`", doc, k.inner())
	for _, inner := range k.inner() {
		writeSection(b, inner, full)
	}
}

func writeTable(b *strings.Builder, title, doc string, keys []info) {
	fmt.Fprintf(b, "## %s\n\n", title)
	if doc != "" {
		fmt.Fprintf(b, "%s\n\n", strings.ReplaceAll(doc, "*", `\*`))
	}
	b.WriteString("| key | value | meaning |\n|---|---|---|\n")
	for _, k := range keys {
		meaning := describe(k)
		if k.required {
			meaning = "Required. " + meaning
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", k.name, cell(k.kind), cell(meaning))
	}
	b.WriteString("\n")
}

// cell escapes the characters that have a meaning in a table's cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", ">", "&gt;").Replace(s)
}
