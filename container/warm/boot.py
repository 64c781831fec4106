# What a warm interpreter runs until it has its program. It was started without site (-S), so that nothing but its own files has been read; site
# is run when the program comes, as it would have been at the start. Whatever is not as it must be here ends the process, and the launcher
# starts an interpreter for the program as for any other.
import posix
import sys

CHANNEL = 5  # a socket to the launcher
NO_SITE = 6  # in sys.flags


def say(words):
    channel.sendall(len(words).to_bytes(8, "little") + words)


def end(why):
    say(b"no\0" + why.encode("utf-8", "replace"))
    posix._exit(1)


def guarded(do):
    def done(*args):
        try:
            return do(*args)
        except BaseException as e:
            end("%s: %s" % (type(e).__name__, e))

    return done


def admit_site():
    # sys.flags cannot be made anew, and subprocesses of the program's get its options from there. So the one flag is changed where it lies.
    at = id(sys.flags) + tuple.__basicsize__ + 8 * NO_SITE
    memory = posix.open("/proc/self/mem", posix.O_RDWR | posix.O_CLOEXEC)
    if sys.flags[NO_SITE] == 1 and posix.pread(memory, 8, at) == id(1).to_bytes(8, sys.byteorder):
        posix.pwrite(memory, id(0).to_bytes(8, sys.byteorder), at)
    posix.close(memory)
    if sys.flags.no_site != 0 or sys.flags[NO_SITE] != 0:
        end("the options of this interpreter are not where they are expected")


def read(path, most):
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    try:
        if posix.fstat(fd).st_mode & 0o170000 != 0o100000:
            raise ValueError("not an ordinary file")
        parts = []
        while sum(map(len, parts)) <= most:
            parts.append(posix.read(fd, 1 << 20))
            if not parts[-1]:
                return b"".join(parts)
        raise ValueError("too large")
    finally:
        posix.close(fd)


def files():
    # Everything that was read, and what would have been if it were there.
    found = {sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix}
    for name in (sys.executable, os.path.realpath(sys.executable)):
        at = os.path.dirname(name)
        found |= {name, at, os.path.dirname(at), at + "/pyvenv.cfg", os.path.dirname(at) + "/pyvenv.cfg", at + "/pybuilddir.txt"}
    found.update(sys.path)
    for m in list(sys.modules.values()):
        for name in (getattr(m, "__file__", None), getattr(m, "__cached__", None)):
            if name:
                found |= {name, os.path.dirname(name)}
    with open("/proc/self/maps", "rb", 0) as maps:
        for line in maps.read(1 << 20).split(b"\n") + maps.read(1 << 20).split(b"\n"):
            name = line[73:]
            if name.startswith(b"/"):
                found.add(os.fsdecode(name))
    return sorted(found)


@guarded
def prepare():
    global os, site, loaders, new_path
    if sys.implementation.name != "cpython" or not (3, 8) <= sys.version_info < (3, 14):
        end("%s %d.%d is none that is known" % (sys.implementation.name, *sys.version_info[:2]))
    if sys.path[0] == "":
        del sys.path[0]
    import os
    import site

    del sys.modules["_socket"]  # the program imports it if it wants to
    loaders = sys.modules["_frozen_importlib_external"]
    admit_site()
    say(b"\0".join([b"ready"] + [os.fsencode(name) for name in files()]))


@guarded
def receive():
    size, fds = 0, []
    data, more, _, _ = channel.recvmsg(1 << 16, 64)
    for _, _, item in more:
        fds += [int.from_bytes(item[i : i + 4], sys.byteorder) for i in range(0, len(item), 4)]
    if not data:
        posix._exit(0)
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "little"):
        part = channel.recv(1 << 20)
        if not part:
            posix._exit(0)
        data += part
    return data[8:].split(b"\0"), fds


def compiled(source, name):
    # A file that does not compile, or not without a warning, is for an interpreter that says so as always.
    import _warnings

    filters = _warnings.filters
    filters.insert(0, ("error", None, Warning, None, 0))
    _warnings._filters_mutated()
    try:
        return compile(source, name, "exec", dont_inherit=True)
    finally:
        del filters[0]
        _warnings._filters_mutated()


def is_archive(path):
    try:
        sys.modules["zipimport"].zipimporter(path)
        return True
    except ImportError:
        return False


def of_file(path):
    source = read(path, 1 << 20)
    if source[:2] == loaders.MAGIC_NUMBER[:2] or path.endswith(".pyc") or is_archive(path) or b"\0" in source:
        end("the file is no text")
    name = path
    if sys.version_info >= (3, 9) and not path.startswith("/"):
        name = posix.getcwd() + "/" + path
    code = compiled(source, name)
    return code, os.path.dirname(os.path.realpath(path)), {
        "__file__": name, "__cached__": None, "__loader__": loaders.SourceFileLoader("__main__", name),
    }


def new_stdin():
    # What standard input is can be known only now, and its objects ask when they are made.
    import io

    old = sys.stdin
    buffered = io.open(0, "rb", -1, None, None, None, False)
    buffered.raw.name = "<stdin>"
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(buffered, old.encoding, old.errors, "\n", old.line_buffering, old.write_through)
    sys.stdin.mode = "r"


def take(fds):
    for to in range(3):
        posix.dup2(fds[to], to)
        posix.close(fds[to])
    for answer in fds[3:]:
        if answer != 3:
            posix.dup2(answer, 3)
            posix.close(answer)
        posix.set_inheritable(3, True)


@guarded
def become(request, fds):
    # The program gets all that it has; it may still turn out to be none for here.
    main = sys.modules["__main__"].__dict__
    posix.chdir(request[0])
    n = int(request[1])
    env, args = request[2 : 2 + n], [os.fsdecode(a) for a in request[2 + n :]]
    os.environb.clear()
    for item in env:
        name, _, value = item.partition(b"=")
        os.environb[name] = value
    if args[1] == "-c":
        args[2].encode()
        code, path, names = args[2], "", {}  # exec compiles it as the interpreter does
        if sys.version_info >= (3, 13):  # which shows the lines of such a program too
            lines = sys.modules["linecache"].cache
            if "<string>" not in lines:
                end("where this interpreter keeps the lines of -c is not known")
            lines["<string>"] = (len(args[2]), None, [line + "\n" for line in args[2].splitlines()], "<string>")
        sys.argv = ["-c"] + args[3:]
    else:
        code, path, names = of_file(args[1])
        sys.argv = args[1:]
    if sys.version_info >= (3, 10):
        sys.orig_argv = args
    take(fds)
    say(b"mine")
    if channel.recv(1) != b"!":
        posix._exit(0)
    channel.close()
    new_stdin()
    main.update(names)
    return code, path, main


def program():
    # What stub.py calls, so that no frame of this file is below the program's.
    code, path, main = become(*receive())
    site.main()
    sys.path.insert(0, path)
    return exec, [code], [main]


import _socket  # noqa: E402

channel = _socket.socket(fileno=CHANNEL)
channel.setblocking(True)
prepare()
