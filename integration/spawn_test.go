package integration

import (
	"os/exec"
	"testing"
)

// spawns are ways to start a process or another program. Each prints BROKE where it succeeds.
var spawns = map[string]string{
	"fork":            `pid = os.fork(); pid or (print("BROKE"), sys.stdout.flush(), os._exit(0)); os.waitpid(pid, 0)`,
	"posix_spawn":     `os.waitpid(os.posix_spawn("/bin/echo", echo, {}), 0)`,
	"vfork and exec":  `subprocess.run(echo, close_fds=False)`,
	"fork and exec":   `subprocess.run(echo, preexec_fn=lambda: None)`,
	"system":          `os.system("echo BROKE") and met(errno.EPERM)`,
	"a pool":          `import multiprocessing; p = multiprocessing.get_context("fork").Pool(1); print(p.apply(str, ("BROKE",)))`,
	"clone":           `call(CLONE, 17, 0, 0, 0, 0) or (os.write(1, b"BROKE\n"), os._exit(0))`,
	"clone3":          `a = (ctypes.c_uint64 * 8)(0, 0, 0, 0, 17); call(435, a, 64) or (os.write(1, b"BROKE\n"), os._exit(0))`,
	"execve":          `os.execv("/bin/echo", echo)`,
	"execve in place": `os.execv(sys.executable, [sys.executable, "-c", "print('BROKE')"])`,
	"execveat":        `os.execve(os.open("/bin/echo", os.O_RDONLY), echo, {})`,
	"execve of memory": `
fd = os.memfd_create("x", 0); os.write(fd, open("/bin/echo", "rb").read()); os.execve(fd, echo, {})`,
	"execve of a thread": `
t = threading.Thread(target=lambda: attempt(lambda: os.execv("/bin/echo", echo))); t.start(); t.join()`,
	"execve with numbers in every register": `
argv = (ctypes.c_char_p * 3)(b"echo", b"BROKE", None)
for n in 0, 1, (1 << 64) - 1: call(EXECVE, b"/bin/echo", argv, None, ctypes.c_uint64(n), ctypes.c_uint64(n), ctypes.c_uint64(n))`,
	// A filter of the program's own may not loosen ours: the strictest answer counts.
	"execve with a filter": `
allow = ctypes.create_string_buffer(b"\x06\0\0\0\0\0\xff\x7f", 8)
prog = ctypes.create_string_buffer(bytes([1, 0, 0, 0, 0, 0, 0, 0]) + ctypes.addressof(allow).to_bytes(8, "little"), 16)
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); call(SECCOMP, 1, 0, prog); os.execv("/bin/echo", echo)`,
}

const spawnProgram = `
import ctypes, errno, os, platform, subprocess, sys, threading
echo = ["/bin/echo", "BROKE"]
CLONE, EXECVE, SECCOMP = (56, 59, 317) if platform.machine() == "x86_64" else (220, 221, 277)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def met(e): print("MET", errno.errorcode[e], flush=True)
def call(*args):
    r = libc.syscall(*args)
    if r < 0: raise OSError(ctypes.get_errno(), "call")
    return r
def attempt(f):
    try: f()
    except OSError as e: met(e.errno)
attempt(lambda: exec(sys.argv[1], globals()))
`

// registers executes another program with what is left in every register at its first instruction: the launcher's own execve had
// a key in three of them.
const registers = `
#if defined __x86_64__
__asm__(".globl _start\n_start: mov $59,%eax\nlea path(%rip),%rdi\nlea argv(%rip),%rsi\nxor %edx,%edx\nsyscall\n"
	"neg %eax\nmov %eax,%edi\nmov $60,%eax\nsyscall\n");
#else
__asm__(".globl _start\n_start: mov x8,#221\nadr x0,path\nadr x1,argv\nmov x2,xzr\nsvc 0\nneg w0,w0\nmov x8,#93\nsvc 0\n");
#endif
__asm__(".balign 8\nargv: .quad path, word, 0\npath: .asciz \"/bin/echo\"\nword: .asciz \"BROKE\"\n");
`

// TestSpawn: under processes.spawn = false nothing starts a process or executes a program, and threads work. Without it each way works.
func TestSpawn(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		off := b.policy(object{"processes": object{"spawn": false}})
		b.create("on", b.policy(object{"processes": object{"spawn": true}}))
		b.create("off", off)
		for name, program := range spawns {
			b.t.Run(name, func(t *testing.T) {
				ours := *b
				ours.t = t
				control := ours.run("exec", "on", "--", "python3", "-c", spawnProgram, program)
				got := ours.run("exec", "off", "--", "python3", "-c", spawnProgram, program).hides("BROKE")
				if name == "clone3" { // it does not exist, so that libc falls back
					control.exits(0).prints("MET ENOSYS")
					got.exits(0).prints("MET ENOSYS")
					return
				}
				control.prints("BROKE")
				got.exits(0).prints("MET EPERM")
			})
		}
		const threads = `
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(8) as p: print(sum(p.map(lambda n: n * n, range(100))))`
		b.run("exec", "off", "--", "python3", "-c", threads).exits(0).prints("328350")
		b.run("run", "-p", off, "--", "python3", "-c", threads).exits(0).prints("328350")
		script := b.file("script", "#!/bin/sh\necho ran\n")
		b.mustDo(exec.Command("chmod", "755", script).Run())
		shown := b.policy(object{"files": object{"read": []string{script}}, "processes": object{"spawn": false}})
		b.run("run", "-p", shown, "--", script).exits(0).prints("ran")
		b.run("run", "-p", shown, "--tty", "--", "sh", "-c", "true; /bin/echo BROKE").hides("BROKE")
		if _, err := exec.LookPath("cc"); err != nil {
			need(b.t, "cc", false)
		}
		source := b.file("registers.c", registers)
		program := b.path("registers")
		if out, err := exec.Command("cc", "-static", "-nostdlib", "-o", program, source).CombinedOutput(); err != nil {
			b.t.Fatalf("cc: %v\n%s", err, out)
		}
		files := object{"read": []string{program}}
		b.run("run", "-p", b.policy(object{"files": files}), "--", program).exits(0).prints("BROKE")
		b.run("run", "-p", b.policy(object{"files": files, "processes": object{"spawn": false}}), "--", program).exits(1).hides("BROKE") // EPERM
	})
}
