package integration

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// warmed makes a sandbox that keeps interpreters ready.
func (s *serving) warmed(policy object, ready int) {
	s.b.t.Helper()
	s.does("create", object{"id": "box", "policy": policy, "warm": object{"python3": ready}}, nil)
}

// both runs a program by an interpreter of its own and by one that waits, and wants the same of both.
func (s *serving) both(t *testing.T, more object, argv ...string) {
	t.Helper()
	cold := s.exec("box", more, argv...)
	with := object{"warm": true}
	maps.Copy(with, more)
	warm := s.exec("box", with, argv...)
	if warm.Warm == nil || !*warm.Warm {
		t.Errorf("%q: not by an interpreter that waited: %s", argv, warm.WarmWhy)
	}
	same(t, "standard output", cold.Stdout, warm.Stdout)
	same(t, "standard error", cold.Stderr, warm.Stderr)
	same(t, "outcome", cold.Outcome, warm.Outcome)
	same(t, "exit status", cold.ExitCode, warm.ExitCode)
	same(t, "processes", cold.Usage.Processes, warm.Usage.Processes)
	if cold.Answer != nil && (warm.Answer == nil || *warm.Answer != *cold.Answer) {
		t.Errorf("%q: answer %+v, want %+v", argv, warm.Answer, cold.Answer)
	}
}

// TestWarmIsAsOrdinary: a program cannot tell an interpreter that waited from one of its own.
func TestWarmIsAsOrdinary(t *testing.T) {
	flavours(t, func(b *box) {
		s := b.stdio()
		s.warmed(tmpfsPolicy(), 2)
		programs := map[string]string{
			"success":              `print(1)`,
			"a status":             `import sys; sys.exit(3)`,
			"a text as the status": `import sys; sys.exit("bye")`,
			"no status":            `raise SystemExit(None)`,
			"an exception":         "def f():\n  raise ValueError('x')\nf()",
			"a chain of them":      "try:\n  1/0\nexcept Exception as e:\n  raise ValueError from e",
			"interrupted":          `raise KeyboardInterrupt`,
			"a signal":             `import os; os.kill(os.getpid(), 15)`,
			"does not compile":     `x = (`,
			"a warning":            `print("\d")`,
			"an excepthook":        "import sys\nsys.excepthook = lambda t, v, b: print(t, b.tb_next)\n1/0",
			"a trace in excepthook": "import sys, traceback\nsys.excepthook = lambda t, v, b: print(traceback.format_exception(t, v, b), sys.last_traceback is b," +
				" sys.excepthook.__name__)\n1/0",
			"argv":        `import sys; print(sys.argv, sys.path, getattr(sys, "orig_argv", 0), sys.flags, sys.executable, sys.prefix)`,
			"modules":     `import sys; print(sorted(sys.modules))`,
			"names":       `print(sorted(globals().items(), key=str))`,
			"environ":     `import os; print(dict(os.environ)); os.system("env | sort")`,
			"streams":     `import sys; print(sys.stdin.read(), sys.stdin, sys.stdin.seekable(), sys.stdout, sys.stderr.line_buffering, sys.stdout.line_buffering, sys.stdin.buffer.raw)`,
			"descriptors": `import os; print(sorted(os.listdir("/proc/self/fd")), [os.get_inheritable(i) for i in range(3)], [os.readlink("/proc/self/fd/%d" % i)[:5] for i in range(3)])`,
			"process": `import os, resource; print(os.getpid(), os.getppid(), os.getsid(0), os.getcwd(), os.umask(0), os.getuid(), os.nice(0), sorted(os.sched_getaffinity(0)))
print([resource.getrlimit(i) for i in range(16)])
print([l for l in open("/proc/self/status") if l.startswith(("Sig", "Shd", "Cap", "NoNew", "Seccomp", "Groups", "Uid", "Threads", "NSpid"))])
print([l.split()[4:6] for l in open("/proc/self/mountinfo")])`,
			"atexit":         `import atexit; atexit.register(print, "bye"); raise SystemExit`,
			"a thread":       `import threading; threading.Thread(target=print, args=("t", threading.main_thread().name)).start()`,
			"fork":           "import multiprocessing as m\nprint(m.get_context('fork').Pool(1).map(abs, [-1]))",
			"options":        `import subprocess; print(subprocess._args_from_interpreter_flags())`,
			"signals":        `import signal; print(signal.getsignal(2), signal.getsignal(13), signal.pthread_sigmask(0, []))`,
			"annotations":    `x: int = 1; print(__annotations__)`,
			"logging":        `import logging; logging.warning("x")`,
			"unbuffered end": `import os, sys; sys.stdout.write("lost"); os._exit(0)`,
			"encodings":      `import sys, locale; print(sys.stdout.encoding, sys.getfilesystemencoding(), locale.setlocale(0, None), "é")`,
			"a child":        `import subprocess, sys; print(subprocess.run([sys.executable, "-c", "import sys; print(sys.flags, sys.path)"], capture_output=True).stdout)`,
		}
		for name, code := range programs {
			t.Run(name, func(t *testing.T) {
				if name == "does not compile" || name == "a warning" {
					r := s.exec("box", object{"warm": true}, "python3", "-c", code)
					same(t, "standard error", s.exec("box", nil, "python3", "-c", code).Stderr, r.Stderr)
					return
				}
				s.both(b.t, object{"env": object{"ONE": "1", "TWO": "a\nb"}, "cwd": "/"}, "python3", "-c", code, "a", "b c")
			})
		}
		s.both(b.t, object{"stdin": "typed\n"}, "python3", "-c", programs["streams"])
		s.both(b.t, object{"answer": true}, "python3", "-c", `import os; os.write(3, b"answer"); print(os.environ["SANDBOXRUN_RESULT"], sorted(os.listdir("/proc/self/fd")))`)
		s.end()
	})
}

// TestWarmFile: a program that is a file.
func TestWarmFile(t *testing.T) {
	flavours(t, func(b *box) {
		s := b.stdio()
		s.warmed(tmpfsPolicy(), 2)
		const tells = `import inspect, os, sys
def f(): pass
print(__file__, sys.argv, sys.path, __loader__.path, inspect.getsource(f), __name__, __spec__, __cached__, f.__code__.co_filename, sorted(globals()), sys.modules["__main__"])
import beside
raise ValueError
`
		const spawns = `import multiprocessing as m, os, sys
def f(n): return n, __name__, os.path.basename(__file__), sys.argv
if __name__ == "__main__":
  with m.get_context("spawn").Pool(1) as pool: print(pool.map(f, [1]))
`
		s.does("put", object{"sandbox": "box", "files": object{
			"spawns.py": spawns, "main.py": tells, "d/main.py": tells, "beside.py": "print(__file__)", "d/beside.py": "print(__file__)",
			"latin.py": object{"base64": "IyBjb2Rpbmc6IGxhdGluLTEKcHJpbnQoJ+knKQo="}, "noend.py": "print(1)", "wrong.py": "x = (", "warns.py": `print("\d")`, "pkg/__main__.py": "print(__file__)",
		}}, nil)
		if r := s.exec("box", nil, "ln", "-s", "d/main.py", "link.py"); r.ExitCode != 0 {
			b.t.Fatalf("%+v", r)
		}
		for _, name := range []string{"main.py", "d/main.py", "/w/main.py", "link.py", "latin.py", "noend.py", "spawns.py"} {
			s.both(b.t, nil, "python3", name, "a", "-x")
		}
		s.both(b.t, object{"cwd": "d"}, "python3", "main.py")
		for _, name := range []string{"./main.py", "wrong.py", "warns.py", "pkg", "none.py", "/w", "/dev/null"} {
			cold, warm := s.exec("box", nil, "python3", name), s.exec("box", object{"warm": true}, "python3", name)
			same(b.t, name+": standard output", cold.Stdout, warm.Stdout)
			same(b.t, name+": standard error", cold.Stderr, warm.Stderr)
			same(b.t, name+": exit status", cold.ExitCode, warm.ExitCode)
			if warm.Warm == nil || *warm.Warm || warm.WarmWhy == "" {
				b.t.Errorf("%s: %+v", name, warm)
			}
		}
		s.end()
	})
}

// notWarm wants the program to have an interpreter of its own, and to be told why.
func (s *serving) notWarm(id, why string, more object, argv ...string) result.Result {
	s.b.t.Helper()
	with := object{"warm": true}
	maps.Copy(with, more)
	r := s.exec(id, with, argv...)
	if r.Warm == nil || *r.Warm || !strings.Contains(r.WarmWhy, why) {
		s.b.t.Errorf("%q %v: %+v, want it not to be warm: %s", argv, more, r, why)
	}
	return r
}

// TestWarmIsRefused: what would be otherwise than by an interpreter of its own gets one.
func TestWarmIsRefused(t *testing.T) {
	flavours(t, func(b *box) {
		s := b.stdio()
		s.warmed(tmpfsPolicy(), 1)
		code := []string{"python3", "-c", "import os; print(os.getcwd())"}
		s.exec("box", nil, "mkdir", "d")
		for _, c := range []struct {
			why  string
			more object
			argv []string
		}{
			{"options", nil, []string{"python3", "-B", "-c", "1"}},
			{"options", nil, []string{"python3", "-c1"}},
			{"options", nil, []string{"python3", "-"}},
			{"no program", nil, []string{"python3"}},
			{"only python3", nil, []string{"sh", "-c", "echo 1"}},
			{"variable", object{"env": object{"PYTHONHASHSEED": "1"}}, code},
			{"variable", object{"env": object{"LD_PRELOAD": ""}}, code},
			{"variable", object{"env": object{"TZ": "UTC"}}, code},
			{"variable", object{"env": object{"LC_ALL": "C"}}, code},
			{"less memory", object{"pids": 20}, code},
			{"files are written", object{"put": object{"x": "y"}}, code},
			{"directories of its own", object{"fresh": []string{"d"}}, code},
			{"terminal", object{"tty": object{"rows": 10, "cols": 20}}, code},
			{"view", object{"read": []string{"/etc/hostname"}}, code},
		} {
			s.notWarm("box", c.why, c.more, c.argv...)
		}
		if r := s.exec("box", object{"cwd": "/none", "warm": true}, code...); r.Error == nil || r.Error.Code != "cwd_missing" {
			b.t.Errorf("no directory: %+v", r)
		}
		s.both(b.t, nil, code...) // after all that

		path := object{"version": 1, "workspace": object{"source": "tmpfs", "path": "/w"}, "env": object{"set": object{"PYTHONPATH": "/w"}}}
		s.does("create", object{"id": "path", "policy": path}, nil)
		s.notWarm("path", "before", nil, code...)
		s.notWarm("path", "PYTHONPATH is set", nil, code...)
		for _, bad := range []object{{"python3": 0}, {"python3": 17}, {"sh": 1}, {"python3 -c": 1}} {
			s.refuses("create", object{"policy": tmpfsPolicy(), "warm": bad}, "", "cannot be kept ready")
		}
		s.end()
	})
}

// TestWarmLimits: limits count from when the program begins, and hold as for any other.
func TestWarmLimits(t *testing.T) {
	flavours(t, func(b *box) {
		s := b.stdio()
		p := tmpfsPolicy()
		p["limits"] = object{"wall": "6s", "cpu": "1s", "memory": "200M", "pids": 40, "idle": "2s", "disk": "10M", "file": "1M"}
		s.warmed(p, 1)
		time.Sleep(2500 * time.Millisecond) // longer than idle, and than what the wall clock leaves to a program
		s.both(b.t, nil, "python3", "-c", "print(1)")
		for name, c := range map[string]struct{ code, outcome string }{
			"idle":   {"import time; time.sleep(9)", result.IdleTimeout},
			"wall":   {"import time\nwhile 1: print(1, flush=True); time.sleep(.3)", result.Timeout},
			"cpu":    {"import time\nn = 0\nwhile 1:\n  if time.time() > n: print(1, flush=True); n = time.time() + .2", result.CPUExceeded},
			"memory": {"x = b'x' * (400 << 20)", result.MemoryExceeded},
			"file":   {"open('f', 'wb').write(b'x' * (2 << 20))", result.FileExceeded},
		} {
			r := s.exec("box", object{"warm": true}, "python3", "-c", c.code)
			cold := s.exec("box", nil, "python3", "-c", c.code)
			if !*r.Warm || r.Outcome != cold.Outcome || r.Outcome != c.outcome && name != "file" {
				b.t.Errorf("%s: %s (warm %v), %s where it has its own", name, r.Outcome, *r.Warm, cold.Outcome)
			}
		}
		r := s.exec("box", object{"warm": true, "timeout": 0.3}, "python3", "-c", "import time; print(1, flush=True); time.sleep(9)")
		if !*r.Warm || r.Outcome != result.Timeout || r.Stdout != "1\n" || r.Usage.WallMS < 250 || r.Usage.WallMS > 1500 {
			b.t.Errorf("timeout: %+v", r)
		}
		s.end()
	})
}

// TestWarmSeesNow: what programs and others have changed since an interpreter was started.
func TestWarmSeesNow(t *testing.T) {
	flavours(t, func(b *box) {
		s := b.stdio()
		denied := b.mkdir("work")
		p := object{
			"version": 1, "workspace": object{"source": denied, "path": "/w"}, "files": object{"deny": []string{filepath.Join(denied, "answers")}},
			"env": object{"set": object{"HOME": "/w/home"}},
		}
		s.warmed(p, 1)
		time.Sleep(300 * time.Millisecond)
		// What site reads is read when the program begins, not before.
		s.exec("box", nil, "python3", "-c", `import os, site
d = site.getusersitepackages()
os.makedirs(d)
open(d + "/usercustomize.py", "w").write("print('customized')")
open(d + "/x.pth", "w").write("/w/more\nimport sys; print(sys.argv, 'pth')")
os.makedirs("/w/more")
open("/w/os.py", "w").write("print('mine')")`)
		s.both(b.t, nil, "python3", "-c", "import sys, os; print(sys.path, os)")
		// Something denied appears on the host: an interpreter that was started before has no cover over it.
		if err := os.WriteFile(filepath.Join(denied, "answers"), []byte("secret"), 0o644); err != nil {
			b.t.Fatal(err)
		}
		for range 3 {
			r := s.notWarm("box", "denied", nil, "python3", "-c", "print(open('answers').read())")
			if r.ExitCode == 0 || strings.Contains(r.Stdout, "secret") {
				b.t.Errorf("denied: %+v", r)
			}
		}
		// An interpreter that programs can write is never kept ready.
		bin := filepath.Join(denied, "bin")
		if err := os.Mkdir(bin, 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.Symlink("/usr/bin/python3", filepath.Join(bin, "python3")); err != nil {
			b.t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(denied, "answers")); err != nil {
			b.t.Fatal(err)
		}
		for range 3 {
			r := s.exec("box", object{"warm": true}, "/w/bin/python3", "-c", "print(1)")
			if *r.Warm || !strings.HasSuffix(r.Stdout, "\n1\n") {
				b.t.Errorf("an interpreter of the program's: %+v", r)
			}
			time.Sleep(1200 * time.Millisecond)
		}
		s.notWarm("box", "programs could write", nil, "/w/bin/python3", "-c", "print(1)")
		s.end()
	})
}

// TestWarmIsApart: other programs do not reach one that waits; one that has died is replaced; all end with the sandbox, and the record is whole.
func TestWarmIsApart(t *testing.T) {
	flavours(t, func(b *box) {
		s := b.stdio()
		record := b.path("record")
		s.does("create", object{"id": "box", "policy": tmpfsPolicy(), "record": record, "warm": object{"python3": 2}}, nil)
		time.Sleep(300 * time.Millisecond)
		r := s.exec("box", nil, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -9 -1; cat /proc/net/unix")
		if r.ExitCode != 0 || strings.Contains(r.Stdout, "python3 -S") || strings.Count(r.Stdout, "\n") != 1 { // of sockets a headline alone
			b.t.Errorf("seen: %+v", r)
		}
		waits := warmProcesses(b.t, s.cmd.Process.Pid)
		same(b.t, "interpreters that wait", 2, len(waits))
		for _, pid := range waits {
			env, _ := os.ReadFile("/proc/" + pid + "/environ")
			if strings.Contains(string(env), "HOME=") {
				b.t.Errorf("it was started with %q", env)
			}
			n, err := strconv.Atoi(pid)
			if err != nil {
				b.t.Fatal(err)
			}
			if p, err := os.FindProcess(n); err != nil || p.Kill() != nil {
				b.t.Errorf("%s: %v", pid, err)
			}
		}
		for range 2 {
			r := s.exec("box", object{"warm": true}, "python3", "-c", "print(1)")
			same(b.t, "output", "1\n", r.Stdout)
		}
		s.both(b.t, nil, "python3", "-c", "print(1)")
		s.does("delete", object{"sandbox": "box"}, nil)
		same(b.t, "interpreters that wait", 0, len(warmProcesses(b.t, s.cmd.Process.Pid)))
		s.end()
		if a := b.run("verify", filepath.Join(record, "record.jsonl")); a.status != 0 {
			b.t.Errorf("verify: %+v", a)
		}
	})
}

// warmProcesses are the interpreters that a server has started and that wait.
func warmProcesses(t *testing.T, server int) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	children := map[string]string{}
	for _, name := range all {
		pid := strings.Split(name, "/")[2]
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		children[pid] = fields[1]
	}
	for pid, parent := range children {
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if strings.HasPrefix(string(line), "python3\x00-S\x00-c\x00") && children[parent] == strconv.Itoa(server) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestWarmUnderPolicies: what a policy says of processes holds for an interpreter that waited as for any other.
func TestWarmUnderPolicies(t *testing.T) {
	flavours(t, func(b *box) {
		const tries = `import os, subprocess, ctypes.util
for do in (lambda: subprocess.run(["true"]).returncode, lambda: os.execv("/bin/true", ["true"]), lambda: os.fork() or os._exit(0)):
  try: print(do())
  except OSError as e: print(e)
`
		for name, processes := range map[string]object{
			"no spawn": {"spawn": false}, "execute": {"execute": []string{"/usr/bin/python3"}}, "native": {"native": false}, "guard": {"guard": "python"},
		} {
			b.t.Run(name, func(t *testing.T) {
				s := b.stdio()
				p := tmpfsPolicy()
				p["processes"] = processes
				s.warmed(p, 1)
				if name == "guard" {
					s.notWarm("box", "guard", nil, "python3", "-c", "print(1)")
				} else {
					s.both(t, nil, "python3", "-c", tries)
				}
				s.end()
			})
		}
	})
}
