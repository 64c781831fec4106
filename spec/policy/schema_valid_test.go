package policy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy.json") // checks it against the 2020-12 metaschema
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, data string) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
	if err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return s.Validate(doc)
}

func TestSchemaAndLoaderAgree(t *testing.T) {
	s := compileSchema(t)
	for _, c := range []struct {
		keys string
		good bool
	}{
		{``, true},
		{`, "user": 0`, true},
		{`, "user": "root"`, true},
		{`, "user": "bob"`, false},
		{`, "user": -1`, false},
		{`, "user": 4294967295`, false},
		{`, "name": ""`, false},
		{`, "nope": 1`, false},
		{`, "enforce": "maybe"`, false},
		{`, "workspace": {"source": "tmpfs", "size": "1G"}`, true},
		{`, "workspace": {"source": 1}`, false},
		{`, "workspace": {"source": "x", "lifetime": "day"}`, false},
		{`, "workspace": {"source": "x", "sorce": 1}`, false},
		{`, "files": {"base": "none"}`, true},
		{`, "files": {"base": {"rootfs": "/x"}}`, true},
		{`, "files": {"base": {}}`, false},
		{`, "files": {"base": {"rootfs": "/x", "y": 1}}`, false},
		{`, "files": {"base": "all"}`, false},
		{`, "files": {"read": [""]}`, false},
		{`, "files": {"read": "x"}`, false},
		{`, "files": {"tmpfs": [{"path": "/x", "inodes": 1}]}`, true},
		{`, "files": {"tmpfs": [{"size": 1}]}`, false},
		{`, "files": {"tmpfs": [{"path": "/x", "inodes": 0}]}`, false},
		{`, "files": {"hide_modules": ["a.b"]}`, true},
		{`, "files": {"hide_modules": ["a-b"]}`, false},
		{`, "files": null`, false},
		{`, "bind": [{"source": "x", "target": "/y"}]`, true},
		{`, "bind": [{"source": "x"}]`, false},
		{`, "bind": {}`, false},
		{`, "env": {"set": {"A": ""}}`, true},
		{`, "env": {"set": {"A": 1}}`, false},
		{`, "env": {"set": {"A-B": ""}}`, false},
		{`, "env": {"allow": ["*", "A*B_1"]}`, true},
		{`, "env": {"allow": ["A B"]}`, false},
		{`, "env": {"allow": ["1"]}`, false},
		{`, "network": {"ports": [1, "2=3", "4=unix:/x"]}`, true},
		{`, "network": {"ports": [0]}`, false},
		{`, "network": {"ports": ["x"]}`, false},
		{`, "network": {"ports": [65536]}`, false},
		{`, "network": {"services": ["http://x"]}`, true},
		{`, "network": {"services": ["x"]}`, false},
		{`, "network": {"mode": "open"}`, false},
		{`, "network": {"env_urls": "yes"}`, false},
		{`, "limits": {"wall": 0, "idle": 1.5, "cpu": "1m30s"}`, true},
		{`, "limits": {"wall": "5"}`, true},
		{`, "limits": {"wall": -1}`, false},
		{`, "limits": {"wall": "-1s"}`, false},
		{`, "limits": {"wall": "soon"}`, false},
		{`, "limits": {"wall": 315360001}`, false},
		{`, "limits": {"memory": "512M", "file": 1}`, true},
		{`, "limits": {"memory": "512MB"}`, false},
		{`, "limits": {"memory": 0}`, false},
		{`, "limits": {"memory": "0"}`, false},
		{`, "limits": {"memory": 1152921504606846977}`, false},
		{`, "limits": {"cpus": 0.5}`, true},
		{`, "limits": {"cpus": 0}`, false},
		{`, "limits": {"pids": 0}`, false},
		{`, "limits": {"pids": "1"}`, false},
		{`, "processes": {"guard": "", "steps": 0}`, true},
		{`, "processes": {"guard": "ruby"}`, false},
		{`, "processes": {"steps": -1}`, false},
		{`, "views": {"a": {"read": ["x"]}}`, true},
		{`, "views": {"a b": {}}`, false},
		{`, "views": {"a": {"write": []}}`, false},
		{`, "views": {"a": 1}`, false},
	} {
		data := `{"version": 1` + c.keys + `}`
		_, loaded := Load(input("p.json", data))
		checked := valid(t, s, data)
		if (loaded == nil) != c.good || (checked == nil) != c.good {
			t.Errorf("%s: want good = %t\nloader: %v\nschema: %v", data, c.good, loaded, checked)
		}
	}
	for _, data := range []string{everythingJSON, `{"version": 1}`} {
		if err := valid(t, s, data); err != nil {
			t.Error(err)
		}
	}
	for _, data := range []string{`{}`, `{"version": 2}`, `[]`} {
		if valid(t, s, data) == nil {
			t.Errorf("%s is valid", data)
		}
	}
}
