package transfer

import (
	"bytes"
	"io"
	"io/fs"
)

// File is a file, directory or link that has been read.
type File struct {
	Path string // relative; "." is the top
	Mode fs.FileMode
	Data []byte
	Link string // where a link leads
}

// Memory is a sink that keeps all that it is given.
type Memory struct{ Files []File }

// Dir keeps a directory.
func (m *Memory) Dir(name string, mode fs.FileMode) error {
	m.Files = append(m.Files, File{Path: name, Mode: fs.ModeDir | mode})
	return nil
}

// File keeps a file.
func (m *Memory) File(name string, mode fs.FileMode, data io.Reader) error {
	var b bytes.Buffer
	_, err := b.ReadFrom(data)
	if err == nil {
		m.Files = append(m.Files, File{Path: name, Mode: mode, Data: b.Bytes()})
	}
	return err
}

// Link keeps a link.
func (m *Memory) Link(name, target string) error {
	m.Files = append(m.Files, File{Path: name, Mode: fs.ModeSymlink, Link: target})
	return nil
}
