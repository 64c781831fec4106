# Looks for a procfs in as many ways as there are names in the arguments. Each way has a process of its own. BROKE is printed for one that
# has found a procfs, MET and an error for one that has not.
import ctypes, errno, os, socket, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
CALLS = dict(mount=165, umount2=166, pivot_root=155, chroot=161, unshare=272, setns=308, open_tree=428, move_mount=429, fsopen=430,
             fsconfig=431, fsmount=432, pidfd_open=434, pidfd_getfd=438, openat2=437, ptrace=101, statmount=457, listmount=458)
if os.uname().machine == "aarch64":
    CALLS = dict(mount=40, umount2=39, pivot_root=41, chroot=51, unshare=97, setns=268, open_tree=428, move_mount=429, fsopen=430,
                 fsconfig=431, fsmount=432, pidfd_open=434, pidfd_getfd=438, openat2=437, ptrace=117, statmount=457, listmount=458)
HERE, DETACH, BIND, MOVE, REMOUNT = -100, 2, 0x1000, 0x2000, 0x20
NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000


class Found(Exception):
    pass


def call(name, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(CALLS[name]), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r == -1:
        raise OSError(ctypes.get_errno(), name)
    return r


def look(fd):
    buf = ctypes.create_string_buffer(256)
    if libc.fstatfs(fd, buf) == 0 and int.from_bytes(buf.raw[:8], sys.byteorder) == 0x9fa0:
        raise Found()


def see(path, dir=None):
    look(os.open(path, os.O_PATH, dir_fd=dir))


def first(*ways):
    """Tries all, and says what the last one met."""
    last = None
    for way in ways:
        try:
            way()
        except OSError as e:
            last = e
    if last:
        raise last


def paths():
    os.symlink("/proc/self/status", "/tmp/noproc-link")
    names = ["/proc", "/proc/.", "/proc/../proc", "/proc/self", "/proc/self/status", "/proc/self/root/proc", "/proc/1", "/proc/2", "/proc/thread-self", "/proc/sys",
             "/proc/mounts", "/proc/net", "/dev/fd", "/dev/fd/0", "/dev/stdin", "/dev/stdout", "/dev/../proc/self", "/tmp/noproc-link", "/etc/mtab"]
    try:
        first(*[lambda n=n: see(n) for n in names])
    finally:
        os.unlink("/tmp/noproc-link")


def below():
    d = os.open("/proc", os.O_PATH)
    os.fchdir(d)
    first(*[lambda n=n: see(n, d) for n in (".", "self", "..", "../proc/self", "1")], lambda: see("self"), lambda: see("../proc/2"))


def descriptors():
    first(*[lambda fd=fd: look(fd) for fd in range(1024)])
    first(*[lambda fd=fd, n=n: see(n, fd) for fd in range(64) for n in (".", "self", "..")])


def uncover():
    for flags in (0, DETACH, DETACH | 8):
        call("umount2", b"/proc", flags)
        see("/proc")


def move_away():
    os.makedirs("/tmp/noproc-moved", exist_ok=True)
    call("mount", b"/proc", b"/tmp/noproc-moved", None, MOVE, None)
    see("/proc")


def mount_new():
    os.makedirs("/tmp/noproc-new", exist_ok=True)
    call("mount", b"proc", b"/tmp/noproc-new", b"proc", 0, None)
    see("/tmp/noproc-new")


def open_new():
    fs = call("fsopen", b"proc", 0)
    call("fsconfig", fs, 6, None, None, 0)
    look(call("fsmount", fs, 0, 0))


def own_namespaces():
    call("unshare", NEWUSER | NEWNS | NEWPID)
    if os.fork() == 0:
        try:
            first(uncover, mount_new, open_new)
        except Found:
            os._exit(7)
        finally:
            os._exit(0)
    if os.waitstatus_to_exitcode(os.wait()[1]) == 7:
        raise Found()


def another_process():
    """The supervisor has a root, a mount namespace and descriptors too."""
    p = call("pidfd_open", 1, 0)
    first(lambda: look(call("pidfd_getfd", p, 3, 0)), lambda: call("setns", p, NEWNS), lambda: call("ptrace", 16, 1, 0, 0))
    see("/proc")


def list_mounts():
    """What mountinfo says, without /proc."""
    request = (32).to_bytes(4, sys.byteorder) + bytes(4) + b"\xff" * 8 + bytes(16)
    if call("listmount", request, ctypes.create_string_buffer(8000), 1000, 0) > 0:
        raise Found()


def change():
    """What stands at /proc can be neither renamed nor replaced nor written."""
    for way in (lambda: os.mkdir("/proc/self"), lambda: os.rename("/proc", "/proc2"), lambda: os.rmdir("/proc"), lambda: os.chmod("/proc", 0o777),
                lambda: os.symlink("/", "/proc/self"), lambda: call("mount", None, b"/proc", None, REMOUNT | BIND, None)):
        try:
            way()
        except OSError as e:
            met = e
        else:
            raise Found()
    raise met


for name in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        try:
            globals()[name]()
            print("MET", name, "nothing", flush=True)
        except Found:
            print("BROKE", name, flush=True)
        except OSError as e:
            print("MET", name, errno.errorcode.get(e.errno, e.errno), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
