package spec

import (
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Host describes the machine and the caller. It is plain data, so tests can make up machines.
type Host struct {
	UID, GID int
	User     string // the caller's name, never empty
	Group    string // its group's name, never empty
	Root     bool   // the launcher may map any user
	// Program is a user and group id that owns no file. Programs have it if the launcher is the machine's root. 0: there is none,
	// and the program has the caller's id.
	Program int
	// NotApart is why the machine's root cannot give the program such an id; empty: it can.
	NotApart string
	// Idmap returns why the mount at a host path cannot be idmapped; nil: it can, with the mounts below it, less those that it lists.
	// It is called only if there is a Program.
	Idmap func(path string) ([]LeftOut, error)
	// Overlays says of directories why no overlay can hide names in them; empty: one can. It is called only for hidden modules.
	Overlays  func(dirs []string) []string
	Setgroups bool   // the launcher may drop supplementary groups
	Arch      string // GOARCH
	Kernel    Kernel
	Tree      hostfs.Tree
	Resolv    string   // content of /etc/resolv.conf; empty if there is none
	ProcFiles []string // those of HiddenProc and ReadonlyProc that this kernel has
	Cgroups   Cgroups
	Nproc     bool   // RLIMIT_NPROC counts the processes of a user namespace of the sandbox, and limits the program
	Landlock  int    // version of Landlock; 0: the kernel has none
	CPUs      int    // number of processors that the caller can run on
	Nofile    uint64 // maximum of open files that the caller may give a process
	Core      Core

	Self    string            // path of this binary; empty if unknown
	Env     map[string]string // the caller's variables
	ExecEnv map[string]string // additional variables for the program of a run
	Ground  Ground            // for the check of grants; nil: no check, in tests of other things
	Sockets []string          // paths of the host's Unix sockets, with every symlink resolved
}

// Cgroups are the cgroups that a sandbox can have on this machine. The launcher finds out by making one.
type Cgroups struct {
	Kind        string            // ByCgroup2, BySystemd, ByCgroup1, or "" for none
	Parents     map[string]string // controller -> the directory in which the sandbox's cgroup is made; none for systemd
	Controllers []string          // the working ones of "memory", "pids", "cpu" and "cpuacct"
	Reason      string            // why there is no cgroup, or no better kind: one line for the user
}

// LeftOut is a mount below a grant that the sandbox cannot show with the grant.
type LeftOut struct {
	Path string // on the host
	Dir  bool   // it is mounted on a directory, and not on a file
	Why  string // ready to print
}

// Core describes how the machine handles a crash.
type Core struct {
	Pattern string // kernel.core_pattern if it names a handler, "|PROGRAM" or "@SOCKET"; else empty
	Fixed   bool   // the hard limit of core files is 0, and the caller cannot raise it
}

// Kernel is a kernel's version.
type Kernel struct{ Major, Minor int }

// HiddenProc are the files and directories of /proc that describe or configure the machine and that no program needs. The first
// are those of Docker. Only root can read the page and memory tables, so only root's programs could.
func HiddenProc() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/proc/kallsyms", "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags",
		"/proc/key-users", "/proc/slabinfo", "/proc/vmallocinfo",
	}
}

// HiddenProcDir are the directories among HiddenProc.
func HiddenProcDir(p string) bool {
	return p == "/proc/acpi" || p == "/proc/asound" || p == "/proc/scsi"
}

// ReadonlyProc are those that a program may read but not write. Their modes let uid 0 write even without a capability, and a
// root launcher's programs can be uid 0 to the kernel.
func ReadonlyProc() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
