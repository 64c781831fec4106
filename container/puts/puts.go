// Package puts has the files that an exec, or put, writes into a sandbox: their paths are checked, the directories on the way added, and an error
// says whose fault it was. It imports of ours fault, forkexec and transfer.
package puts

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/transfer"
)

// Put is a file that is written for a program, with the program's rights, before it starts.
type Put struct {
	Path string // relative to the working directory; directories on the way are made
	Data []byte
	Mode fs.FileMode // of a file that was not there, less the policy's umask; 0: 0666. A directory has fs.ModeDir
}

// Time is what a visit may take that writes files: a file system may not answer.
const Time = 30 * time.Second

// Plain checks the paths and adds the directories on the way.
func Plain(files []Put) ([]forkexec.Put, error) {
	var list []forkexec.Put
	made := map[string]bool{".": true}
	directory := func(name string) {
		for i := 0; i <= len(name); i++ {
			if i < len(name) && name[i] != '/' || made[name[:i]] {
				continue
			}
			made[name[:i]] = true
			list = append(list, forkexec.Put{Parent: path.Dir(name[:i]), Name: path.Base(name[:i])})
		}
	}
	for _, f := range files {
		name, err := transfer.Clean(f.Path)
		switch {
		case err != nil:
			return nil, TransferError("put", err)
		case f.Mode.IsDir():
			directory(name)
			continue
		case name == "." || strings.HasSuffix(f.Path, "/"):
			return nil, fault.New(fault.PathInvalid, "name the file that is to be written", "put %q: it is a directory", f.Path)
		}
		directory(path.Dir(name))
		mode := uint32(f.Mode.Perm())
		if mode == 0 {
			mode = 0o666
		}
		list = append(list, forkexec.Put{Name: name, Data: f.Data, Mode: mode})
	}
	return list, nil
}

// TransferError says what was being done when package transfer failed, and how the command line can mend it.
func TransferError(doing string, err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	hint := ""
	switch e.Code {
	case fault.PathInvalid:
		hint = "name it relative to the working directory inside"
	case fault.FileTooLarge:
		hint = "allow more: --max"
	}
	return fault.New(e.Code, hint, "%s %w", doing, err)
}

// Failed is the error of a file that could not be written.
func Failed(step *forkexec.StepError) error {
	code, why, hint := fault.PutFailed, step.Err.Error(), ""
	switch step.Err {
	case unix.EXDEV:
		code, why, hint = fault.PathInvalid, "a link on the way leaves the working directory", "remove the link"
	case unix.ENXIO, unix.EINVAL:
		why = "it is no ordinary file"
	case unix.EROFS, unix.EACCES, unix.EPERM:
		hint = "files are written with the program's rights: the policy must let it write there"
	case unix.EFBIG:
		hint = "limits.file of the policy says how large a file may be"
	}
	return fault.New(code, hint, "put %s: %s", step.Detail, why)
}
