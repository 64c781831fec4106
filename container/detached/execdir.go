package detached

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Dir is the directory of a detached exec as its monitor has it.
type Dir struct {
	root   *os.Root // the sandbox's directory
	path   string   // in it
	dir    *os.Root // its own directory
	lock   *os.File
	result *os.File
	pidns  *os.File
	Logs   stream.Files // where its output is kept
}

// NewDir makes the directory of an exec, below the sandbox's as it is open: where that has been deleted nothing can be
// made in it. It has another name until the exec has one, and all in it by then.
func NewDir(sandbox *os.File) (*Dir, error) {
	d := &Dir{path: filepath.Join(ExecsDir, ".new-"+rand.Text())}
	if err := d.prepare(sandbox); err != nil {
		d.Discard()
		return nil, err
	}
	return d, nil
}

func (d *Dir) prepare(sandbox *os.File) (err error) {
	if d.root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", sandbox.Fd())); err != nil {
		return err
	}
	if err := d.root.Mkdir(ExecsDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := d.root.Mkdir(d.path, 0o700); err != nil {
		return err
	}
	if d.dir, err = d.root.OpenRoot(d.path); err != nil {
		return err
	}
	if d.lock, err = d.create(execLock); err != nil {
		return err
	}
	if err := flock.Lock(d.lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if d.pidns, err = d.create(execPidns); err != nil {
		return err
	}
	if d.result, err = d.create(newResult); err != nil {
		return err
	}
	// The program's output may fill the disk. The result must be written all the same.
	_ = unix.Fallocate(int(d.result.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, smallResult)
	for i, name := range stream.Names() {
		f, err := d.create(name)
		if err != nil {
			return err
		}
		d.Logs[i] = stream.NewFile(f, "the log of "+name, LogMax)
	}
	return nil
}

// smallResult is more than a result has without output, in bytes.
const smallResult = 32 << 10

func (d *Dir) create(name string) (*os.File, error) {
	return d.dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
}

// Publish gives the exec's directory the exec's name.
func (d *Dir) Publish(name string, pidns func() (uint64, error)) error {
	if n, err := pidns(); err == nil { // else it has ended already
		_, _ = d.pidns.WriteString(strconv.FormatUint(n, 10)) // only ps would miss it
	}
	d.pidns.Close()
	path := filepath.Join(ExecsDir, name)
	if err := d.root.Rename(d.path, path); err != nil {
		return err
	}
	d.path = path
	return nil
}

// Discard removes it: there is no exec.
func (d *Dir) Discard() {
	if d.root != nil {
		_ = d.root.RemoveAll(d.path)
	}
}

// Close unlocks the directory last: a process that has waited for the lock finds the result.
func (d *Dir) Close() {
	d.dir.Close()
	d.root.Close()
	d.lock.Close()
}

// Save writes the result. If the disk is full, it is written without the output.
func (d *Dir) Save(res *result.Result) error {
	err := d.write(res)
	if err != nil {
		res.Stdout, res.Stderr, res.Encoding = "", "", result.Encoding
		res.StdoutBase64, res.StderrBase64 = "", ""
		res.StdoutTruncated, res.StderrTruncated = res.StdoutBytes > 0, res.StderrBytes > 0
		res.Warnings = append(res.Warnings, fmt.Sprintf("the output is not in the result: %v", fault.Cause(err)))
		err = d.write(res)
	}
	if cerr := d.result.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return d.dir.Rename(newResult, execResult)
}

func (d *Dir) write(res *result.Result) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(res); err != nil {
		return err
	}
	if _, err := d.result.WriteAt(buf.Bytes(), 0); err != nil {
		return err
	}
	return d.result.Truncate(int64(buf.Len()))
}
