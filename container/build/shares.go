package build

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// userShare is how much one sandbox can have of what the kernel counts for each user: a part of what the caller may have, and
// never more than any program wants. The sandbox's own user namespace holds it, for all of its execs together. What the
// kernel counts as rlimits is in forkexec.c; security.md says what it counts without such a limit.
type userShare struct {
	sysctl string // below /proc/sys/user
	most   int64
}

func userShares() []userShare {
	return []userShare{{"max_inotify_instances", 1024}, {"max_inotify_watches", 1 << 18}, {"max_fanotify_groups", 32}, {"max_fanotify_marks", 1 << 13}}
}

// namespaceShares are for programs that may make namespaces. The execs of a sandbox have some too.
func namespaceShares() []userShare {
	const most, networks = 1024, 256 // the kernel takes network namespaces away one after the other, for the whole machine
	list := []userShare{{"max_net_namespaces", networks}}
	for _, kind := range []string{"user", "pid", "mnt", "ipc", "uts", "cgroup"} {
		list = append(list, userShare{"max_" + kind + "_namespaces", most})
	}
	return list
}

const sharePart = 4 // one sandbox in ... can take all

// shareOps limit them in the sandbox. What a kernel does not limit by user namespace it has no setting for.
func shareOps(plan *spec.Plan) []forkexec.Op {
	var ops []forkexec.Op
	shares := userShares()
	if plan.Exec.Userns {
		shares = append(shares, namespaceShares()...)
	}
	for _, s := range shares {
		path := filepath.Join("/proc/sys/user", s.sysctl)
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if n, ok := procfs.NumberAfter(string(data), ""); ok {
			ops = append(ops, forkexec.Op{Kind: forkexec.OpSysctl, Target: path, Data: strconv.FormatInt(min(n/sharePart, s.most), 10)})
		}
	}
	return ops
}
