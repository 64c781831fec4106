# Runs attacks, and prints a JSON object of what each has printed. An attack calls broke when it has got what it wanted, and it is
# said at its end which errors it has met.
import ctypes, errno, fcntl, gc, json, os, select, signal, socket, stat, struct, sys, threading, time, traceback

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
met, told = set(), []
job = json.load(sys.stdin)
NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
HERE, EMPTY = -100, 0x1000  # AT_FDCWD, AT_EMPTY_PATH


def call(name, *args):
    ctypes.set_errno(0)
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    r = libc.syscall(ctypes.c_long(job["calls"][name]), *args)
    if r == -1:
        raise OSError(ctypes.get_errno(), name)
    return r


def met_error(number):
    met.add(errno.errorcode.get(number, str(number)))


def attempt(f, *args):
    try:
        return f(*args)
    except OSError as e:
        met_error(e.errno if e.errno else 0)
    except ValueError:
        pass


def broke(*what):
    """What a loop gets a thousand times is said a few times: nobody reads the pipe yet."""
    told.append(what)
    if len(told) < 20:
        print("BROKE", *what, flush=True)


def contents(path, secret="THE-SECRET"):
    """Whether a file can be read and holds a secret."""
    text = open(path, "rb").read(4096)
    if secret.encode() in text:
        broke(path)


def past(permission, f, *args):
    """A call that changes nothing, since its arguments are wrong, but is asked for permission first."""
    try:
        f(*args)
    except OSError as e:
        if e.errno not in permission:
            return met_error(e.errno)
    broke()


def clone(flags):
    pid = call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def mount(source, target, kind, flags=0):
    source, target, kind = (x and x.encode() for x in (source, target, kind))
    call("mount", source, target, kind, flags, None)


def privilege():
    """Every capability, over namespaces that go away with this process: what an attack outside is allowed to have."""
    uid, gid = os.getuid(), os.getgid()
    call("unshare", NEWNS | NEWNET | NEWUTS | (NEWUSER if uid else 0))
    if uid:
        for name, text in ("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid):
            open("/proc/self/" + name, "w").write(text)
    mount("none", "/", None, 0x44000)  # MS_REC | MS_PRIVATE


def nest():
    """Namespaces of the program's own, of which it is root: what processes.userns gives it."""
    uid, gid = os.getuid(), os.getgid()
    call("unshare", NEWUSER | NEWNS | NEWUTS | NEWIPC | NEWNET)
    for name, text in ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid):
        open("/proc/self/" + name, "w").write(text)


def play(attack):
    met.clear()
    told.clear()
    signal.alarm(job["seconds"])
    try:
        if attack["privileged"]:
            privilege()
        sys.argv = ["-c"] + (attack["args"] or [])
        exec(compile(attack["program"], attack["name"], "exec"), dict(globals()))
    except OSError as e:
        met_error(e.errno if e.errno else 0)
    except Exception:
        traceback.print_exc()
    print("MET", *sorted(met), end=END, flush=True)


def is_open(fd):
    try:
        return fcntl.fcntl(fd, fcntl.F_GETFD) >= 0
    except OSError:
        return False


def open_descriptors():
    return set(filter(is_open, range(1024)))  # there may be no /proc to list them


END = "\n\x1e"


def play_all(attacks):
    """Until one has succeeded, or changed the root or namespaces: this process is no place for the others then."""
    ours = open_descriptors()
    if job["nested"]:
        nest()
    for a in attacks:
        play(a)
        if job["nested"] or told or a["privileged"] or not os.path.exists("/dev/null"):
            break
        gc.collect()
        for fd in open_descriptors() - ours:
            attempt(os.close, fd)
    os._exit(0)


def run(attacks):
    """Plays attacks in a new process. Returns what each printed that was played."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.dup2(w, 1)
        os.dup2(w, 2)
        play_all(attacks)
    os.close(w)
    status = os.waitpid(pid, 0)[1]
    attempt(os.killpg, pid, signal.SIGKILL)
    os.set_blocking(r, False)
    out = (attempt(os.read, r, 1 << 20) or b"").decode(errors="replace").split(END)
    os.close(r)
    if out[-1] or status:  # one has ended its process
        return out[:-1] + [out[-1] + "\nENDED %d\n" % status]
    return out[:-1]


if job["alone"]:  # no process can be started here
    os.dup2(1, 2)
    play_all(job["attacks"])

results = {}
signal.alarm(60)  # whatever happens, this ends
while len(results) < len(job["attacks"]):
    left = job["attacks"][len(results):]
    for a, out in zip(left, run(left)):
        results[a["name"]] = out
print(json.dumps(results))
