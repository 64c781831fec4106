package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Schema is the JSON Schema (2020-12) of a result. Later versions may add keys, and take none away.
func Schema() []byte {
	root := resultObject(resultKeys())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "sandboxrun result"
	root["description"] = "The object that run --json, exec --json, wait --json and --result write."
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		panic("result: marshal schema: " + err.Error())
	}
	return b.Bytes()
}

func resultObject(keys []resultKey) map[string]any {
	properties := map[string]any{}
	var required []string
	for _, k := range keys {
		properties[k.name] = k.schema()
		if !k.optional {
			required = append(required, k.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

func (k *resultKey) schema() map[string]any {
	s := map[string]any{"type": k.kind}
	switch {
	case k.kind == "object":
		s = resultObject(k.inner)
	case k.kind == "array" && k.inner != nil:
		s["items"] = resultObject(k.inner)
	case k.kind == "array":
		s["items"] = map[string]any{"type": "string"}
	}
	if k.enum != nil {
		values := make([]any, 0, len(k.enum())+1)
		for _, v := range k.enum() {
			values = append(values, v)
		}
		if k.null {
			values = append(values, nil)
		}
		s["enum"] = values
	}
	if k.null {
		s["type"] = []string{k.kind, "null"}
	}
	s["description"] = k.text()
	return s
}

// text is the description of a key everywhere.
func (k *resultKey) text() string {
	if k.unit == "" {
		return k.meaning
	}
	return fmt.Sprintf("%s In %s.", k.meaning, k.unit)
}

// Reference is the Markdown of docs/result.md.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(resultIntro)
	writeResultKeys(&b, "Keys", resultKeys())
	for _, k := range resultKeys() {
		if k.inner != nil {
			writeResultKeys(&b, "`"+k.name+"`", k.inner)
		}
	}
	b.WriteString("## Outcomes\n\n| outcome | finding | exit status | means |\n|---|---|---|---|\n")
	for _, o := range resultOutcomes() {
		finding := "null"
		if o.finding != "" {
			finding = "`" + o.finding + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", o.name, finding, o.status, o.meaning)
	}
	b.WriteString("\n## Exit statuses\n\nEvery other status is the program's.\n\n| status | means |\n|---|---|\n")
	for _, s := range resultStatuses() {
		fmt.Fprintf(&b, "| %s | %s |\n", s[0], s[1])
	}
	return []byte(b.String())
}

const resultIntro = `# Result reference

<!-- Generated from the tables in container/result/contract.go: go test ./container/result -run TestResultContract -update -->

` + "`run --json`, `exec --json` and `wait --json`" + ` print one JSON object and a newline on standard output, also if the program did not start.
` + "`--result FILE|FD`" + ` writes the same object; the program's streams then pass through unchanged. The command's exit
status is ` + "`exit_code`" + `; the rows 125 and 128 + n of the last table have the exceptions. Later versions may add keys. They remove no key and
do not change the meaning of one. ` + "`sandboxrun result schema`" + ` prints the JSON Schema.

` + "`stdout` and `stderr`" + ` are always readable text: bytes that are not UTF-8 become U+FFFD. The exact bytes are then in ` + "`stdout_base64`" + ` and
` + "`stderr_base64`" + `.

`

func writeResultKeys(b *strings.Builder, title string, keys []resultKey) {
	fmt.Fprintf(b, "## %s\n\n| key | type | meaning |\n|---|---|---|\n", title)
	for _, k := range keys {
		kind := k.kind
		if k.null {
			kind += " or null"
		}
		if k.optional {
			kind += ", may be left out"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", k.name, kind, k.text())
	}
	b.WriteString("\n")
}
