package diagnose

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Hints for what there is too little of.
const (
	FilesHint     = "it must be allowed to open more files: ulimit -n 1024"
	fileSizeHint  = "it must be allowed to write larger files, 64 MiB at least: ulimit -f unlimited"
	ProcessesHint = "more processes must be allowed: ulimit -u, or pids.max of the control group"
)

// Scarce is a hint where an error says that there is too little of something for the launcher itself, else empty.
// Whatever else could be said of what it was about to do leads astray.
func Scarce(err error) (hint string) {
	switch {
	case errors.Is(err, unix.EMFILE):
		return FilesHint
	case errors.Is(err, unix.ENFILE):
		return "the machine has too many files open: sysctl fs.file-nr"
	case errors.Is(err, unix.EFBIG) || err != nil && strings.HasSuffix(err.Error(), unix.EFBIG.Error()): // libcontainer has words alone
		return fileSizeHint
	case RefusedProcess(err):
		return ProcessesHint
	}
	return ""
}

// RefusedProcess reports whether what failed is to start a process or thread. To other calls EAGAIN means something else.
func RefusedProcess(err error) bool {
	var step *forkexec.StepError
	var path *os.PathError
	return errors.Is(err, unix.EAGAIN) && (errors.As(err, &step) || errors.As(err, &path) && path.Op == "fork/exec")
}

// NoProcesses is an error where no more processes can be started by now, else nil. A process that has failed for that may not have
// been able to say so.
func NoProcesses(doing string, err error) *fault.Error {
	n := forkexec.ProbeRoom()
	if n >= forkexec.MakingTakes {
		return nil
	}
	return fault.New(fault.LimitReached, ProcessesHint, "%s: only %d more processes can be started: %w", doing, n, err)
}
