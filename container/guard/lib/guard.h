// What the two files of the guard share, what the launcher and the guard share, and the parts of Python's interface that are used:
// the same from 3.8 to 3.14.
#include <asm/unistd.h>
#include <stddef.h>
#include <stdint.h>

#define SYS_exit_group __NR_exit_group
#define SYS_mmap __NR_mmap
#define SYS_close __NR_close
#define SYS_prctl __NR_prctl
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define PR_SET_DUMPABLE 4
#define AF_UNIX 1

#define GUARD_OPTION "--sandboxrun-guard"
#define GUARD_FD 5
#define GUARD_MAGIC 0x31647267u // "grd1"
#define GUARD_FAILED 125
#define GUARD_EXCEEDED 121

enum { GUARD_ABSENT, GUARD_LOADED, GUARD_NO_PYTHON };

// The board is memory that the launcher shares with the guard. container/guard/guard.go has the same layout.
struct board {
	uint32_t magic, state;
	uint64_t limit;             // steps; 0: none
	uint64_t counts;            // steps are counted, up to this limit
	uint64_t steps;             // counted
	uint32_t exceeded, refused; // refused: events
	char native[4056];          // directories that native extensions may come from: each ends with 0, the list with an empty one
};

#define WEAK __attribute__((weak))
typedef struct object PyObject;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
struct method { const char *name; PyCFunction call; int flags; const char *doc; };
struct inittab { const char *name; void *init; };
struct object { intptr_t refs; void *type; struct method *method; }; // of a built-in function, in Python 3.11 and before

struct member { intptr_t refs; void *type, *of, *name, *qualified; struct { const char *name; int type; long offset; } *about; }; // of a descriptor

extern WEAK int *__errno_location(void);
extern WEAK int Py_IsInitialized(void);
extern WEAK int PySys_AddAuditHook(int (*)(const char *, PyObject *, void *), void *);
extern WEAK PyObject *PyErr_Format(PyObject *, const char *, ...);
extern WEAK PyObject *PyErr_Occurred(void);
extern WEAK void PyErr_Clear(void);
extern WEAK long PyTuple_Size(PyObject *);
extern WEAK PyObject *PyTuple_GetItem(PyObject *, long);
extern WEAK const char *PyUnicode_AsUTF8(PyObject *);
extern WEAK long PyLong_AsLong(PyObject *);
extern WEAK long PyDict_Size(PyObject *);
extern WEAK int PyDict_DelItemString(PyObject *, const char *);
extern WEAK PyObject *PyDict_GetItemString(PyObject *, const char *);
extern WEAK void PyDict_Clear(PyObject *);
extern WEAK PyObject *PyModule_GetDict(PyObject *);
extern WEAK const char *Py_GetVersion(void);
extern WEAK PyObject *PyList_GetItem(PyObject *, long);
extern WEAK PyObject *PyImport_ImportModule(const char *);
extern WEAK PyObject *PyObject_GetAttrString(PyObject *, const char *);
extern WEAK int PyObject_SetAttrString(PyObject *, const char *, PyObject *);
extern WEAK PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
extern WEAK PyObject *PyObject_CallFunction(PyObject *, const char *, ...);
extern WEAK PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *);
extern WEAK int PyCallable_Check(PyObject *);
extern WEAK PyObject *PyCFunction_NewEx(struct method *, PyObject *, PyObject *);
extern WEAK PyObject *Py_BuildValue(const char *, ...);
extern WEAK void PyEval_SetTrace(int (*)(PyObject *, void *, int, PyObject *), PyObject *);
extern WEAK void PyType_Modified(PyObject *);
extern WEAK void Py_IncRef(PyObject *);
extern WEAK void Py_DecRef(PyObject *);
extern WEAK PyObject _Py_NoneStruct, PyFrame_Type;
extern WEAK PyObject *PyExc_PermissionError, *PyExc_ImportError;
extern WEAK struct inittab *PyImport_Inittab;

long guard_syscall(long number, long a, long b, long c, long d, long e, long f);
void guard_end(int status) __attribute__((noreturn));
int guard_same(const char *a, const char *b);
int guard_starts(const char *s, const char *with);
size_t guard_length(const char *s);

void guard_use(struct board *b);
int guard_counts(void); // whether steps are counted already
int guard_count(void);  // begins to count them; 0 or -1
void guard_begin(void); // the program begins: what came before does not count
void guard_trace(int (*with)(PyObject *, void *, int, PyObject *)); // traces this thread, without an event that is refused
