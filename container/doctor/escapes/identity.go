package escapes

// identityAttacks are what the owner of the host's files could do to them through any mount, without a capability.
func identityAttacks() []Attack {
	return []Attack{
		{Name: "change the mode of a device", RootOnly: true, Fails: "EPERM EROFS", Program: `
for p in "/dev/null", "/dev/zero", "/dev/urandom":
    attempt(lambda: (os.chmod(p, os.stat(p).st_mode & 0o777), broke(p)))
    attempt(lambda: (os.fchmod(os.open(p, os.O_RDONLY | os.O_NOCTTY), os.stat(p).st_mode & 0o777), broke(p)))`},
		{Name: "change the mode of a file of the kernel", RootOnly: true, Fails: "EPERM", Leans: "program id", Program: `
for p in "/proc/version", "/proc/meminfo", "/proc/uptime": attempt(lambda: (os.chmod(p, os.stat(p).st_mode & 0o777), broke(p)))`},
		{Name: "change the times of what it does not own", RootOnly: true, Fails: "EPERM EROFS", Leans: "program id", Program: `
for p in "/proc/version", "/dev/null", "/usr/bin/env", "/etc/passwd":
    attempt(lambda: (os.utime(p, ns=(os.stat(p).st_atime_ns, os.stat(p).st_mtime_ns)), broke(p)))`},
		{Name: "read what only root may", RootOnly: true, Fails: "EACCES ENOENT", Leans: "program id", Program: `
for p in "/proc/pagetypeinfo", "/proc/sys/fs/protected_hardlinks", "/proc/sys/net/core/bpf_jit_harden": attempt(contents, p)`},
	}
}
