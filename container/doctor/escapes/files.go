package escapes

// fileAttacks want a file that the policy does not grant, or more of one than it does.
func fileAttacks() []Attack { //nolint:funlen // a table
	return []Attack{
		{Name: "read a file that is not granted", Args: []string{"$SECRET"}, Fails: "ENOENT", Program: `contents(sys.argv[1])`},
		{
			Name: "read it through links of /proc", Args: []string{"$SECRET"}, Fails: "EACCES ENOENT", Program: `
for base in ("/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../../..", "/proc/thread-self/root", "/proc/2/root"):
    attempt(contents, base + sys.argv[1])`,
		},
		{Name: "climb above the root", Args: []string{"$SECRET"}, Fails: "ENOENT", Program: `contents("/.." * 40 + sys.argv[1])`},
		{
			Name: "climb by a handle of the root", Args: []string{"$SECRET"}, Fails: "ENOENT", Program: `
top = os.open("/", os.O_PATH)
os.read(os.open("../" * 40 + sys.argv[1], os.O_RDONLY, dir_fd=top), 9) and broke()`,
		},
		{
			Name: "open it by openat2", Args: []string{"$SECRET"}, Fails: "ENOSYS ENOENT",
			Program: `call("openat2", HERE, sys.argv[1].encode(), struct.pack("QQQ", 0, 0, 0), 24); broke()`,
		},
		{
			Name: "open a file by its handle", Args: []string{"$READONLY"}, RootOnly: true, Fails: "EPERM",
			Program: `
handle, mnt = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136), ctypes.create_string_buffer(4)
call("name_to_handle_at", HERE, sys.argv[1].encode(), handle, mnt, 0)
at = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
call("open_by_handle_at", at, handle, os.O_RDONLY); broke()`,
		},
		{Name: "find keys, logs, mail or the host's identity beside its programs' data", Fails: "ENOENT EACCES", Program: `
for p in ("/etc/machine-id", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers", "/etc/apt", "/etc/systemd", "/etc/pam.d", "/var/log", "/var/mail", "/var/spool",
          "/var/backups", "/var/lib/dbus", "/var/lib/systemd", "/var/lib/apt", "/var/lib/dpkg/lock", "/var/lib/private"):
    attempt(lambda: (os.stat(p), broke(p)))
for top in "/etc", "/var":
    for d, _, files in os.walk(top):
        for p in (os.path.join(d, f) for f in files if not os.path.islink(os.path.join(d, f))):
            attempt(lambda: os.stat(p).st_mode & 4 or open(p, "rb").read(1) and broke(p))
            f = os.path.basename(p)
            (f.endswith((".key", ".keytab", ".p12", "id_rsa")) or f in ("machine-id", ".netrc")) and broke(p)`},
		{Name: "list the directory that holds it", Args: []string{"$SECRET"}, Fails: "ENOENT", Program: `"secret" in os.listdir(os.path.dirname(sys.argv[1])) and broke()`},
		{Name: "follow a link that leads out", Args: []string{"$WORK/out"}, Fails: "ENOENT", Program: `contents(sys.argv[1])`},
		{Name: "watch it", Args: []string{"$SECRET"}, Fails: "ENOENT", Program: `
fd = call("inotify_init1", 0); call("inotify_add_watch", fd, sys.argv[1].encode(), 0x2); broke()`},
		{Name: "watch a file system", Fails: "EPERM", Leans: "filter", Program: `call("fanotify_init", 0x200, 0); broke()`},
		{Name: "see the state of sandboxes", Args: []string{"$STATE"}, Fails: "ENOENT", Program: `os.listdir(sys.argv[1]); broke()`},
		{Name: "read another user's file", RootOnly: true, Args: []string{"$WORK/closed"}, Fails: "EACCES", Program: `contents(sys.argv[1])`},
		{
			Name: "write a read-only grant", Args: []string{"$READONLY"}, Fails: "EROFS", Leans: "read-only", Program: `
f = sys.argv[1]
for way in (lambda: open(f, "a").write(""), lambda: os.utime(f), lambda: os.truncate(f, os.stat(f).st_size), lambda: os.chmod(f, 0o644),
            lambda: os.rename(f, f + ".x") or os.rename(f + ".x", f), lambda: os.link(f, f + ".y") or os.unlink(f + ".y"),
            lambda: os.setxattr(f, "user.x", b"y"), lambda: os.mkdir(f + ".d") or os.rmdir(f + ".d")):
    attempt(lambda: (way(), broke()))`,
		},
		{
			Name: "write it through its descriptor", Args: []string{"$READONLY"}, Fails: "EROFS", Leans: "read-only",
			Program: `fd = os.open(sys.argv[1], os.O_RDONLY); os.open("/proc/self/fd/%d" % fd, os.O_RDWR); broke()`,
		},
		{
			Name: "write it through a handle without rights", Args: []string{"$READONLY"}, Fails: "EROFS", Leans: "read-only",
			Program: `fd = os.open(sys.argv[1], os.O_PATH); os.open("/proc/self/fd/%d" % fd, os.O_WRONLY); broke()`,
		},
		{
			Name: "move a file into reach", Args: []string{"$READONLY", "$WORK"}, Fails: "EXDEV", Program: `
to = sys.argv[2] + "/moved"
attempt(lambda: (os.rename(sys.argv[1], to), broke(), os.rename(to, sys.argv[1])))
attempt(lambda: (os.link(sys.argv[1], to), broke(), os.unlink(to)))`,
		},
		{Name: "write the sandbox's root", RootOnly: true, Fails: "EROFS", Leans: "program id and read-only", Program: `
for d in ("/", "/usr", "/etc"): attempt(lambda: (os.mkdir(d + "/sandboxrun-test"), broke(d), os.rmdir(d + "/sandboxrun-test")))`},
		{Name: "read what is denied", Args: []string{"$DENIED"}, Fails: "EACCES", Leans: "mask", Program: `contents(sys.argv[1])`},
		{
			Name: "read it under every other name", Args: []string{"$DENIED"}, Fails: "EACCES", Leans: "mask", Program: `
d, n = os.path.split(sys.argv[1])
os.chdir(d)
for p in (n, "./" + n, "/proc/self/cwd/" + n, "../" + os.path.basename(d) + "/" + n, "/proc/self/root" + sys.argv[1]): attempt(contents, p)
attempt(lambda: contents("/proc/self/fd/%d" % os.open(n, os.O_PATH)))
attempt(lambda: contents("/proc/self/fd/%d/%s" % (os.open(".", os.O_PATH), n)))`,
		},
		{Name: "read a hard link to what is denied", Args: []string{"$WORK/linked"}, Fails: "EACCES", Leans: "mask", Program: `contents(sys.argv[1])`},
		{
			Name: "make a hard link to what is denied", Args: []string{"$DENIED"}, Fails: "EXDEV EPERM", Leans: "mask",
			Program: `to = sys.argv[1] + ".hard"; os.link(sys.argv[1], to); contents(to); os.unlink(to)`,
		},
		{
			Name: "move what is denied", Args: []string{"$DENIED"}, Fails: "EBUSY", Leans: "mask", Program: `
to = sys.argv[1] + ".moved"; os.rename(sys.argv[1], to); contents(to); os.rename(to, sys.argv[1])`,
		},
		{
			Name: "exchange it for another file", Args: []string{"$DENIED"}, Fails: "EBUSY", Leans: "mask", Program: `
other = sys.argv[1] + ".other"; open(other, "w").write("x")
swap = lambda: call("renameat2", HERE, sys.argv[1].encode(), HERE, other.encode(), 2)
try: swap(); contents(other); swap()
finally: os.unlink(other)`,
		},
		{
			Name: "move the directory above it", Args: []string{"$DENIED"}, Fails: "EBUSY", Program: `
d, n = os.path.split(sys.argv[1]); to = d + ".moved"
os.rename(d, to); broke(); os.rename(to, d)`,
		},
		{Name: "remove what is denied", Args: []string{"$DENIED"}, Fails: "EBUSY EXDEV", Leans: "mask", Program: `
keep = sys.argv[1] + ".keep"
attempt(os.link, sys.argv[1], keep); os.unlink(sys.argv[1]); broke(); os.rename(keep, sys.argv[1])`},
		{
			Name: "change its mode", Args: []string{"$DENIED"}, Fails: "EROFS", Leans: "mask", Program: `
os.chmod(sys.argv[1], 0o644); contents(sys.argv[1])`,
		},
		{Name: "list a denied directory", Args: []string{"$WORK/hidden"}, Fails: "EACCES", Leans: "mask", Program: `"f" in os.listdir(sys.argv[1]) and broke()`},
		{Name: "read a file in it", Args: []string{"$WORK/hidden/f"}, Fails: "EACCES ENOENT", Leans: "mask", Program: `contents(sys.argv[1])`},
		{
			Name: "win a race of links to it", Args: []string{"$DENIED", "$WORK"}, Fails: "EACCES", Leans: "mask", Program: `
d, n = os.path.split(sys.argv[1])
other, l, done = sys.argv[2] + "/other", sys.argv[2] + "/flip", time.time() + 0.2
os.mkdir(other); open(other + "/" + n, "w").write("x"); os.symlink(d, l)
def flip():
    while time.time() < done:
        for to in other, d: os.symlink(to, l + ".new"); os.rename(l + ".new", l)
t = threading.Thread(target=flip); t.start()
while time.time() < done: attempt(contents, l + "/" + n)
t.join(); os.unlink(l); os.unlink(other + "/" + n); os.rmdir(other)`,
		},
		{
			Name: "win a race of renames to it", Args: []string{"$DENIED", "$WORK"}, Fails: "EACCES EBUSY ENOENT", Leans: "mask", Program: `
d, n = os.path.split(sys.argv[1])
a, b, done = d, sys.argv[2] + "/swapped", time.time() + 0.2
os.mkdir(b)
def swap(): call("renameat2", HERE, a.encode(), HERE, b.encode(), 2)
def flip():
    while time.time() < done: attempt(lambda: (swap(), swap()))
t = threading.Thread(target=flip); t.start()
while time.time() < done: attempt(contents, d + "/" + n); attempt(contents, b + "/" + n)
t.join(); os.rmdir(b)`,
		},
		{Name: "leave a setuid file", Args: []string{"$WORK"}, Fails: "none", Leans: "filter", Program: `
p = sys.argv[1] + "/setuid-left"; open(p, "w").close()
for mode in 0o4755, 0o2755: attempt(lambda: (os.chmod(p, mode), os.stat(p).st_mode & 0o6000 and broke(oct(mode))))
os.unlink(p)`},
		{Name: "make a setuid file as it is created", Args: []string{"$WORK"}, Fails: "EPERM", Leans: "filter", Program: `
p = sys.argv[1] + "/setuid-made"; os.umask(0)
fd = os.open(p, os.O_CREAT | os.O_WRONLY, 0o4755); os.fstat(fd).st_mode & 0o4000 and broke(); os.unlink(p)`},
		{Name: "make a setuid program in memory", Fails: "none", Leans: "filter", Program: `
fd = os.memfd_create("x"); os.write(fd, open("/usr/bin/id", "rb").read())
for mode in 0o4755, 0o2755: os.fchmod(fd, mode); os.fstat(fd).st_mode & 0o6000 and broke(oct(mode))`},
		{
			Name: "leave a file with capabilities", Args: []string{"$WORK"}, Privileged: true, Fails: "EPERM", Program: `
p = sys.argv[1] + "/capable"; open(p, "w").close()
try: os.setxattr(p, "security.capability", struct.pack("<IIIII", 0x02000001, 1, 0, 0, 0)); broke()
finally: os.unlink(p)`,
		},
		{Name: "give a file away", RootOnly: true, Args: []string{"$WORK"}, Fails: "EINVAL EPERM", Program: `
p = sys.argv[1] + "/given"; open(p, "w").close()
try: os.chown(p, 4242, 4242); broke()
finally: os.unlink(p)`},
		{Name: "make a device", RootOnly: true, Args: []string{"$WORK"}, Fails: "EPERM", Program: `
for kind in stat.S_IFCHR, stat.S_IFBLK: attempt(lambda: (os.mknod(sys.argv[1] + "/made", 0o600 | kind, os.makedev(1, 3)), broke(), os.unlink(sys.argv[1] + "/made")))`},
		{Name: "use a device that lies there", RootOnly: true, Args: []string{"$WORK/zero"}, Fails: "EACCES", Program: `os.read(os.open(sys.argv[1], os.O_RDONLY), 1) and broke()`},
		{Name: "open a disk", RootOnly: true, Fails: "", Program: `
for d, _, files in os.walk("/dev"):
    for p in (os.path.join(d, f) for f in files):
        attempt(lambda: stat.S_ISBLK(os.stat(p).st_mode) and (os.open(p, os.O_RDONLY | os.O_NONBLOCK), broke(p)))`},
		{Name: "open the memory of the machine", RootOnly: true, Fails: "ENOENT", Program: `
for p in "/dev/mem", "/dev/port", "/dev/kmsg", "/dev/vcs", "/dev/fuse", "/dev/kvm": attempt(lambda: (os.open(p, os.O_RDWR | os.O_NONBLOCK), broke(p)))`},
	}
}
