package result

import (
	"fmt"
	"strings"
)

// reference is the Markdown of docs/result.md.
func reference() []byte {
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

// resultStatuses are the exit statuses that are not the program's own.
func resultStatuses() [][2]string {
	return [][2]string{
		{"121", "The program used up its steps, if the outcome says so."},
		{"124", "The time was over."},
		{"125", "The launcher failed. Or the program exited with 0, but its input could not be read or its output could not be written; then exit_code is 0."},
		{"126", "The program cannot be executed."},
		{"127", "The program was not found."},
		{"128 + n", "Signal n ended the program. 141 (SIGPIPE) also means that the reader of standard output has gone."},
		{"152", "The program used more processor time than its limit."},
	}
}
