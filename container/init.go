// Package container acts: it turns a spec.Plan into a running sandbox and runs programs in it. It is the only importer
// of libcontainer.
package container

import (
	"os"
	"runtime/debug"

	_ "github.com/opencontainers/cgroups/devices" // libcontainer needs it to have been imported
	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins namespaces before the Go runtime starts
	"golang.org/x/sys/unix"
)

// init answers libcontainer, which starts this very binary again, as "init", to build a sandbox from within. It has to
// be here: nothing of ours may run before in that process. The environment tells it from a user who types "init".
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) > 1 && os.Args[1] == "init" && os.Getenv("_LIBCONTAINER_INITPIPE") != "" { //nolint:forbidigo // libcontainer's own variable
		debug.SetGCPercent(-1) // it lives for some milliseconds
		// A creator that is killed must not leave this behind, waiting for ever for somebody to open its FIFO. The stub
		// takes it back (stub.c), and the creator waits for that.
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
		libcontainer.Init()
	}
}
