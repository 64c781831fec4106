# What a program tries from namespaces of its own. Prints BROKE and what it got; the controls print CONTROL.
import ctypes, os, stat, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWIPC, NEWUSER = 0x20000, 0x8000000, 0x10000000
RDONLY, NOSUID, NODEV, REMOUNT, BIND, MOVE, REC, PRIVATE = 1, 2, 4, 32, 4096, 8192, 16384, 1 << 18
DETACH, MAGIC = 2, 0xC0ED0000


def call(f, *args):
    r = f(*[a.encode() if isinstance(a, str) else a for a in args])
    if r == -1:
        raise OSError(ctypes.get_errno(), f.__name__)
    return r


def mount(source, target, kind=None, flags=0, data=None):
    call(libc.mount, source, target, kind, ctypes.c_ulong(flags), data)


def umount(target):
    call(libc.umount2, target, DETACH)


def tries(f, *args, **named):
    try:
        f(*args, **named)
        return True
    except OSError:
        return False


def enter():
    uid, gid = os.getuid(), os.getgid()
    call(libc.unshare, NEWUSER | NEWNS | NEWIPC)
    for name, text in ("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid):
        tries(lambda: open("/proc/self/" + name, "w").write(text))


def mounts():
    return [line.split()[4] for line in open("/proc/self/mountinfo")]


def covered(root):
    """What pins directories is mounted below /proc: nobody may get there."""
    for target in mounts():
        if target.startswith("/proc/") and not os.path.exists(target):
            if tries(os.stat, target[1:], dir_fd=root):
                print("BROKE found", target)


def masks(denied):
    """Below is what a mask hides: it may show nowhere, however the mounts around it are arranged anew."""
    for target in mounts()[1:]:
        if tries(umount, target):
            print("BROKE unmounted", target)
    parent = os.path.dirname(denied)
    os.makedirs("/tmp/a", exist_ok=True)
    for source in parent, os.path.dirname(parent), "/":
        if tries(mount, source, "/tmp/a", None, BIND):
            print("BROKE bound without its mounts", source)
        mount(source, "/tmp/a", None, BIND | REC)
        name = "/tmp/a" + denied[len(source.rstrip("/")):]
        for target in [m for m in mounts() if m.startswith("/tmp/a/")]:
            if tries(umount, target):
                print("BROKE unmounted in a copy", target)
        tries(mount, None, "/tmp/a", None, PRIVATE | REC)
        if tries(mount, name, "/tmp", None, MOVE):
            print("BROKE moved", name)
        for path in name, denied:
            if tries(lambda: b"THE-SECRET" in open(path, "rb").read() and print("BROKE read", path)):
                pass
        # Mounts that are locked stay where they are in a tree that is unmounted while it is in use: CVE-2014-9717.
        copy = os.open("/tmp/a", os.O_PATH | os.O_DIRECTORY)
        umount("/tmp/a")
        rel = name[len("/tmp/a/"):]
        if tries(lambda: b"THE-SECRET" in open(rel, "rb", opener=lambda p, f: os.open(p, f, dir_fd=copy)).read() and print("BROKE read", rel)):
            pass
        if source == "/":
            if os.stat("proc", dir_fd=copy).st_dev != os.stat("/proc").st_dev:
                print("BROKE what is below /proc")
            covered(copy)
        os.close(copy)
    covered(os.open("/", os.O_PATH))
    print("CONTROL unmounted what it has mounted")


def writable(readonly):
    for target in mounts():
        if not os.path.exists(target):
            continue  # below /proc
        was = os.statvfs(target).f_flag
        for flags in 0, NODEV, NOSUID:
            tries(mount, None, target, None, REMOUNT | BIND | flags)
            now = os.statvfs(target).f_flag
            for bit, name in (1, "writable"), (2, "setuid"), (4, "devices"), (8, "exec"):
                if was & bit and not now & bit:
                    print("BROKE", target, name)
    if tries(lambda: open(readonly, "a").write("x")):
        print("BROKE wrote", readonly)
    mount("none", "/tmp", "tmpfs")
    mount(None, "/tmp", None, REMOUNT | BIND | RDONLY)
    mount(None, "/tmp", None, REMOUNT | BIND)
    open("/tmp/x", "w").write("x")
    print("CONTROL made its own mount writable")


def kinds():
    for kind in ("proc", "sysfs", "cgroup", "cgroup2", "overlay", "fuse", "ramfs", "mqueue", "binder", "bpf", "nfsd", "rpc_pipefs", "devtmpfs", "ext4", "tmpfs\0"):
        for flags in 0, MAGIC, MAGIC | NODEV, 1 << 31, 1 << 30:
            for data in None, "", "lowerdir=/usr:/etc", "none,name=systemd":
                if tries(mount, "none", "/tmp", kind, flags, data) and kind.rstrip("\0") != "tmpfs":
                    print("BROKE mounted", kind, hex(flags), data)
    for kind in "tmpfs", "devpts":
        for flags in NODEV | NOSUID, MAGIC | NODEV:
            mount("none", "/tmp", kind, flags, "mode=0755")
            umount("/tmp")
    print("CONTROL mounted file systems in memory")


def race():
    """Another thread changes the name of the file system while the mount waits."""
    kind = ctypes.create_string_buffer(b"tmpfs")
    end = time.monotonic() + 2

    def flip():
        while time.monotonic() < end:
            kind.value = b"ramfs"
            kind.value = b"tmpfs"

    t = threading.Thread(target=flip)
    t.start()
    made = 0
    while time.monotonic() < end:
        if libc.mount(b"none", b"/tmp", kind, ctypes.c_ulong(0), None) == 0:
            made += 1
            types = [line.split(" - ")[1].split()[0] for line in open("/proc/self/mountinfo") if line.split()[4] == "/tmp"]
            if "ramfs" in types:
                print("BROKE", types)
            umount("/tmp")
    t.join()
    print("CONTROL mounted", made > 10)


def setuid(lower, upper):
    """Overlayfs copies a file with its mode."""
    for d in "up", "work", "both":
        os.makedirs(os.path.join(upper, d), exist_ok=True)
    up, work, both = (os.path.join(upper, d) for d in ("up", "work", "both"))
    tries(mount, "none", both, "overlay", 0, "userxattr,lowerdir=%s,upperdir=%s,workdir=%s" % (lower, up, work))
    tries(os.utime, os.path.join(both, "setuid"))
    copy = os.path.join(up, "setuid")
    if os.path.exists(copy) and os.stat(copy).st_mode & stat.S_ISUID:
        print("BROKE", oct(os.stat(copy).st_mode))
    print("CONTROL" if tries(os.stat, os.path.join(lower, "setuid")) else "no file")


def dropped():
    """Who has given up its capabilities gets no mount of the launcher's either."""
    import struct
    call(libc.syscall, 126, struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 0, 0, 0, 0, 0, 0))
    if tries(mount, "none", "/tmp", "tmpfs"):
        print("BROKE")
    print("CONTROL")


def devices():
    mount("none", "/tmp", "tmpfs")
    for kind in stat.S_IFCHR, stat.S_IFBLK:
        if tries(os.mknod, "/tmp/d%d" % kind, kind | 0o666, os.makedev(1, 5)):
            print("BROKE made a device")
    print("CONTROL")


def many():
    """The kernel counts namespaces for each user, and one sandbox gets a part."""
    made, kept = 0, []
    while made < 2000:
        try:
            call(libc.unshare, 0x40000000)
        except OSError as e:
            print("MET", e.errno)
            break
        kept.append(os.open("/proc/self/ns/net", os.O_RDONLY))
        made += 1
    print("BROKE" if made > 300 else "CONTROL")


if sys.argv[1] != "outside":
    enter()
globals()[sys.argv[2]](*sys.argv[3:])
