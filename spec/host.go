package spec

import "github.com/sandboxrun/sandboxrun/rootfs"

// Host is what Resolve knows of the machine and of the caller: plain data, so that tests can make machines up.
type Host struct {
	UID, GID int
	User     string // the caller's name, never empty
	Group    string // its group's name, never empty
	Root     bool   // the launcher may map any user
	// Program is an id that owns nothing, as user and as group: the program's, where the launcher is the machine's root.
	// 0: there is none, and the program has the caller's.
	Program int
	// NotApart says why the machine's root cannot give the program such an id, where it cannot.
	NotApart string
	// Idmap says why a host path cannot be shown with the caller's id as the program's; nil: it can, less some of what is mounted
	// below. It is asked only where there is a Program.
	Idmap     func(path string) ([]LeftOut, error)
	Setgroups bool   // and drop supplementary groups
	Arch      string // GOARCH
	Kernel    Kernel
	Tree      rootfs.Tree
	Resolv    string   // content of /etc/resolv.conf; empty if there is none
	ProcFiles []string // which of HiddenProc and ReadonlyProc this kernel has
	Cgroups   Cgroups
	Nproc     bool   // RLIMIT_NPROC counts what is in a user namespace of the sandbox's, and holds for the program
	CPUs      int    // on how many processors the caller can run
	Nofile    uint64 // how many open files the caller may allow a process
	Core      Core

	Self    string            // this program's file; empty where it cannot be found
	Env     map[string]string // the caller's variables
	ExecEnv map[string]string // those that the one program of a run gets besides
	Ground  Ground            // what the check of grants asks; nil: it is left out, as in tests of anything else
	Sockets []string          // files of the host's Unix sockets, with every link resolved
}

// LeftOut is a mount below a grant that cannot be shown with it.
type LeftOut struct {
	Path string // on the host
	Dir  bool   // a directory is there, and not a file
	Why  string // ready to print
}

// Core is what becomes of a process that crashes.
type Core struct {
	Pattern string // kernel.core_pattern where it names a handler, "|PROGRAM" or "@SOCKET"; else empty
	Fixed   bool   // the hard limit of core files is 0, and the caller cannot raise it
}

// Kernel is a kernel's version.
type Kernel struct{ Major, Minor int }

// HiddenProc are the files and directories of /proc that tell about the machine or steer it and that no program needs.
// The first are Docker's; the page and memory tables are readable by root alone, and so by root's programs here.
func HiddenProc() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/proc/kallsyms", "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags",
		"/proc/key-users", "/proc/slabinfo", "/proc/vmallocinfo",
	}
}

// HiddenProcDir says which of HiddenProc are directories.
func HiddenProcDir(p string) bool {
	return p == "/proc/acpi" || p == "/proc/asound" || p == "/proc/scsi"
}

// ReadonlyProc are those that a program may read but not write. Their modes let uid 0 write even without a capability,
// and a root launcher's programs are uid 0 to the kernel.
func ReadonlyProc() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
