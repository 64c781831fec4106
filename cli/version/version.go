// Package version knows which version this binary is. It imports nothing of ours.
package version

import (
	"runtime"
	"runtime/debug"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Version is the version of this binary. The build sets it.
var Version = "0.1.0-dev" //nolint:gochecknoglobals // set by the linker

// Facts are the versions of this binary and its libraries.
func Facts() map[string]string {
	facts := map[string]string{
		"version": Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "oci": specs.Version,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/opencontainers/runc" {
				facts["libcontainer"] = d.Version
			}
		}
	}
	return facts
}
