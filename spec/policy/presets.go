package policy

import (
	"embed"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

//go:embed presets/*.toml
var presets embed.FS

// Presets lists the built-in policies by name, sorted.
func Presets() []string {
	entries, err := presets.ReadDir("presets")
	if err != nil {
		panic("spec: read embedded presets: " + err.Error())
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".toml")
	}
	return names
}

// Preset returns the text of a built-in policy. A preset grants nothing relative to a directory, so it has none.
func Preset(name string) ([]byte, bool) {
	data, err := presets.ReadFile("presets/" + name + ".toml")
	return data, err == nil
}

// Default is the policy of a caller who names none: the default preset, with the given absolute directory as the
// writable workspace. Env, Home and ReadFile need not be filled in.
func Default(workspace string) Input {
	data := `{"version": 1, "extends": "default", "workspace": {"source": ` + quoteJSON(workspace) + `}}`
	return Input{Name: "preset default", Data: []byte(data), Dir: workspace}
}

// quoteJSON writes a JSON string. Bytes that are not UTF-8 stay, so that Load refuses them. json.Marshal would replace
// them and so name another directory.
func quoteJSON(s string) string {
	if !utf8.ValidString(s) {
		return `"` + s + `"`
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic("spec: marshal string: " + err.Error())
	}
	return string(b)
}
