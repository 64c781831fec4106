package integration

import "testing"

// natives are ways to load code that the program has made. Each prints BROKE where it succeeds; LIB is a library of the host's, copied.
var natives = map[string]string{
	"dlopen in the workspace":  `load(put("lib.so"))`,
	"dlopen in /tmp":           `load(put("/tmp/lib.so"))`,
	"dlopen in /dev/shm":       `load(put("/dev/shm/lib.so"))`,
	"dlopen by a descriptor":   `fd = os.open(put("lib.so"), os.O_RDONLY); load("/proc/self/fd/%d" % fd)`,
	"dlopen of a removed file": `fd = os.open(put("lib.so"), os.O_RDONLY); os.unlink("lib.so"); load("/proc/self/fd/%d" % fd)`,
	"dlopen of memory":         `fd = os.memfd_create("x", 0); os.write(fd, LIB); load("/proc/self/fd/%d" % fd)`,
	"dlopen of sealed memory":  `fd = os.memfd_create("x", 8); os.write(fd, LIB); load("/proc/self/fd/%d" % fd)`,
	"map a file as code":       `fd = os.open(put("lib.so"), os.O_RDONLY); mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC); print("BROKE")`,
	"map a file, then make it code": `
fd = os.open(put("lib.so"), os.O_RDONLY); m = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
at = ctypes.addressof(ctypes.c_char.from_buffer(m))
libc = ctypes.CDLL(None, use_errno=True)
if libc.mprotect(ctypes.c_void_p(at), 4096, 5): raise OSError(ctypes.get_errno(), "mprotect")
print("BROKE")`,
	"execute a file":   `os.chmod(put("lib.so"), 0o755); os.execv("./lib.so", ["x"]); print("BROKE")`,
	"extension module": `import importlib.machinery as m, importlib.util as u; s = u.spec_from_file_location("lib", put("lib.so"), loader=m.ExtensionFileLoader("lib", put("lib.so"))); u.module_from_spec(s); print("BROKE")`,
}

const nativeProgram = `
import ctypes, glob, mmap, os, sys
LIB = open(sorted(glob.glob("/usr/lib/*/libz.so.1") + glob.glob("/lib/*/libm.so.6"))[0], "rb").read()
def put(name):
    open(name, "wb").write(LIB); return name
def load(name):
    ctypes.CDLL(name if "/" in name else "./" + name); print("BROKE")
try: exec(sys.argv[1], globals())
except (OSError, ImportError, AttributeError) as e: print("MET", e)
`

// TestNative: with processes.native = false a program loads no code that it has made, and what is installed all the same.
func TestNative(t *testing.T) {
	flavours(t, func(b *box) {
		because(b.t, "the program runs native code of its own: no guard in an interpreter holds it then")
		t := b.t
		ws := b.mkdir("ws")
		policy := func(native bool) string {
			return b.policy(object{"version": 1, "workspace": object{"source": ws, "path": "/w"}, "processes": object{"native": native}})
		}
		free, held := policy(true), policy(false)
		for what, code := range natives {
			r := b.run("run", "-p", held, "--", "python3", "-c", nativeProgram, code)
			r.exits(0).prints("MET").hides("BROKE")
			if what == "extension module" || what == "execute a file" || what == "dlopen in /dev/shm" {
				continue // a library is no module and no program, and /dev/shm is always noexec
			}
			t.Run(what, func(t *testing.T) {
				b.run("run", "-p", free, "--", "python3", "-c", nativeProgram, code).exits(0).prints("BROKE")
			})
		}
		b.run("run", "-p", held, "--", "python3", "-c", "import ctypes, zlib, hashlib, subprocess; subprocess.run(['true'], check=True)").exits(0)
	})
}
