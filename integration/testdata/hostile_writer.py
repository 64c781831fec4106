# A program that shows what it can read, and wrecks what it can write so that a later sandbox of its policy shows more.
import ctypes, json, os, random, re, shutil, sys

job = json.loads(sys.argv[1])
rng = random.Random(job["seed"])
libc = ctypes.CDLL(None, use_errno=True)
NAMES = ["a", "b", "c", "d", "e"]
SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")


def quietly(do, *args):
    try:
        return do(*args)
    except (OSError, shutil.Error, RecursionError):
        return None


def tokens():
    """What can be read, under any name, links followed."""
    found, seen = {}, set()

    def look(p, depth):
        try:
            real = os.path.realpath(p)
            if real.startswith(SYSTEM) or real in seen:
                return
            if os.path.isdir(p):
                if depth > 30:
                    return
                seen.add(real)  # by name: two names of a directory may have different mounts below
                for name in os.listdir(p):
                    look(p + "/" + name, depth + 1)
            else:
                with open(p, "rb") as f:
                    for t in re.findall(rb"TOKEN-\d+-", f.read(4096)):
                        found.setdefault(t.decode(), p)
        except OSError:
            pass

    for p in job["roots"] + job["paths"] + job["outside"]:
        look(p, 0)
    return found


def everything():
    """Every path below the roots, links not followed."""
    list_ = []
    for root in job["roots"]:
        for d, dirs, files in os.walk(root):
            list_ += [d + "/" + n for n in dirs + files]
    return list_ or job["roots"]


def pick(paths):
    """A path of the policy's or a directory above one, or any."""
    if rng.random() < 0.6:
        p = rng.choice(job["paths"])
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            p = os.path.dirname(p)
        return p
    return rng.choice(paths)


def place(paths):
    return os.path.dirname(pick(paths)) + "/" + rng.choice(NAMES)


def exchange(a, b):
    libc.renameat2(-100, a.encode(), -100, b.encode(), 2)


def redirect(p, to):
    """Puts a link where something is."""
    aside = p + rng.choice(["", "-aside"])
    if aside != p:
        quietly(os.rename, p, aside)
    quietly(os.rmdir, p)
    quietly(os.unlink, p)
    quietly(os.symlink, to, p)


def write(p):
    with open(p, "a") as f:
        f.write("PWNED")


def wreck():
    for i in range(job["ops"]):
        if i % 10 == 0:
            paths = everything()
        a, b = pick(paths), rng.choice([place, pick])(paths)
        to = rng.choice(job["outside"] + [a, os.path.basename(a), "..", "."])
        rng.choice([
            lambda: quietly(os.rename, a, b),
            lambda: quietly(os.rename, a, place(paths)),
            lambda: exchange(a, b),
            lambda: redirect(a, to),
            lambda: redirect(a, to),
            lambda: quietly(os.symlink, to, b),
            lambda: quietly(os.link, a, b),
            lambda: quietly(os.rmdir, a),
            lambda: quietly(os.unlink, a),
            lambda: quietly(os.mkdir, b),
            lambda: quietly(write, a),
            lambda: quietly(write, rng.choice(job["outside"]) + "/" + rng.choice(NAMES)),
            lambda: rng.random() < 0.1 and quietly(shutil.rmtree, a),
        ])()


before = tokens()
wreck()
after = tokens()
print(json.dumps([before, after]))
