package serve

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/cli/files"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rpc"
	"github.com/sandboxrun/sandboxrun/transfer"
	"github.com/sandboxrun/sandboxrun/units"
)

// byteSize is a number of bytes, or text as in a policy.
type byteSize int64

// UnmarshalJSON reads both.
func (s *byteSize) UnmarshalJSON(data []byte) error {
	text := string(data)
	if data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	n, err := units.ParseSize(text)
	*s = byteSize(n)
	return err
}

// putValue is a file to be written: its text, or an object.
type putValue struct {
	Text   *string  `json:"text"`
	Base64 *string  `json:"base64"`
	File   string   `json:"file"` // of the host: a file or a directory
	Mode   uint32   `json:"mode"` // as a number
	Max    byteSize `json:"max"`
}

// UnmarshalJSON reads both.
func (v *putValue) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &v.Text)
	}
	type object putValue
	return strictJSON(data, (*object)(v))
}

// collectValue is a path, or an object.
type collectValue struct {
	Path string   `json:"path"`
	Max  byteSize `json:"max"`
	To   string   `json:"to"` // a new file or directory of the host
}

// UnmarshalJSON reads both.
func (v *collectValue) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &v.Path)
	}
	type object collectValue
	return strictJSON(data, (*object)(v))
}

func (n *session) puts(b *served, named map[string]putValue) ([]container.Put, error) {
	var list []container.Put
	for _, name := range slices.Sorted(maps.Keys(named)) {
		v := named[name]
		limit := cmp.Or(int64(v.Max), transfer.DefaultMax)
		if v.File != "" && v.Text == nil && v.Base64 == nil {
			if err := n.ofHost("put: file", "send its content: base64"); err != nil {
				return nil, err
			}
			read, err := files.FromHost(n.Caller, b.sb, v.File, name, limit)
			if err != nil {
				return nil, err
			}
			list = append(list, read...)
			continue
		}
		data, err := v.content()
		if err != nil {
			return nil, badParams("put %q: %v", name, err)
		}
		if int64(len(data)) > limit {
			return nil, fault.New(fault.FileTooLarge, "allow more: max", "put %q: it is larger than %d bytes", name, limit)
		}
		list = append(list, container.Put{Path: name, Data: data, Mode: fs.FileMode(v.Mode & 0o777)})
	}
	return list, nil
}

// content is what the request has of it.
func (v *putValue) content() ([]byte, error) {
	switch {
	case v.Text != nil && v.Base64 == nil && v.File == "":
		return []byte(*v.Text), nil
	case v.Base64 != nil && v.Text == nil && v.File == "":
		return base64.StdEncoding.DecodeString(*v.Base64)
	}
	return nil, errors.New("one of text, base64 and file is needed")
}

// maxAnswer is how many bytes of files one answer has, as many as a request. A sparse file is as large as it says, and costs a program nothing.
const maxAnswer = rpc.MaxLine

func (n *session) collects(values []collectValue) ([]container.Collect, error) {
	var list []container.Collect
	for _, v := range values {
		c := container.Collect{Path: v.Path, Max: int64(v.Max)}
		if v.To == "" && c.Max > maxAnswer {
			return nil, fault.New(fault.FileTooLarge, "copy it to the host: to; or get it in parts", "collect %q: an answer holds at most %d bytes of files", v.Path, maxAnswer)
		}
		if v.To != "" {
			if err := n.ofHost("collect: to", "leave it out: the answer has the content"); err != nil {
				return nil, err
			}
			to, err := n.OnHost("collect", v.To)
			if err != nil {
				return nil, err
			}
			c.To = to
		}
		list = append(list, c)
	}
	return list, nil
}

func (n *session) put(_ context.Context, r *rpc.Request) (any, error) {
	q, err := params[struct {
		Sandbox string              `json:"sandbox"`
		Cwd     string              `json:"cwd"`
		Files   map[string]putValue `json:"files"`
	}](r)
	if err != nil {
		return nil, err
	}
	return n.inSandbox(q.Sandbox, func(b *served) (any, error) {
		files, err := n.puts(b, q.Files)
		if err != nil {
			return nil, err
		}
		return nil, b.sb.Put(q.Cwd, files)
	})
}

func (n *session) get(_ context.Context, r *rpc.Request) (any, error) {
	q, err := params[struct {
		Sandbox string   `json:"sandbox"`
		Cwd     string   `json:"cwd"`
		Path    string   `json:"path"`
		Max     byteSize `json:"max"`
		To      string   `json:"to"`
	}](r)
	if err != nil {
		return nil, err
	}
	list, err := n.collects([]collectValue{{q.Path, q.Max, q.To}})
	if err != nil {
		return nil, err
	}
	return n.inSandbox(q.Sandbox, func(b *served) (any, error) {
		files, dropped, err := b.sb.Collect(q.Cwd, list)
		if err != nil {
			return nil, err
		}
		return struct {
			Files   []result.Collected `json:"files"`
			Dropped []transfer.Dropped `json:"dropped,omitempty"`
		}{files, dropped}, nil
	})
}
