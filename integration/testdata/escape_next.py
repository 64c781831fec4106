# With "leave" it leaves all that a program can leave behind, then looks for it; with "look" it only looks.
import ctypes, fcntl, os, signal, socket, sys, time

libc = ctypes.CDLL(None, use_errno=True)
KEY, MAILBOX = 0x53424f58, b"/sandboxrun-escape"


def leave():
    for number, size in ("shmget", 4096), ("semget", 1):
        getattr(libc, number)(KEY, size, 0o1600)  # IPC_CREAT
    libc.msgget(KEY, 0o1600)
    libc.mq_open(MAILBOX, os.O_CREAT | os.O_RDWR, 0o600, None)
    os.mkfifo("fifo")
    for kind in 0o020000, 0o060000:  # devices; of number 0 anybody may make the first
        try:
            os.mknod("whiteout", kind | 0o600, os.makedev(0, 0) if kind == 0o020000 else os.makedev(1, 0))
        except OSError:
            pass
    for mode in 0o4755, 0o2755:
        open("program", "w").close()
        try:
            os.chmod("program", mode)
        except OSError:
            pass
    open("later", "w").write("LEFT")
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            daemon(w)
        os._exit(0)
    os.read(r, 1)


def daemon(ready):
    for s in range(1, 65):
        try:
            signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    libc.prctl(15, b"escape-next-daemon", 0, 0, 0)  # PR_SET_NAME
    server = socket.socket(socket.AF_UNIX)
    server.bind("\0sandboxrun-escape")
    server.listen()
    lock = open("lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(ready, b"x")
    for null in 0, 1, 2:
        os.dup2(os.open("/dev/null", os.O_RDWR), null)
    for n in range(3000):
        open("beat", "w").write(str(n))
        time.sleep(0.01)
    os._exit(0)


def look():
    def find(what, f):
        try:
            if f():
                print("FOUND", what, flush=True)
        except OSError:
            pass

    mine = os.getpid()
    find("process", lambda: any(p.isdigit() and int(p) not in (1, mine) and "escape-next" in open("/proc/%s/comm" % p).read() for p in os.listdir("/proc")))
    find("shared memory", lambda: libc.shmget(KEY, 4096, 0) >= 0)
    find("semaphores", lambda: libc.semget(KEY, 1, 0) >= 0)
    find("message queue", lambda: libc.msgget(KEY, 0) >= 0)
    find("mailbox", lambda: libc.mq_open(MAILBOX, os.O_RDWR) >= 0)
    find("socket", lambda: socket.socket(socket.AF_UNIX).connect("\0sandboxrun-escape") is None)
    find("denied", lambda: open("later").read() == "LEFT")

    def locked():
        try:
            fcntl.flock(open("lock", "a"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True

    find("lock", locked)
    print("DONE")


if sys.argv[1] == "leave":
    leave()
look()
