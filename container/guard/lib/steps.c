// The step budget: a step is a line of Python that begins to run. Python counts nothing by itself, so each line calls the guard: from
// 3.12 on by a tool of sys.monitoring, for all threads; before by a C trace function of each thread.
#include "guard.h"

#define METH_VARARGS 1
#define METH_FASTCALL 0x80
#define TRACE_LINE 2
#define TRACE_OPCODE 7
#define TOOL 4 // of those that Python gives no purpose

// Before the program begins, site runs files that an earlier program may have left, so lines count then too. No installation has as many.
#define STARTING 1000000

// The most instructions of one line that pass without a jump back. See stuck.
#define LONGEST 100000

static struct board *board;
static int begun;

void guard_use(struct board *b) { board = b; }

int guard_counts(void) { return board->counts != 0; }

void guard_begin(void)
{
	if (begun)
		return;
	begun = 1;
	__atomic_store_n(&board->steps, 0, __ATOMIC_RELAXED);
}

// The program is not asked: an exception it could catch.
static void step(void)
{
	uint64_t most = board->limit + (begun ? 0 : STARTING);
	if (__atomic_add_fetch(&board->steps, 1, __ATOMIC_RELAXED) <= most)
		return;
	__atomic_store_n(&board->steps, board->limit, __ATOMIC_RELAXED);
	__atomic_store_n(&board->exceeded, 1, __ATOMIC_RELEASE);
	guard_end(GUARD_EXCEEDED);
}

static long opcodes; // offset in a frame of the switch for events of each instruction; 0: they are not needed
static __thread long since __attribute__((tls_model("initial-exec"))); // since the last line of this thread: instructions, or jumps back

// stuck: in Python 3.10 and 3.11 "while True: pass" is one instruction that jumps to itself, and has no event of a line.
static void stuck(void)
{
	if (++since > LONGEST)
		step();
}

static int on_trace(PyObject *self, void *frame, int what, PyObject *arg)
{
	(void)self, (void)arg;
	if (what == TRACE_OPCODE) {
		stuck();
		return 0;
	}
	since = 0;
	if (opcodes)
		((char *)frame)[opcodes] = 1;
	if (what == TRACE_LINE)
		step();
	return 0;
}

static PyObject *none(void)
{
	Py_IncRef(&_Py_NoneStruct);
	return &_Py_NoneStruct;
}

static PyObject *on_line(PyObject *self, PyObject *const *args, long n)
{
	(void)self, (void)args, (void)n;
	since = 0;
	step();
	return none();
}

static PyObject *disable;

// on_jump: from Python 3.12 on, a loop of one line has an event of its first line alone. There each jump back is a step.
static PyObject *on_jump(PyObject *self, PyObject *const *args, long n)
{
	(void)self;
	if (n != 3 || PyLong_AsLong(args[2]) > PyLong_AsLong(args[1])) {
		Py_IncRef(disable);
		return disable;
	}
	if (since++ > 0)
		step();
	return none();
}

static struct method line_method = {"line", (PyCFunction)on_line, METH_FASTCALL, 0};
static struct method jump_method = {"jump", (PyCFunction)on_jump, METH_FASTCALL, 0};

// listen has a tool's function called for an event. It returns the event's number, or 0.
static long listen(PyObject *monitoring, const char *event, struct method *method)
{
	PyObject *events = PyObject_GetAttrString(monitoring, "events"), *kind = events ? PyObject_GetAttrString(events, event) : 0;
	PyObject *f = PyCFunction_NewEx(method, 0, 0);
	if (!kind || !f || !PyObject_CallMethod(monitoring, "register_callback", "iOO", TOOL, kind, f))
		return 0;
	Py_DecRef(f);
	Py_DecRef(events);
	return PyLong_AsLong(kind);
}

// by_monitoring empties sys.monitoring when it is set up: by its functions, which the garbage collector lists, a program could switch
// the events off.
static int by_monitoring(PyObject *sys, PyObject *monitoring)
{
	if (!(disable = PyObject_GetAttrString(monitoring, "DISABLE")) || !PyObject_CallMethod(monitoring, "use_tool_id", "is", TOOL, "sandboxrun"))
		return -1;
	long line = listen(monitoring, "LINE", &line_method), jump = listen(monitoring, "JUMP", &jump_method);
	if (line <= 0 || jump <= 0 || !PyObject_CallMethod(monitoring, "set_events", "il", TOOL, line | jump))
		return -1;
	PyDict_Clear(PyModule_GetDict(monitoring));
	Py_DecRef(monitoring);
	return PyObject_SetAttrString(sys, "monitoring", 0);
}

static PyCFunction start_thread;

// in_thread is what a thread of the program runs: it is traced from its first line on.
static PyObject *in_thread(PyObject *self, PyObject *args)
{
	(void)self;
	guard_trace(on_trace);
	PyObject *keywords = PyTuple_GetItem(args, 2);
	return PyObject_Call(PyTuple_GetItem(args, 0), PyTuple_GetItem(args, 1), keywords == &_Py_NoneStruct ? 0 : keywords);
}

static struct method thread_method = {"thread", in_thread, METH_VARARGS, 0};

// on_start_thread stands in the place of _thread.start_new_thread. What is wrong with the arguments that function says.
static PyObject *on_start_thread(PyObject *self, PyObject *args)
{
	long n = PyTuple_Size(args);
	PyObject *keywords = n == 3 ? PyTuple_GetItem(args, 2) : &_Py_NoneStruct;
	int fine = (n == 2 || n == 3) && PyCallable_Check(PyTuple_GetItem(args, 0)) && PyTuple_Size(PyTuple_GetItem(args, 1)) >= 0 &&
		(n == 2 || PyDict_Size(keywords) >= 0);
	if (PyErr_Occurred())
		PyErr_Clear();
	if (!fine)
		return start_thread(self, args);
	PyObject *thread = PyCFunction_NewEx(&thread_method, 0, 0);
	PyObject *with = thread ? Py_BuildValue("(N(OOO))", thread, PyTuple_GetItem(args, 0), PyTuple_GetItem(args, 1), keywords) : 0;
	PyObject *r = with ? start_thread(self, with) : 0;
	if (with)
		Py_DecRef(with);
	return r;
}

// without_switches takes the attributes from frames by which a program could switch the counting of their lines off.
static int without_switches(void)
{
	PyObject *gc = PyImport_ImportModule("gc"), *proxy = PyObject_GetAttrString(&PyFrame_Type, "__dict__");
	PyObject *inner = gc && proxy ? PyObject_CallMethod(gc, "get_referents", "O", proxy) : 0; // the dictionary behind the proxy
	PyObject *names = inner ? PyList_GetItem(inner, 0) : 0;
	PyObject *each = names ? PyDict_GetItemString(names, "f_trace_opcodes") : 0;
	if (each && (guard_starts(Py_GetVersion(), "3.10.") || guard_starts(Py_GetVersion(), "3.11.")))
		opcodes = ((struct member *)each)->about->offset;
	if (!each || PyDict_DelItemString(names, "f_trace_opcodes") != 0 || PyDict_DelItemString(names, "f_trace_lines") != 0 || PyDict_DelItemString(names, "f_trace") != 0)
		return -1;
	PyType_Modified(&PyFrame_Type);
	return 0;
}

// by_trace changes the function's entry, so that whatever name leads to it, it is this one.
static int by_trace(void)
{
	static const char *const names[] = {"start_new_thread", "start_new"};
	PyObject *threads = PyImport_ImportModule("_thread");
	for (int i = 0; threads && i < 2; i++) {
		PyObject *f = PyObject_GetAttrString(threads, names[i]);
		if (!f || !guard_same(f->method->name, names[i]) || f->method->flags != METH_VARARGS)
			return -1;
		start_thread = f->method->call;
		f->method->call = on_start_thread;
	}
	return threads ? without_switches() : -1;
}

int guard_count(void)
{
	PyObject *sys = PyImport_ImportModule("sys"), *monitoring = sys ? PyObject_GetAttrString(sys, "monitoring") : 0;
	if (!sys)
		return -1;
	if (PyErr_Occurred())
		PyErr_Clear();
	if ((monitoring ? by_monitoring(sys, monitoring) : by_trace()) != 0)
		return -1;
	if (!monitoring)
		guard_trace(on_trace);
	board->counts = board->limit;
	return 0;
}
