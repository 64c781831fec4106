// The guard of processes.guard = "python": a shared library that the launcher has the ELF loader put into the interpreter. Its
// audit hook is C code in the interpreter's own table of hooks, added before Python starts. So no Python object leads to it: not the
// garbage collector, frames, closures or modules; and a refusal has no frame of the guard in its traceback.
//
// It needs no libc, so that it suits the libc of every interpreter, and finds Python's functions by the loader.
#include "guard.h"

static struct board *board;
static __thread int ours __attribute__((tls_model("initial-exec"))); // this thread is arming: the events are the guard's own

long guard_syscall(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long r;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
#error "no system calls for this architecture"
#endif
}

void guard_end(int status)
{
	for (;;)
		guard_syscall(SYS_exit_group, status, 0, 0, 0, 0, 0);
}

int guard_same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

// below reports whether a path has dir, whole components of it, in front.
static int below(const char *path, const char *dir)
{
	while (*dir && *path == *dir)
		path++, dir++;
	return *dir == 0 && (*path == '/' || *path == 0);
}

static const char *last(const char *path, char at)
{
	const char *l = path;
	for (; *path; path++)
		if (*path == at)
			l = path + 1;
	return l;
}

static int plain(const char *path)
{
	for (const char *p = path; *p; p++)
		if (p[0] == '/' && p[1] == '.' && p[2] == '.' && (p[3] == '/' || p[3] == 0))
			return 0;
	return path[0] == '/';
}

// Events that are refused whatever their arguments are. A name that ends in '.' stands for all events that begin with it.
static const char *const refused[] = {
	"os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen", "pty.spawn", // processes
	"os.kill", "os.killpg", "signal.pthread_kill", "signal.pidfd_send_signal", // signals
	"ctypes.", "sqlite3.enable_load_extension", "sqlite3.load_extension", // native code
	"cpython.PyInterpreterState_New", // an interpreter has its own hooks, counts and modules
	"sys.remote_exec", "cpython.remote_debugger_script", 0};

// With a step budget: code that these call is not counted.
static const char *const uncounted[] = {"sys.settrace", "sys.setprofile", "sys.monitoring.register_callback", 0};

// Modules that give a program the memory of its process, by their last name. Where one is built into the interpreter it is not in
// its table of modules (see forget).
static const char *const unsafe[] = {"ctypes", "_ctypes", "_ctypes_test", "cffi", "_cffi_backend", "_testcapi", "_testinternalcapi",
	"_testlimitedcapi", "_xxsubinterpreters", "_interpreters", "_xxinterpchannels", "_interpchannels", 0};

static int listed(const char *name, const char *const *list)
{
	for (; *list; list++) {
		const char *a = name, *b = *list;
		while (*b && *a == *b)
			a++, b++;
		if (*b == 0 && (*a == 0 || b[-1] == '.'))
			return 1;
	}
	return 0;
}

static int refuse(PyObject *kind, const char *what)
{
	__atomic_add_fetch(&board->refused, 1, __ATOMIC_RELAXED);
	PyErr_Format(kind, "processes.guard = \"python\" refuses %s", what);
	return -1;
}

// text is an argument of an event, or nothing if that is no text.
static const char *text(PyObject *args, long i)
{
	PyObject *o = args && PyTuple_Size(args) > i ? PyTuple_GetItem(args, i) : 0;
	const char *s = o && o != &_Py_NoneStruct ? PyUnicode_AsUTF8(o) : 0;
	if (PyErr_Occurred())
		PyErr_Clear();
	return s;
}

static int is_none(PyObject *args, long i) { return args && PyTuple_Size(args) > i && PyTuple_GetItem(args, i) == &_Py_NoneStruct; }

static int on_socket(const char *event, PyObject *args)
{
	const char *what = event + sizeof "socket." - 1;
	if (guard_same(what, "__new__")) { // pairs of Unix sockets are a program's own: asyncio makes one
		long family = args && PyTuple_Size(args) > 1 ? PyLong_AsLong(PyTuple_GetItem(args, 1)) : 0;
		if (PyErr_Occurred())
			PyErr_Clear();
		if (family == AF_UNIX)
			return 0;
	}
	if (guard_same(what, "gethostname") || (guard_same(what, "sendmsg") && is_none(args, 1)))
		return 0;
	return refuse(PyExc_PermissionError, event);
}

// on_import: the event of an import by name has no file; that of a native extension has its path.
static int on_import(PyObject *args)
{
	const char *name = text(args, 0), *file = text(args, 1);
	if (!name)
		return 0;
	if (listed(last(name, '.'), unsafe) || below(name, "ctypes") || below(name, "cffi"))
		return refuse(PyExc_ImportError, last(name, '.'));
	if (!file)
		return is_none(args, 1) ? 0 : refuse(PyExc_ImportError, "a native extension whose path is no text");
	if (plain(file))
		for (const char *dir = board->native; *dir; dir += guard_length(dir) + 1)
			if (below(file, dir))
				return 0;
	return refuse(PyExc_ImportError, "native extensions outside the interpreter's own directories");
}

size_t guard_length(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

int guard_starts(const char *s, const char *with)
{
	while (*with && *s == *with)
		s++, with++;
	return *with == 0;
}

// hook is called for every event, by every thread that holds the interpreter's lock.
static int hook(const char *event, PyObject *args, void *unused)
{
	(void)unused;
	if (ours || !Py_IsInitialized())
		return 0;
	if (board->limit && !guard_counts() && ((guard_same(event, "import") && text(args, 0) && guard_same(text(args, 0), "site")) || guard_starts(event, "cpython.run_"))) {
		ours = 1; // site runs files that an earlier program may have left
		int failed = guard_count();
		ours = 0;
		if (failed)
			guard_end(GUARD_FAILED);
	}
	if (guard_starts(event, "cpython.run_"))
		guard_begin();
	if (guard_same(event, "import"))
		return on_import(args);
	if (guard_starts(event, "socket."))
		return on_socket(event, args);
	if (listed(event, refused) || (board->limit && listed(event, uncounted)))
		return refuse(PyExc_PermissionError, event);
	return 0;
}

void guard_trace(int (*with)(PyObject *, void *, int, PyObject *))
{
	int was = ours;
	ours = 1;
	PyEval_SetTrace(with, 0);
	ours = was;
}

// forget takes unsafe modules out of the table of those that are built in: they can be made past the event of an import.
static void forget(void)
{
	if (!&PyImport_Inittab || !PyImport_Inittab)
		return;
	struct inittab *to = PyImport_Inittab;
	for (struct inittab *from = to; from->name; from++)
		if (!listed(from->name, unsafe))
			*to++ = *from;
	to->name = 0;
}

// Python has ways to start a process that raise no event (_posixsubprocess). They call these, which the loader finds here first.
#define REFUSED(name) __attribute__((visibility("default"))) int name(void) { *__errno_location() = 1; return -1; }
REFUSED(fork)
REFUSED(vfork)
REFUSED(_Fork)
REFUSED(execve)
REFUSED(execv)
REFUSED(fexecve)

static void take_out(char **list, int at)
{
	for (; list[at]; at++)
		list[at] = list[at + 1];
}

// Before main: the launcher's word is the first argument. An interpreter without the guard does not know the option and ends, so
// nothing runs where the loader does not load this.
__attribute__((constructor)) static void load(int argc, char **argv, char **envp)
{
	if (argc < 2 || !guard_same(argv[1], GUARD_OPTION))
		guard_end(GUARD_FAILED);
	board = (struct board *)guard_syscall(SYS_mmap, 0, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, GUARD_FD, 0);
	if ((unsigned long)board >= -4095UL || board->magic != GUARD_MAGIC)
		guard_end(GUARD_FAILED);
	guard_syscall(SYS_close, GUARD_FD, 0, 0, 0, 0, 0);
	guard_use(board);
	if (!PySys_AddAuditHook || !__errno_location) {
		board->state = GUARD_NO_PYTHON;
		guard_end(GUARD_FAILED);
	}
	// /proc/self/mem then belongs to root, and the program cannot write the guard's memory by it.
	if (guard_syscall(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0, 0) != 0 || PySys_AddAuditHook(hook, 0) != 0)
		guard_end(GUARD_FAILED);
	forget();
	take_out(argv, 1);
	((long *)argv)[-1]--; // argc, which the program's entry reads from the stack
	for (int i = 0; envp[i]; i++)
		while (envp[i] && guard_starts(envp[i], "LD_PRELOAD="))
			take_out(envp, i);
	board->state = GUARD_LOADED;
}
