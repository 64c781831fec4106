package container

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/setgroup"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// filters are a plan's, compiled.
type filters struct {
	own    []unix.SockFilter
	asking []byte // the same, but it asks for modes; see package setgroup
}

// compileFilters begins to compile while the kernel makes the namespaces. The function that it returns waits for the end of that.
func compileFilters(plan *spec.Plan) func() (filters, error) {
	compile := sync.OnceValues(func() (f filters, err error) {
		if f.own, err = forkexec.CompileSeccomp(plan.Filter, runtime.GOARCH); err != nil || !plan.SetGroup {
			return f, err
		}
		asking, err := setgroup.Filter(plan.Filter, runtime.GOARCH)
		f.asking = forkexec.EncodeFilter(asking)
		return f, err
	})
	go compile() //nolint:errcheck // the exec that waits for it gets the error
	return compile
}
