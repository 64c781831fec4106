package result

import (
	"bytes"
	"encoding/json"
	"fmt"
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
