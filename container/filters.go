package container

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/chmod"
	"github.com/sandboxrun/sandboxrun/spec"
)

// compileFilter begins to compile a plan's filter while the kernel makes the namespaces. The function that it returns waits for the end
// of that.
func compileFilter(plan *spec.Plan) func() ([]unix.SockFilter, error) {
	compile := sync.OnceValues(func() ([]unix.SockFilter, error) { return chmod.Filter(plan.Filter, runtime.GOARCH) })
	go compile() //nolint:errcheck // the exec that waits for it gets the error
	return compile
}
