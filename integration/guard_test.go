package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// guardAttacks are what a Python program does that processes.guard refuses, or undoes of the guard. Each prints BROKE where it
// succeeds, and it must succeed without the guard.
var guardAttacks = map[string]string{
	"socket":  `socket.socket(); broke()`,
	"connect": `s = socket.socketpair()[0]; s.connect("/none")`,
	"bind":    `socket.socket(socket.AF_UNIX).bind("/tmp/s%d" % os.getpid()); broke()`,
	"resolve": `socket.getaddrinfo("127.0.0.1", 80); broke()`,
	"server": `
import asyncio
async def serve(): (await asyncio.start_server(print, "127.0.0.1", 0)).sockets and broke()
asyncio.run(serve())`,
	"fork":          `pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0); broke()`,
	"fork of libc":  forkExec + `; os.wait(); broke()`,
	"subprocess":    `subprocess.run(["/bin/true"], check=True); broke()`,
	"spawn":         `os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0); broke()`,
	"system":        `os.system("true") == 0 and broke()`,
	"popen":         `os.popen("echo BROKE").read() and broke()`,
	"pty":           `import pty; pty.spawn("/bin/true"); broke()`,
	"pool":          `import multiprocessing; p = multiprocessing.get_context("fork").Pool(1); p.map(str, [1]); broke()`,
	"exec":          `os.execv("/bin/echo", ["echo", "BROKE"])`,
	"kill":          `os.kill(os.getpid(), 0); broke()`,
	"kill a group":  `os.killpg(0, 0); broke()`,
	"kill a thread": `signal.pthread_kill(threading.get_ident(), 0); broke()`,
	"ctypes":        `import ctypes; ctypes.CDLL(None).getpid(); broke()`,
	"_ctypes by its path": `
spec = importlib.machinery.PathFinder.find_spec("_ctypes"); new = importlib.machinery.ModuleSpec("_ctypes", None, origin=spec.origin)
import _imp; m = _imp.create_dynamic(new); broke()`,
	"_ctypes by another name": `
spec = importlib.machinery.PathFinder.find_spec("_ctypes"); to = "/tmp/_other" + str(os.getpid()) + ".so"; os.symlink(spec.origin, to)
import _imp; m = _imp.create_dynamic(importlib.machinery.ModuleSpec("_ctypes", None, origin=to)); broke()`,
	"a native extension of its own": `
spec = importlib.machinery.PathFinder.find_spec("termios"); os.mkdir("/tmp/own"); sys.modules.pop("termios", None)
open("/tmp/own/" + os.path.basename(spec.origin), "wb").write(open(spec.origin, "rb").read())
sys.path.insert(0, "/tmp/own"); importlib.invalidate_caches(); import termios; termios.__file__.startswith("/tmp") and broke()`,
	"a path that leads back": `
spec = importlib.machinery.PathFinder.find_spec("termios"); to = "/tmp/back.so"; open(to, "wb").write(open(spec.origin, "rb").read())
at = os.path.dirname(spec.origin) + "/../../../../../../../../../.." + to
import _imp; _imp.create_dynamic(importlib.machinery.ModuleSpec("termios", None, origin=at)); broke()`,
	"another interpreter": `
try: import _xxsubinterpreters as i
except ImportError: import _interpreters as i
i.run_string(i.create(), "import os; print('BROKE', flush=True)"); broke()`,
	"its memory":              `open("/proc/self/mem", "r+b"); broke()`,
	"its memory by a symlink": `os.symlink("/proc/self/mem", "/tmp/mem%d" % os.getpid()); open("/tmp/mem%d" % os.getpid(), "r+b"); broke()`,
	"hooks found by the garbage collector": `
for o in gc.get_objects():
    if type(o) is list and o and callable(o[0]) and len(o) < 5 and "hook" in repr(o): o.clear()
os.system("true") == 0 and broke()`,
	"sys again":  `del sys.modules["sys"]; import sys as other; importlib.reload(other); os.system("true") == 0 and broke()`,
	"a new hook": `sys.addaudithook(lambda *a: None); os.system("true") == 0 and broke()`,
	"a thread":   `t = threading.Thread(target=lambda: os.system("true") == 0 and broke()); t.start(); t.join()`,
	"at its end": `import atexit; atexit.register(lambda: os.system("true") == 0 and broke())`,
}

// forkExec calls what subprocess is made of, which raises no event.
const forkExec = `
import _posixsubprocess; v = sys.version_info
_posixsubprocess.fork_exec([b"true"], [b"/bin/true"], True, (), None, None, -1, -1, -1, -1, -1, -1, *os.pipe(), False, False,
    *([-1] if v >= (3, 11) else []), *([None, None, None, -1] if v >= (3, 9) else []), None, *([True] if (3, 11) <= v < (3, 14) else []))`

const guardProgram = `
import gc, importlib, importlib.machinery, os, signal, socket, subprocess, sys, threading
def broke(): print("BROKE", flush=True)
exec(sys.argv[1], globals())
`

// stepAttacks try to go on uncounted. Each comes to spin, which takes more steps than the budget.
var stepAttacks = map[string]string{
	"nothing":           ``,
	"settrace":          `sys.settrace(None)`,
	"setprofile":        `sys.setprofile(lambda *a: spin())`,
	"profiled thread":   `threading.setprofile(lambda *a: spin()); threading.Thread(target=print).start()`,
	"call_tracing":      `sys.call_tracing(spin, ())`,
	"a switch of frame": `sys._getframe().f_trace_lines = False; sys._getframe().f_trace_opcodes = False`,
	"a thread":          `threading.Thread(target=spin).start()`,
	"a raw thread":      `import _thread, time; _thread.start_new_thread(spin, ()); time.sleep(9)`,
	"a handler":         `import signal, time; signal.signal(signal.SIGALRM, lambda *a: spin()); signal.setitimer(signal.ITIMER_REAL, .01); time.sleep(9)`,
	"a destructor":      "class D:\n    def __del__(self): spin()\nd = D(); del d",
	"at its end":        `import atexit; atexit.register(spin); raise SystemExit`,
	"a generator":       `sum(1 for _ in range(400000)); broke()`,
	"monitoring": `
for o in gc.get_objects():
    if getattr(o, "__name__", "") == "set_events": o(4, 0)
for t in range(6):
    sys.monitoring.set_events(t, 0); sys.monitoring.free_tool_id(t)`,
	"events of its own": `sys.audit("cpython.run_command", "x"); sys.audit("import", "site", None, None, None, None); sys.audit("cpython.run_stdin")`,
	"one instruction":   `exec("while True: pass")`,
}

const stepProgram = `
import gc, sys, threading
def broke(): print("BROKE", flush=True)
def spin():
    n = 0
    while n < 400000: n += 1
    broke()
try: exec(sys.argv[1], globals())
except Exception as e: print(e)
spin()
`

// guardedPythons are the Pythons from 3.8 on that this flavour can read: Debian's and those of pyenv.
func guardedPythons(t *testing.T) []string {
	t.Helper()
	home, _ := os.UserHomeDir()
	found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/*/bin/python3"))
	var list []string
	for _, p := range append([]string{"/usr/bin/python3"}, found...) {
		if exec.Command(p, "-c", "import sys; sys.exit(sys.version_info < (3, 8))").Run() == nil {
			list = append(list, p)
		}
	}
	need(t, "python3", len(list) > 0)
	return list
}

// guarded is a policy with the guard, or without.
func (b *box) guarded(python, guard string, steps int) string {
	b.t.Helper()
	keys := object{"limits": object{"wall": "20s"}, "processes": object{"guard": guard, "steps": steps}}
	if !strings.HasPrefix(python, "/usr/") {
		keys["files"] = object{"interpreters": []string{python}}
	}
	return b.policy(keys)
}

func (b *box) eachPython(do func(b *box, python string)) {
	b.t.Helper()
	for _, python := range guardedPythons(b.t) {
		b.t.Run(strings.ReplaceAll(strings.TrimPrefix(python, "/"), "/", "-"), func(t *testing.T) { do(b.on(t), python) })
	}
}

// TestGuard: what the guard refuses works without it, and each refusal is Python's own error.
func TestGuard(t *testing.T) {
	flavours(t, func(b *box) {
		b.eachPython(func(b *box, python string) {
			id := strings.ReplaceAll(strings.Trim(python, "/."), "/", "-")
			on, off := id+"-on", id+"-off"
			b.create(on, b.guarded(python, "python", 0))
			b.create(off, b.guarded(python, "", 0))
			for name, program := range guardAttacks {
				control := b.run("exec", off, "--", python, "-c", guardProgram, program)
				got := b.run("exec", on, "--", python, "-c", guardProgram, program)
				switch {
				case strings.Contains(got.stdout, "BROKE"): // a traceback may cite the program
					b.t.Errorf("%s: %v", name, got)
				case name == "connect": // it has nobody to connect to
					control.complains("FileNotFoundError")
					got.complains("refuses socket.connect")
				case !strings.Contains(control.stdout, "BROKE") && strings.Contains(control.stderr, "ModuleNotFoundError"):
				default:
					control.prints("BROKE")
				}
				if strings.Contains(got.stderr, "guard.") { // a frame
					b.t.Errorf("%s: %v", name, got)
				}
			}
		})
	})
}

// TestGuardSteps: the budget is exact to one step, and nothing goes on beyond it.
func TestGuardSteps(t *testing.T) {
	flavours(t, func(b *box) {
		b.eachPython(func(b *box, python string) {
			steps := func(limit int, args ...string) result.Result {
				a := b.run(append([]string{"run", "--json", "-p", b.guarded(python, "python", limit), "--", python, "-B"}, args...)...)
				var r result.Result
				if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
					b.t.Fatalf("%v: %v", a, err)
				}
				return r
			}
			for _, program := range []string{
				"x = 1\nprint(x)", "for i in range(50):\n    x = i\nprint(x)", "print(sum(i for i in range(50)))",
				"import threading\nt = threading.Thread(target=lambda: [i for i in range(50)])\nt.start()\nt.join()\nprint(1)",
			} {
				all := steps(1_000_000, "-c", program)
				n := int(all.Usage.Steps)
				b.expect(all, result.Exited, "null", 0)
				b.expect(steps(n, "-c", program), result.Exited, "null", 0)
				less := steps(n-1, "-c", program)
				b.expect(less, result.StepsExceeded, result.FindingSteps, 121)
				if int(less.Usage.Steps) != n-1 {
					b.t.Errorf("%q: %d steps of %d", program, less.Usage.Steps, n-1)
				}
			}
			b.create("steps", b.guarded(python, "python", 100_000))
			defer b.run("delete", "steps")
			for name, attack := range stepAttacks {
				r := b.result("steps", python, "-c", stepProgram, attack)
				if r.Outcome != result.StepsExceeded || strings.Contains(r.Stdout, "BROKE") {
					b.t.Errorf("%s: %+v", name, r)
				}
			}
			control := steps(0, "-c", stepProgram, "")
			b.expect(control, result.Exited, "null", 0)
			b.expect(steps(100_000, "-c", "import os; os._exit(121)"), result.Exited, result.FindingFailed, 121) // no word of the guard
		})
	})
}

// TestGuardIsNotSeen: a program with the guard begins as one without: arguments, modules, paths, however it is started.
func TestGuardIsNotSeen(t *testing.T) {
	const look = `import os, sys
m = sys.modules["__main__"]
print(sys.argv, sys.orig_argv if hasattr(sys, "orig_argv") else "", sys.path, sys.flags, sorted(os.environ), sys.executable, m.__dict__.get("__file__"), m.__name__,
    m.__spec__ and (m.__spec__.name, m.__spec__.origin, m.__package__), sorted(sys.modules), os.listdir("/proc/self/fd"))
1/0
`
	flavours(t, func(b *box) {
		script := b.file("read/look.py", look)
		b.file("read/pack/__main__.py", look)
		for name, line := range map[string]string{"run": "/usr/bin/python3 -I", "env": "/usr/bin/env python3"} {
			b.file("read/"+name, "#!"+line+"\n"+look)
			b.mustDo(os.Chmod(b.path("read", name), 0o755))
		}
		ways := [][]string{
			{"python3", script, "a", "-b"},
			{"python3", "-c", look, "a"},
			{"python3", "-I", "-S", script},
			{"python3", "-m", "pack", "x"},
			{"python3", "-"},
			{"python3"},
			{"python3", b.path("read/pack"), "y"},
			{"/usr/bin/python3", "-X", "utf8", "-W", "error", "-u", script},
			{b.path("read/run"), "z"},
			{b.path("read/env"), "z"},
		}
		for _, args := range ways {
			var got [2]*answer
			for i, guard := range []string{"", "python"} {
				p := b.policy(object{"workdir": b.path("read"), "files": object{"read": []string{b.path("read")}}, "processes": object{"guard": guard}})
				got[i] = b.call(call{stdin: strings.NewReader(look)}, append([]string{"run", "-p", p, "--"}, args...)...).exits(1)
			}
			if got[0].stdout == "" || got[0].stdout != got[1].stdout || got[0].stderr != got[1].stderr {
				b.t.Errorf("%q\nwithout: %v\nwith: %v", args, got[0], got[1])
			}
		}
	})
}

// TestGuardOfNothing: a program that cannot be guarded does not run.
func TestGuardOfNothing(t *testing.T) {
	flavours(t, func(b *box) {
		work := b.mkdir("work")
		b.mustDo(copyProgram("/usr/bin/python3", b.path("work/python3")))
		static := b.path("work/static")
		source := b.file("static.c", `int main(void) { return write(1, "RAN", 3); }`)
		if out, err := exec.Command("cc", "-w", "-static", "-o", static, source).CombinedOutput(); err != nil {
			b.t.Fatalf("cc: %v\n%s", err, out)
		}
		p := b.policy(object{"workdir": work, "files": object{"write": []string{work}}, "env": object{"allow": []string{"LD_*"}}, "processes": object{"guard": "python"}})
		b.file("work/script", "#!/bin/sh\necho RAN\n")
		b.mustDo(os.Chmod(b.path("work/script"), 0o755))
		const python = `print("R" + "AN")`
		for _, args := range [][]string{{"sh", "-c", "echo RAN"}, {"/bin/echo", "RAN"}, {"./script"}, {"./static"}, {"./python3", "-c", python}} {
			b.run(append([]string{"run", "-p", p, "--"}, args...)...).exits(125).complains("guard_unsupported").hides("RAN")
		}
		for _, v := range []string{"LD_PRELOAD=/tmp/x.so", "LD_LIBRARY_PATH=/tmp", "LD_AUDIT=/tmp/x.so"} {
			b.call(call{env: []string{v}}, "run", "-p", p, "--", "python3", "-c", python).exits(125).complains("guard_unsupported").hides("RAN")
		}
		b.run("run", "-p", p, "--", "python3", "-c", python).exits(0).prints("RAN")
		r := b.outcome(call{}, p, "sh", "-c", "exit 0")
		if r.Outcome != result.NotStarted || r.Error == nil || r.Error.Code != "guard_unsupported" {
			b.t.Errorf("%+v", r)
		}
		memory := b.policy(object{"limits": object{"memory": "200M", "wall": "20s"}, "processes": object{"guard": "python"}})
		b.expect(b.outcome(call{}, memory, "python3", "-c", "x = bytearray(1 << 30); x[::4096] = b'1' * (1 << 18)"), result.MemoryExceeded, result.FindingMemory, 137)
	})
}
