package integration

// identityAttacks are what the owner of the host's files could do to them through any mount, without a capability.
var identityAttacks = []attack{
	{name: "change the mode of a device", rootOnly: true, fails: "EPERM EROFS", program: `
for p in "/dev/null", "/dev/zero", "/dev/urandom":
    attempt(lambda: (os.chmod(p, os.stat(p).st_mode & 0o777), broke(p)))
    attempt(lambda: (os.fchmod(os.open(p, os.O_RDONLY | os.O_NOCTTY), os.stat(p).st_mode & 0o777), broke(p)))`},
	{name: "change the mode of a file of the kernel", rootOnly: true, fails: "EPERM", leans: "program id", program: `
for p in "/proc/version", "/proc/meminfo", "/proc/uptime": attempt(lambda: (os.chmod(p, os.stat(p).st_mode & 0o777), broke(p)))`},
	{name: "change the times of what it does not own", rootOnly: true, fails: "EPERM EROFS", leans: "program id", program: `
for p in "/proc/version", "/dev/null", "/usr/bin/env", "/etc/passwd":
    attempt(lambda: (os.utime(p, ns=(os.stat(p).st_atime_ns, os.stat(p).st_mtime_ns)), broke(p)))`},
	{name: "read what only root may", rootOnly: true, fails: "EACCES ENOENT", leans: "program id", program: `
for p in "/proc/pagetypeinfo", "/proc/sys/fs/protected_hardlinks", "/proc/sys/net/core/bpf_jit_harden": attempt(contents, p)`},
}
