package integration

// fileAttacks want a file that the policy does not grant, or more of one than it does.
var fileAttacks = []attack{
	{name: "read a file that is not granted", args: []string{"$SECRET"}, fails: "ENOENT", program: `contents(sys.argv[1])`},
	{
		name: "read it through links of /proc", args: []string{"$SECRET"}, fails: "EACCES ENOENT", program: `
for base in ("/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../../..", "/proc/thread-self/root", "/proc/2/root"):
    attempt(contents, base + sys.argv[1])`,
	},
	{name: "climb above the root", args: []string{"$SECRET"}, fails: "ENOENT", program: `contents("/.." * 40 + sys.argv[1])`},
	{
		name: "climb by a handle of the root", args: []string{"$SECRET"}, fails: "ENOENT", program: `
top = os.open("/", os.O_PATH)
os.read(os.open("../" * 40 + sys.argv[1], os.O_RDONLY, dir_fd=top), 9) and broke()`,
	},
	{
		name: "open it by openat2", args: []string{"$SECRET"}, fails: "ENOSYS ENOENT",
		program: `call("openat2", HERE, sys.argv[1].encode(), struct.pack("QQQ", 0, 0, 0), 24); broke()`,
	},
	{
		name: "open a file by its handle", args: []string{"$READONLY"}, rootOnly: true, fails: "EPERM",
		program: `
handle, mnt = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136), ctypes.create_string_buffer(4)
call("name_to_handle_at", HERE, sys.argv[1].encode(), handle, mnt, 0)
at = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
call("open_by_handle_at", at, handle, os.O_RDONLY); broke()`,
	},
	{name: "find keys, logs, mail or the host's identity beside its programs' data", fails: "ENOENT EACCES", program: `
for p in ("/etc/machine-id", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers", "/etc/apt", "/etc/systemd", "/etc/pam.d", "/var/log", "/var/mail", "/var/spool",
          "/var/backups", "/var/lib/dbus", "/var/lib/systemd", "/var/lib/apt", "/var/lib/dpkg/lock", "/var/lib/private"):
    attempt(lambda: (os.stat(p), broke(p)))
for top in "/etc", "/var":
    for d, _, files in os.walk(top):
        for p in (os.path.join(d, f) for f in files if not os.path.islink(os.path.join(d, f))):
            attempt(lambda: os.stat(p).st_mode & 4 or (contents(p), broke(p)))
            f = os.path.basename(p)
            (f.endswith((".key", ".keytab", ".p12", "id_rsa")) or f in ("machine-id", ".netrc")) and broke(p)`},
	{name: "list the directory that holds it", args: []string{"$SECRET"}, fails: "ENOENT", program: `"secret" in os.listdir(os.path.dirname(sys.argv[1])) and broke()`},
	{name: "follow a link that leads out", args: []string{"$WORK/out"}, fails: "ENOENT", program: `contents(sys.argv[1])`},
	{name: "watch it", args: []string{"$SECRET"}, fails: "ENOENT", program: `
fd = call("inotify_init1", 0); call("inotify_add_watch", fd, sys.argv[1].encode(), 0x2); broke()`},
	{name: "watch a file system", fails: "EPERM", leans: "filter", program: `call("fanotify_init", 0x200, 0); broke()`},
	{name: "see the state of sandboxes", args: []string{"$STATE"}, fails: "ENOENT", program: `os.listdir(sys.argv[1]); broke()`},
	{name: "read another user's file", rootOnly: true, args: []string{"$WORK/closed"}, fails: "EACCES", program: `contents(sys.argv[1])`},
	{
		name: "write a read-only grant", args: []string{"$READONLY"}, fails: "EROFS", leans: "read-only", program: `
f = sys.argv[1]
for way in (lambda: open(f, "a").write(""), lambda: os.utime(f), lambda: os.truncate(f, os.stat(f).st_size), lambda: os.chmod(f, 0o644),
            lambda: os.rename(f, f + ".x") or os.rename(f + ".x", f), lambda: os.link(f, f + ".y") or os.unlink(f + ".y"),
            lambda: os.setxattr(f, "user.x", b"y"), lambda: os.mkdir(f + ".d") or os.rmdir(f + ".d")):
    attempt(lambda: (way(), broke()))`,
	},
	{
		name: "write it through its descriptor", args: []string{"$READONLY"}, fails: "EROFS", leans: "read-only",
		program: `fd = os.open(sys.argv[1], os.O_RDONLY); os.open("/proc/self/fd/%d" % fd, os.O_RDWR); broke()`,
	},
	{
		name: "write it through a handle without rights", args: []string{"$READONLY"}, fails: "EROFS", leans: "read-only",
		program: `fd = os.open(sys.argv[1], os.O_PATH); os.open("/proc/self/fd/%d" % fd, os.O_WRONLY); broke()`,
	},
	{
		name: "move a file into reach", args: []string{"$READONLY", "$WORK"}, fails: "EXDEV", program: `
to = sys.argv[2] + "/moved"
attempt(lambda: (os.rename(sys.argv[1], to), broke(), os.rename(to, sys.argv[1])))
attempt(lambda: (os.link(sys.argv[1], to), broke(), os.unlink(to)))`,
	},
	{name: "write the sandbox's root", rootOnly: true, fails: "EROFS", leans: "program id and read-only", program: `
for d in ("/", "/usr", "/etc"): attempt(lambda: (os.mkdir(d + "/sandboxrun-test"), broke(d), os.rmdir(d + "/sandboxrun-test")))`},
	{name: "read what is denied", args: []string{"$DENIED"}, fails: "EACCES", leans: "mask", program: `contents(sys.argv[1])`},
	{
		name: "read it under every other name", args: []string{"$DENIED"}, fails: "EACCES", leans: "mask", program: `
d, n = os.path.split(sys.argv[1])
os.chdir(d)
for p in (n, "./" + n, "/proc/self/cwd/" + n, "../" + os.path.basename(d) + "/" + n, "/proc/self/root" + sys.argv[1]): attempt(contents, p)
attempt(lambda: contents("/proc/self/fd/%d" % os.open(n, os.O_PATH)))
attempt(lambda: contents("/proc/self/fd/%d/%s" % (os.open(".", os.O_PATH), n)))`,
	},
	{name: "read a hard link to what is denied", args: []string{"$WORK/linked"}, fails: "EACCES", leans: "mask", program: `contents(sys.argv[1])`},
	{
		name: "make a hard link to what is denied", args: []string{"$DENIED"}, fails: "EXDEV EPERM", leans: "mask",
		program: `to = sys.argv[1] + ".hard"; os.link(sys.argv[1], to); contents(to); os.unlink(to)`,
	},
	{
		name: "move what is denied", args: []string{"$DENIED"}, fails: "EBUSY", leans: "mask", program: `
to = sys.argv[1] + ".moved"; os.rename(sys.argv[1], to); contents(to); os.rename(to, sys.argv[1])`,
	},
	{
		name: "exchange it for another file", args: []string{"$DENIED"}, fails: "EBUSY", leans: "mask", program: `
other = sys.argv[1] + ".other"; open(other, "w").write("x")
swap = lambda: call("renameat2", HERE, sys.argv[1].encode(), HERE, other.encode(), 2)
try: swap(); contents(other); swap()
finally: os.unlink(other)`,
	},
	{
		name: "move the directory above it", args: []string{"$DENIED"}, fails: "EBUSY", program: `
d, n = os.path.split(sys.argv[1]); to = d + ".moved"
os.rename(d, to); broke(); os.rename(to, d)`,
	},
	{name: "remove what is denied", args: []string{"$DENIED"}, fails: "EBUSY EXDEV", leans: "mask", program: `
keep = sys.argv[1] + ".keep"
attempt(os.link, sys.argv[1], keep); os.unlink(sys.argv[1]); broke(); os.rename(keep, sys.argv[1])`},
	{
		name: "change its mode", args: []string{"$DENIED"}, fails: "EROFS", leans: "mask", program: `
os.chmod(sys.argv[1], 0o644); contents(sys.argv[1])`,
	},
	{name: "list a denied directory", args: []string{"$WORK/hidden"}, fails: "EACCES", leans: "mask", program: `"f" in os.listdir(sys.argv[1]) and broke()`},
	{name: "read a file in it", args: []string{"$WORK/hidden/f"}, fails: "EACCES ENOENT", leans: "mask", program: `contents(sys.argv[1])`},
	{
		name: "win a race of links to it", args: []string{"$DENIED", "$WORK"}, fails: "EACCES", leans: "mask", program: `
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
		name: "win a race of renames to it", args: []string{"$DENIED", "$WORK"}, fails: "EACCES EBUSY ENOENT", leans: "mask", program: `
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
	{name: "leave a setuid file", args: []string{"$WORK"}, fails: "EPERM", leans: "filter", program: `
p = sys.argv[1] + "/setuid-left"; open(p, "w").close()
for mode in 0o4755, 0o2755: attempt(lambda: (os.chmod(p, mode), os.stat(p).st_mode & 0o6000 and broke(oct(mode))))
os.unlink(p)`},
	{name: "make a setuid file as it is created", args: []string{"$WORK"}, fails: "EPERM", leans: "filter", program: `
p = sys.argv[1] + "/setuid-made"; os.umask(0)
fd = os.open(p, os.O_CREAT | os.O_WRONLY, 0o4755); os.fstat(fd).st_mode & 0o4000 and broke(); os.unlink(p)`},
	{name: "make a setuid program in memory", fails: "EPERM", leans: "filter", program: `
fd = os.memfd_create("x"); os.write(fd, open("/usr/bin/id", "rb").read()); os.fchmod(fd, 0o4755); broke()`},
	{
		name: "leave a file with capabilities", args: []string{"$WORK"}, privileged: true, fails: "EPERM", program: `
p = sys.argv[1] + "/capable"; open(p, "w").close()
try: os.setxattr(p, "security.capability", struct.pack("<IIIII", 0x02000001, 1, 0, 0, 0)); broke()
finally: os.unlink(p)`,
	},
	{name: "give a file away", rootOnly: true, args: []string{"$WORK"}, fails: "EINVAL EPERM", program: `
p = sys.argv[1] + "/given"; open(p, "w").close()
try: os.chown(p, 4242, 4242); broke()
finally: os.unlink(p)`},
	{name: "make a device", rootOnly: true, args: []string{"$WORK"}, fails: "EPERM", program: `
for kind in stat.S_IFCHR, stat.S_IFBLK: attempt(lambda: (os.mknod(sys.argv[1] + "/made", 0o600 | kind, os.makedev(1, 3)), broke(), os.unlink(sys.argv[1] + "/made")))`},
	{name: "use a device that lies there", rootOnly: true, args: []string{"$WORK/zero"}, fails: "EACCES", program: `os.read(os.open(sys.argv[1], os.O_RDONLY), 1) and broke()`},
	{name: "open a disk", rootOnly: true, fails: "", program: `
for d, _, files in os.walk("/dev"):
    for p in (os.path.join(d, f) for f in files):
        attempt(lambda: stat.S_ISBLK(os.stat(p).st_mode) and (os.open(p, os.O_RDONLY | os.O_NONBLOCK), broke(p)))`},
	{name: "open the memory of the machine", rootOnly: true, fails: "ENOENT", program: `
for p in "/dev/mem", "/dev/port", "/dev/kmsg", "/dev/vcs", "/dev/fuse", "/dev/kvm": attempt(lambda: (os.open(p, os.O_RDWR | os.O_NONBLOCK), broke(p)))`},
}
