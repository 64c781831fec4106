package policy

// Schema is the JSON Schema (2020-12) of a policy, for editors. It accepts every policy that Load accepts, if TOML is read as
// the JSON of the same values. Load refuses more: errors that a type, a range or a pattern cannot express.
func Schema() []byte {
	root := tableSchema(infos(policyKeys()), "")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "sandboxrun policy"
	root["description"] = "Sizes are bytes, or whole numbers with K, M, G or T (powers of 1024). Durations are Go's (\"1m30s\"); " +
		"a bare number is seconds. " + pathRule
	return marshal(root, "  ")
}

// pathRule describes how paths are read. It is a part of the schema and of the reference.
const pathRule = "Relative paths are relative to the policy file. `~`, `$VAR` and `${VAR}` expand if they are the whole first " +
	"component of a path. `$$` at the beginning of a path is a literal `$`. Every other character is literal."

func tableSchema(keys []info, prefix string) map[string]any {
	properties := map[string]any{}
	var required []string
	for _, k := range keys {
		properties[k.name] = keySchema(k, prefix)
		if k.required {
			required = append(required, k.name)
		}
	}
	table := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		table["required"] = required
	}
	return table
}

func keySchema(k info, prefix string) map[string]any {
	full := under(prefix, k.name)
	s := map[string]any{}
	inner := func() map[string]any { return tableSchema(k.inner(), full) }
	switch {
	case k.inner == nil:
		s = k.schema()
	case k.kind == kindPathsOrTables:
		s["type"], s["items"] = "array", anyOf(k.schema(), inner())
	case k.schema != nil: // a word or a table
		s["anyOf"] = []any{k.schema(), inner()}
	case k.named:
		s["type"], s["propertyNames"] = "object", map[string]any{"pattern": viewName}
		s["additionalProperties"] = inner()
	case k.kind == kindRecords:
		s["type"], s["items"] = "array", inner()
	default:
		s = inner()
	}
	s["description"] = describe(k)
	return s
}

// describe is the description of a key everywhere: its meaning and its default.
func describe(k info) string {
	text := k.doc
	if k.def != "" {
		text += " Default: " + k.def + "."
	}
	return text
}
