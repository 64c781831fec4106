package forkexec

// otherCalls returns the names of system calls that exist on some architecture of Linux, but not on both of ours. A rule
// for one of them is without effect where it does not exist; a name that is in no table is a mistake.
func otherCalls() []string {
	return []string{
		"_llseek", "_newselect", "_sysctl", "access", "afs_syscall", "alarm", "arch_prctl", "arm_fadvise64_64",
		"arm_sync_file_range", "bdflush", "break", "breakpoint", "cachectl", "cacheflush", "chmod", "chown",
		"chown32", "clock_adjtime64", "clock_getres_time64", "clock_gettime64", "clock_nanosleep_time64",
		"clock_settime64", "creat", "create_module", "dup2", "epoll_create", "epoll_ctl_old", "epoll_wait",
		"epoll_wait_old", "eventfd", "execv", "fadvise64_64", "fchown32", "fcntl64", "fork", "fstat64",
		"fstatat64", "fstatfs64", "ftime", "ftruncate64", "futex_time64", "futimesat", "get_kernel_syms",
		"get_thread_area", "getdents", "getdomainname", "getegid32", "geteuid32", "getgid32", "getgroups32",
		"getpagesize", "getpgrp", "getpmsg", "getresgid32", "getresuid32", "getuid32", "gtty", "idle",
		"inotify_init", "io_pgetevents_time64", "ioperm", "iopl", "ipc", "kern_features", "lchown", "lchown32",
		"link", "lock", "lstat", "lstat64", "memory_ordering", "mkdir", "mknod", "mmap2", "modify_ldt", "mpx",
		"mq_timedreceive_time64", "mq_timedsend_time64", "multiplexer", "nice", "oldfstat", "oldlstat",
		"oldolduname", "oldstat", "olduname", "open", "pause", "pciconfig_iobase", "pciconfig_read",
		"pciconfig_write", "perfctr", "pipe", "poll", "ppoll_time64", "prof", "profil", "pselect6_time64",
		"putpmsg", "query_module", "readdir", "readlink", "recv", "recvmmsg_time64", "rename",
		"riscv_flush_icache", "riscv_hwprobe", "rmdir", "rt_sigtimedwait_time64", "rtas", "s390_guarded_storage",
		"s390_pci_mmio_read", "s390_pci_mmio_write", "s390_runtime_instr", "s390_sthyi", "sched_get_affinity",
		"sched_rr_get_interval_time64", "sched_set_affinity", "security", "select", "semtimedop_time64", "send",
		"sendfile64", "set_thread_area", "set_tls", "setfsgid32", "setfsuid32", "setgid32", "setgroups32",
		"setregid32", "setresgid32", "setresuid32", "setreuid32", "setuid32", "sgetmask", "sigaction", "signal",
		"signalfd", "sigpending", "sigprocmask", "sigreturn", "sigsuspend", "socketcall", "spu_create", "spu_run",
		"ssetmask", "stat", "stat64", "statfs64", "stime", "stty", "subpage_prot", "swapcontext", "switch_endian",
		"symlink", "sync_file_range2", "sys_debug_setcontext", "syscall", "syscall_mask", "sysfs", "sysmips",
		"time", "timer_gettime64", "timer_settime64", "timerfd", "timerfd_gettime64", "timerfd_settime64",
		"truncate64", "tuxcall", "ugetrlimit", "ulimit", "umount", "unlink", "unused109", "unused150", "unused18",
		"unused28", "unused59", "unused84", "uprobe", "uretprobe", "uselib", "ustat", "utime", "utimensat_time64",
		"utimes", "utrap_install", "vfork", "vm86", "vm86old", "vserver", "waitpid",
	}
}
