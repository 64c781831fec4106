package client

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
)

// Policy says what a sandbox shows: one of Name, Text and Inline, or none for the default preset; and what is added to it.
type Policy struct {
	Name   string         // of a preset, or of a policy file
	Text   string         // the policy itself, TOML or JSON
	Inline map[string]any // the same as an object

	Read, Write, Bind, Deny, AllowHost []string // as the options of sandboxrun create
	Dir                                string   // where programs start

	Warm map[string]int // how many interpreters are kept ready for Cmd.Warm, by their names: python3
}

func (p *Policy) params() map[string]any {
	params := map[string]any{}
	switch {
	case p.Inline != nil:
		params["policy"] = p.Inline
	case p.Name != "":
		params["policy"] = p.Name
	}
	if p.Text != "" {
		params["policy_text"] = p.Text
	}
	if p.Dir != "" {
		params["cwd"] = p.Dir
	}
	if len(p.Warm) > 0 {
		params["warm"] = p.Warm
	}
	for name, list := range map[string][]string{"read": p.Read, "write": p.Write, "bind": p.Bind, "deny": p.Deny, "allow_host": p.AllowHost} {
		if len(list) > 0 {
			params[name] = list
		}
	}
	return params
}

// Sandbox is a sandbox that exists.
type Sandbox struct {
	Info
	client *Client
	once   sync.Once
	err    error
}

// Info is what create says of a sandbox.
type Info struct {
	ID       string          `json:"id"`
	Isolated bool            `json:"isolated"` // every check that each sandbox needs was held, and none was broken
	Workdir  string          `json:"workdir"`
	Paths    []Path          `json:"paths"`
	Weaker   json.RawMessage `json:"weaker"`
	Checks   json.RawMessage `json:"checks"`
	Warnings []string        `json:"warnings"`
}

// Path is a path of the host that is inside.
type Path struct {
	Inside   string `json:"inside"`
	Host     string `json:"host"`
	Writable bool   `json:"writable"`
}

// Create makes a sandbox. It ends with Close, or with the client.
func (c *Client) Create(ctx context.Context, p Policy) (*Sandbox, error) {
	sb := &Sandbox{client: c}
	return sb, c.ask(ctx, "create", p.params(), &sb.Info)
}

// Close ends everything in the sandbox and removes it. It may be called again.
func (sb *Sandbox) Close() error {
	sb.once.Do(func() { sb.err = sb.client.ask(context.Background(), "delete", map[string]any{"sandbox": sb.ID}, nil) })
	return sb.err
}

type content struct {
	Base64 []byte `json:"base64"`
}

func contents(files map[string][]byte) map[string]content {
	list := make(map[string]content, len(files))
	for name, data := range files {
		list[name] = content{append([]byte{}, data...)} // nil would be null
	}
	return list
}

// WriteFile writes a file with the rights of the sandbox's programs. The path is relative to the working directory inside.
func (sb *Sandbox) WriteFile(ctx context.Context, name string, data []byte) error {
	files := contents(map[string][]byte{name: data})
	return sb.client.ask(ctx, "put", map[string]any{"sandbox": sb.ID, "files": files}, nil)
}

// ReadFiles reads a file, the files of a directory, or those that a pattern names, up to so many bytes together; 0: 1 MiB.
func (sb *Sandbox) ReadFiles(ctx context.Context, name string, limit int64) ([]File, error) {
	params := map[string]any{"sandbox": sb.ID, "path": name}
	if limit > 0 {
		params["max"] = limit
	}
	var got struct {
		Files []collected `json:"files"`
	}
	if err := sb.client.ask(ctx, "get", params, &got); err != nil {
		return nil, err
	}
	files, errs := split(got.Files)
	for _, err := range errs {
		return nil, err
	}
	return files, nil
}

// Export copies a file or directory to a new one of the host, and names what was left out: links that lead elsewhere, pipes, devices.
func (sb *Sandbox) Export(ctx context.Context, name, to string, limit int64) ([]Dropped, error) {
	to, err := filepath.Abs(to)
	if err != nil {
		return nil, err
	}
	params := map[string]any{"sandbox": sb.ID, "path": name, "to": to}
	if limit > 0 {
		params["max"] = limit
	}
	var got struct {
		Dropped []Dropped `json:"dropped"`
	}
	err = sb.client.ask(ctx, "get", params, &got)
	return got.Dropped, err
}

// Dropped is what was left out.
type Dropped struct{ Path, Why string }

// File is a file that was read.
type File struct {
	Path string
	Data []byte
}

type collected struct {
	Path   string `json:"path"`
	Text   string `json:"text"`
	Base64 []byte `json:"base64"`
	Error  *Error `json:"error"`
}

func split(list []collected) (files []File, errs map[string]error) {
	errs = map[string]error{}
	for _, f := range list {
		switch {
		case f.Error != nil:
			errs[f.Path] = f.Error
		case f.Base64 != nil:
			files = append(files, File{f.Path, f.Base64})
		default:
			files = append(files, File{f.Path, []byte(f.Text)})
		}
	}
	return files, errs
}
