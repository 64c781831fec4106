// Package container acts: it turns a spec.Plan into a running sandbox and runs programs in it. It is the only importer
// of libcontainer.
package container

import (
	_ "github.com/opencontainers/cgroups/devices"           // libcontainer needs it to have been imported
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins namespaces before the Go runtime starts; forkexec/init.c does the rest
)
