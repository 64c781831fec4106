package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Canonical is the policy as one JSON file, without extends, with absolute paths, all defaults and sorted keys. Load reads it as the
// same policy. It does not have the places of From fields.
func (p *Policy) Canonical() []byte { return marshal(encode(policyKeys(), p), "  ") }

// Redigest makes the digest anew, of a policy that was changed after it was read.
func (p *Policy) Redigest() { p.Digest = digest(encode(policyKeys(), p)) }

// digest is the SHA-256, in hex, of a policy in its canonical form, less spaces between tokens.
func digest(written map[string]any) string {
	sum := sha256.Sum256(marshal(written, ""))
	return hex.EncodeToString(sum[:])
}

// marshal writes maps, lists, strings, numbers and booleans as JSON; keys are sorted. None of them can fail.
func marshal(v any, indent string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		panic("spec: marshal JSON: " + err.Error())
	}
	return b.Bytes()
}
