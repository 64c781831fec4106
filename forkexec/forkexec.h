// One exec in a sandbox, as the C side sees it. forkexec.go fills these in; every pointer is to C memory.
#ifndef FORKEXEC_H
#define FORKEXEC_H

#include <stddef.h>
#include <stdint.h>
#include <linux/filter.h>
#include <linux/limits.h>

struct fx_mount { // the arguments of one mount(2)
	const char *source, *target, *fstype, *data;
	unsigned long flags;
};

struct fx_rlimit {
	int resource;
	uint64_t cur, max;
};

// Which step failed, for the error message. forkexec.go has the names.
enum fx_step {
	FX_OK, FX_SPAWN, FX_GROUPS, FX_JOIN, FX_BECOME, FX_NAMESPACES, FX_MOUNT, FX_IDS, FX_USERNS, FX_MAP, FX_SESSION,
	FX_TTY, FX_STDIO, FX_RLIMIT, FX_PRIVILEGE, FX_DIR, FX_SECCOMP, FX_EXECVE, FX_REAPER, FX_CGROUP, FX_AFFINITY, FX_TERMINAL,
	FX_PUT, FX_VIEW, FX_EXECUTION, FX_SHOW, FX_LOOK, FX_CLAIM,
};

#define FX_CPUS 1024 // as many as a cpu_set_t has

enum fx_controller { FX_MEMORY = 1, FX_PIDS = 2, FX_CPU = 4, FX_CPUACCT = 8, FX_IO = 16 };

// What a control group is given, and what it counts. Go names the files (container/cgroup/files.go).
struct fx_write {
	const char *file;
	int64_t value;
	int optional;           // not every kernel has the file
};

struct fx_counter {
	const char *file;       // "": the group does not count it
	const char *word;       // the number follows it at the start of a line; "": the file's first number
	int64_t divisor;
};

enum fx_count { FX_COUNT_CPU, FX_COUNT_ANON, FX_COUNT_SHMEM, FX_COUNT_OOM_KILLS, FX_COUNT_PIDS_REFUSED, FX_COUNTERS };

#define FX_WRITES 3

// A control group in which the kernel limits or counts what an exec uses. groups.c makes one for each exec in the
// sandbox's own, which limits all of them together.
struct fx_cgroup {
	const char *parent;     // the sandbox's own group
	int unified;            // version 2, where one group has every controller
	unsigned controllers;   // of enum fx_controller: what is limited or counted here
	int own;                // whether the exec has a group of its own below it
	const char *join;       // version 1: the file into which a thread writes itself
	const char *shared;     // the file of parent that limits the processes of all execs together; "": it limits none
	struct fx_write writes[FX_WRITES];
	size_t n_writes;
	struct fx_counter counters[FX_COUNTERS];
	int fd;                 // version 1: of join; version 2: of the group
};

#define FX_CGROUPS 4
#define FX_GROUP_PATH 1024

extern int64_t fx_begun_us; // when this process began, by fx_now_us
extern char **fx_argv; // of this process; musl gives constructors no arguments
extern int fx_argc;
// The binary that a process runs whose /proc/self/exe is another file (small.c). NULL: it is that.
struct fx_self { uint64_t dev, ino; char name[16], path[PATH_MAX]; };
const struct fx_self *fx_self(void);
void fx_become_small(void);
extern int fx_first_parent; // who called this command: by the time that Go asks, that process may have ended

#define FX_CALLER_LIMITS 6
extern struct fx_rlimit fx_caller_limits[FX_CALLER_LIMITS]; // as the caller had them
#define FX_ADDRESSES 900 // MiB of address space in which this program works
#define FX_DATA 96
int fx_restore_limits(void);
void fx_need_addresses(void);

// Why an exec was ended.
// FX_UNHELD: the limits could not be looked after.
enum fx_why { FX_BY_ITSELF, FX_WALL, FX_IDLE, FX_CPU_TIME, FX_MEMORY_USED, FX_TASKS, FX_UNHELD };

#define FX_GRACE 250000 // microseconds that the supervisor has to end an exec and to report, before it is killed itself

// What an exec may use, and what it has used. The first part is decided beforehand; 0 is no limit.
struct fx_limits {
	int64_t wall_us, idle_us, cpu_us, memory, pids;
	int64_t sandbox_pids;   // of all execs together
	unsigned watched;       // of enum fx_controller: what no kernel limit stands behind, so that it is looked at
	unsigned cpus;          // on which the program can run, for the rate at which processor time can be used
	const char *const *tmpfs; // mount points of file systems in memory that count as memory where that is watched
	size_t n_tmpfs;
	struct fx_cgroup cgroups[FX_CGROUPS];
	size_t n_cgroups;
	int state;              // the sandbox's directory
	int unused;             // its number was not used: nobody has heard of it
	int check;              // no program is executed: it runs as every exec but takes no number, and is called number 0
	int64_t waits;          // not 0: it takes its number when it begins, and its groups are called by this until then and after

	uint64_t number;        // of this exec
	uint64_t nproc;         // RLIMIT_NPROC of the sandbox's user namespace, 0 if that is not how processes are limited
	const char *failed;     // which file or group could not be made or written
	volatile int proc;      // the exec's own /proc, or -1
	volatile int ipc[3];    // the lists of its IPC segments, queues of messages and semaphores
	volatile int sockets;   // a netlink socket in its network namespace that lists sockets
	int why;
	int measure;            // report how much memory it uses, whether that is limited or not
	int elsewhere;          // somebody else calls fx_limits_sample
	int once;               // the sandbox ends with this exec, and what is left of both is removed together
	void *thread;           // or a thread of ours
	int wake, stop;         // which writes to wake when a limit is exceeded, and ends when stop is written to
	int64_t started_us, sample_us, ramp_us, ended_us;
	int64_t cpu_used_us, cpu_last_us, cpu_gone_us;
	int64_t cpu_before_us, counted_before_us; // what was used while it waited: by the processes, and as the groups have it
	int64_t written, written_last, written_gone;
	int64_t memory_peak, tasks_peak, oom_kills, pids_events, pids_before;
	int64_t largest;        // the most memory that a process was seen with, where nobody counts it
	int64_t running_us, seen_us, closed_us; // when the program was executed, when largest was last looked for, and when all had ended

	// What hidden.c, sockets.c and memory.c know from their last looks.
	void *seen;
	uint64_t memory_dev;
	int64_t shared_began, shared_at, files_at, slab_at, hidden, pipes, hidden_us;
	int64_t in_sockets, pages_at, sockets_us, twins_us;
};

int fx_limits_look(const struct fx_limits *l);
int fx_limits_all(const struct fx_limits *l);
int fx_limits_open(struct fx_limits *l);
void fx_limits_started(struct fx_limits *l);
void fx_limits_overdue(struct fx_limits *l);
int64_t fx_limits_check(struct fx_limits *l, int64_t output_us);
int64_t fx_limits_sample(struct fx_limits *l);
void fx_limits_stop(struct fx_limits *l);
int64_t fx_limits_written(struct fx_limits *l);
void fx_limits_settle(struct fx_limits *l);
void fx_limits_close(struct fx_limits *l);
int64_t fx_now_us(void);
int fx_exec_name(const struct fx_limits *l, char *buf, size_t size);

// When a call of a check is made.
enum fx_stage {
	FX_AT_ENTRY,   // first of all, in the program's user namespace with every capability there
	FX_UNFILTERED, // last before the seccomp filter
	FX_IN_PLACE,   // where the program would run
};

#define FX_FROM_PROC -2 // in place of a call: the exec's procfs, under its cover
#define FX_PROC 6 // where that is in a check's process; a program does not get it

// A system call that a check makes as the program would. calls.go fills these in.
struct fx_call {
	long number, arg[6];
	int stage;
	int from;               // the call whose result is the first argument, or FX_FROM_PROC, or -1
	volatile long result;   // -1 where it failed, with err
	volatile int err, done;
};

// A file to be written before the program is executed, or a directory to be made: put.c.
struct fx_put {
	const char *parent;     // of a directory that is to be made; NULL: this is a file
	const char *name;       // relative to the working directory, or to parent
	const void *data;
	size_t size;
	unsigned mode;          // less the umask
};

// One step of showing an exec what others do not see: view.c.
enum fx_view_kind {
	FX_VIEW_HOLD,    // copy what is mounted at target, for the step with the number attributes
	FX_VIEW_ATTACH,  // put the copy fd at target
	FX_VIEW_COVER,   // put a new tmpfs with the options source over the directory target. Until it is covered the next steps' targets are in it
	FX_VIEW_COVERED, // with these attributes
	FX_VIEW_DIR, FX_VIEW_FILE, FX_VIEW_LINK, // make one
	FX_VIEW_AGAIN,   // show what is under the cover
	FX_VIEW_MASK_DIR, FX_VIEW_MASK_FILE,
};

struct fx_view_step {
	int kind;
	int fd, ours;
	const char *source, *target;
	uint64_t attributes;    // MOUNT_ATTR_*
};

// What the program must see of it.
struct fx_view_check {
	const char *path;
	int denied;             // it cannot be opened
	int empty;              // and if it can, nothing is in it
	int writable;
	uint64_t dev, ino;      // else it is this file, on a read-only mount
};

struct fx_trees {
	int target;             // pidfd of the sandbox's process 1
	const char *const *paths;
	size_t n;
	uint64_t attributes;    // MOUNT_ATTR_*, of all
	volatile int *fds;
	char *stacks;
	volatile size_t done;
	volatile int err;
};
void fx_copy_trees(struct fx_trees *t);

// A mount that the launcher makes for another process: theirs.c.
struct fx_theirs {
	int userns, mntns, root, cwd; // descriptors of its own
	int uid, gid;
	const char *source, *target, *type, *data;
	unsigned long flags;
	char *stacks;
	int err;
};
void fx_mount_theirs(struct fx_theirs *t);

#define FX_FRESH (1ul << 40) // in the flags of a mount: fx_mount_fresh
#define FX_COVER (1ul << 41) // in the flags of a mount: it covers the program's /proc, and is made when the launcher has opened what is under it

struct fx_exec {
	int target;             // pidfd of the sandbox's process 1
	int namespaces;         // CLONE_NEW* flags of what is joined
	int drop_groups;        // the caller may, so must, drop its supplementary groups
	const struct fx_mount *mounts;
	size_t n_mounts;
	int uid, gid;           // numbers of the program in the sandbox's user namespace
	const char *uid_map, *gid_map;
	const char *path;
	char *const *argv;
	char *const *envp;
	const char *dir;
	int stdio[3];
	int tty;                // the program gets a new terminal of the exec's own devpts instead of stdio
	unsigned short rows, cols;
	const void *termios;    // its settings, as the kernel takes them; NULL: the kernel's own
	unsigned umask;
	const struct fx_rlimit *rlimits;
	size_t n_rlimits;
	const unsigned long *cpus; // the only processors that it may use, FX_CPUS bits, or NULL
	struct fx_limits *limits;
	struct sock_fprog filter;
	const char *const *execute; // the only files that the program can execute
	size_t n_execute;       // 0: all
	int once;               // the program can execute no other
	uint64_t key[3];        // with which the launcher itself executes it; see once.c
	int asks;               // the filter asks: listener is where
	int ask[2];             // the sockets by which that is sent to us
	int stub;               // the stub's memfd
	int waiter;             // a pidfd whose end ends the exec, or -1
	int status;             // where the reaper writes struct fx_status
	int signals;            // a signalfd that does not block, or -1: a signal that ends a start which takes long
	const volatile int32_t *cancel; // the same from another thread: a signal's number, or 0. May be NULL
	char *stacks;           // FX_STACKS bytes
	struct fx_call *calls;  // made instead of executing the program, if there are any
	size_t n_calls;
	const struct fx_put *puts;
	size_t n_puts;
	int result;             // descriptor 3 of the program; 0: it has none
	int guard;              // descriptor FX_GUARD of the program, which its guard closes; 0: it has none
	int keep_view;          // its view is to be kept open: view[]
	struct fx_view_step *view_steps;
	size_t n_view_steps, n_view_first; // these before the mounts, the others after
	const struct fx_view_check *view_checks;
	size_t n_view_checks;

	// Results. The children share our memory until they exec, so that no pipe is needed to hear of their failures.
	volatile int step, err;
	volatile size_t index;  // which mount or limit
	volatile int reaper_pidfd, program_pidfd;
	volatile int cancelled; // the signal that has ended the start, or 0
	volatile int beside;    // the program's process is made before the mounts: beside.c
	volatile int built;     // then: 1 when they are all there, -1 where they will not be
	volatile int unstarted; // then: 0 when the program has been executed, or its process has ended
	volatile int master, slave; // the terminal's ends; the outer one is the launcher's
	volatile int proc;      // the exec's procfs, or -1
	volatile int listener;  // of the filter, or -1
	volatile int view[2];   // the root of the exec's view, and its mount namespace; or -1
	volatile int helpers[2]; // pids of the two processes that led there, to be reaped by us
};

#define FX_STACK (16 * 1024) // signals are blocked and nothing here is deep
#define FX_STACKS (4 * FX_STACK)

struct fx_status { // what the reaper reports, in host byte order
	int32_t wait_status;
	uint32_t tasks;
	int64_t utime_us, stime_us, maxrss_kib, written_blocks;
	int64_t left; // processes that were still there when the program ended
	int64_t faults; // pages that all of them have touched first, and no disk was read for
};

int fx_put_all(const struct fx_exec *x, size_t *failed);
int fx_mount_fresh(const struct fx_mount *m);
int fx_keep_namespace(struct fx_exec *x);
int fx_keep_view(struct fx_exec *x);
int fx_show_view(struct fx_exec *x, size_t from, size_t to, size_t *failed);
int fx_check_view(const struct fx_exec *x, size_t *failed);

#define FX_RESULT 3   // what the program writes its own answer to
// The beginning and the end of a stream, as container.keeper keeps them: data is as long as limit, and its second half a ring.
struct fx_kept { char *data; size_t limit, len, next; };

#define FX_RESULT_NAME 48
#define FX_RESULT_PREFIX ".sandboxrun-result-"

// An exec that was run before the Go runtime started (short.h), where there is more to say of it than that its program has
// exited: then it is for Go to judge. short.go reads it.
struct fx_short {
	int ran;                // there is one; all its processes are gone
	struct fx_limits *limits;
	struct fx_status status;
	int reported, cancelled; // the supervisor has reported; the signal by which the start was ended, or 0
	int64_t wall_us, launcher; // how long it took; the most memory that we had when it was started
	struct fx_kept kept[2]; // of standard output and error, where they are kept
	int64_t total[2];       // bytes
	int failed[2];          // errno of writing them
	int merged;             // both are one pipe
	int input_failed;       // errno of reading standard input
	int relay_gone;
	int note_failed;        // errno of writing the event of its start
	int noted;              // that of its end is written
	int printed;            // the result has gone to standard output, or was to go there, and
	int print_failed;       // errno of that
	int result_dir, result_file; // of --result; -1
	int result_given, result_failed;
	char result_name[FX_RESULT_NAME]; // of the file, until it is whole
	const char *sealed;     // what process 1 holds
	size_t sealed_size;
	const int *absent;      // for each denied path where nothing was its grant's descriptor
	size_t n_absent;
};

extern struct fx_short fx_short;

// What stands in a template (Answer in launch.go) in place of a value: FX_HOLE and one of these.
#define FX_HOLE 1
enum fx_hole {
	FX_HOLE_TIME = 2, FX_HOLE_EXEC, FX_HOLE_COMMAND, FX_HOLE_FINDING, FX_HOLE_STATUS, FX_HOLE_STDOUT, FX_HOLE_STDERR, FX_HOLE_STDOUT_BYTES,
	FX_HOLE_STDERR_BYTES, FX_HOLE_WALL, FX_HOLE_CPU, FX_HOLE_RSS, FX_HOLE_WRITTEN, FX_HOLE_TASKS, FX_HOLE_WALL_LIMIT, FX_HOLE_CPU_LIMIT,
	FX_HOLES,
};

int64_t fx_high_water(void);
int64_t fx_own_most(void);
int64_t fx_used_memory(const struct fx_limits *l, int64_t maxrss, int64_t faults, int64_t launcher);
int64_t fx_used_cpu(const struct fx_limits *l, int64_t cpu_us);
int64_t fx_json_text(char *to, const char *from, size_t n);

#define FX_GUARD 5 // container/guard/lib/guard.h has it too
#define FX_LISTENER 3 // where the socket for the filter's listener is until the program is executed
int fx_load_filter(const struct fx_exec *x);
int fx_load_once(struct fx_exec *x);
void fx_start(struct fx_exec *x);

#define FX_STOPPED 4096

struct fx_stopped {         // the processes that fx_stop has stopped
	uint64_t ns;            // the number of their PID namespace
	int reaper, n, more;    // more: there were more than fit
	int pid[FX_STOPPED];
};

void fx_stop(struct fx_stopped *s, int reaper_pidfd);
void fx_continue(const struct fx_stopped *s);
void fx_stop_self(int group);
int fx_pid_of(int pidfd);

struct fx_claim {           // a sandbox that a pool has given to this process, for one run
	int fd;                 // the connection to the pool, whose end is the sandbox's; -1: there is none
	char id[64];
	const char *dir;        // that its program starts in; empty: the policy's
	int sure;               // the pool has made sure that the policy means the same as when it made the sandbox
};

extern struct fx_claim fx_claim;

extern int fx_closed_streams; // a bit for each of the descriptors 0 to 2 that was closed when this process began
int fx_calls_need_proc(const struct fx_exec *x);
void fx_call(const struct fx_exec *x, int stage);

#define FX_SEALED_FD 6                // of process 1; see stub.c and sealed.go
#define FX_READY 'r'                  // the words to process 1; see stub.c
#define FX_COMPLETE 'c'
#define FX_SEALED_MAGIC 0x3565736273ull // "sbse5"; another for another layout
#define FX_SEALED_MAX (16 << 20)
#define FX_LAUNCH_MAGIC 0x37786273u // "sbx7": the form of the launch file; see launch.go and plan.c

// One step of building a sandbox's view.
enum fx_op_kind { FX_OP_MKDIR, FX_OP_SYMLINK, FX_OP_FILE, FX_OP_MOUNT, FX_OP_BIND, FX_OP_ATTR, FX_OP_MOVE, FX_OP_ROOT,
	FX_OP_SYSCTL, FX_OP_CGROUP, FX_OP_NETWORK, FX_OP_TIMES, FX_OP_WHITEOUT, FX_OP_HIDE };

struct fx_op {
	int kind;
	int fd;                 // FX_OP_MOVE: a detached tree of mounts
	const char *source, *target, *fstype, *data;
	size_t size;            // FX_OP_FILE: of data
	unsigned long flags;    // mode, mount flags or MOUNT_ATTR_* to be set
	int64_t modified;       // FX_OP_FILE, FX_OP_TIMES: nanoseconds since 1970, 0: now
};

struct fx_build {
	int target, namespaces; // as in fx_exec
	const struct fx_op *ops;
	size_t n_ops;
	char *stacks;
	volatile int step, err;
	volatile size_t index;
	volatile unsigned missing; // of enum fx_network_missing
};

// What the network of a sandbox's own lacks, since this machine refused it.
enum fx_network_missing { FX_NO_LOW_PORTS = 1, FX_NO_PING = 2, FX_NO_ADDRESSES = 4 };
#define FX_LOOPBACK6 "fd73:616e:6462:6f78::1" // a local address of our own: "sandbox" in its digits
unsigned fx_network(int low_ports, int ping_group);

void fx_build(struct fx_build *b);

// The kernel's, which not every libc's headers have.
struct fx_mount_attr { uint64_t attr_set, attr_clr, propagation, userns_fd; };
#define FX_MOVE_MOUNT_F_EMPTY_PATH 4
#define FX_MOVE_MOUNT_T_EMPTY_PATH 0x40
#define FX_OPEN_TREE_CLONE 1
#define FX_MOUNT_ATTR_RDONLY 1

// A socket that listens in a sandbox's network namespace.
struct fx_addr {
	unsigned char ip[16];   // network order; the first four bytes for IPv4
	uint16_t port;
	uint8_t v6, udp;
	uint8_t optional;       // it is left out where there is no such address
};

struct fx_listen {
	int target;             // pidfd of the sandbox's process 1
	const struct fx_addr *addrs;
	size_t n;
	volatile int *fds;      // n of them; -1: left out
	char *stacks;
	volatile size_t done;   // how many were made; the next one failed with err
	volatile int err;
};

void fx_listen(struct fx_listen *l);

// How this binary is started to be a relay (container/relayproc/relay.go): with these two words, an id, and no variable.
#define FX_RELAY_NAME "sandboxrun"
#define FX_RELAY_COMMAND "relay"
#define FX_MODES_COMMAND "modes" // answers what a filter asks of the short way: container/chmod

enum fx_probe_step {
	FX_PROBE_OK, FX_PROBE_USERNS, FX_PROBE_MAP, FX_PROBE_NAMESPACES, FX_PROBE_MOUNT, FX_PROBE_ATTR, FX_PROBE_NETWORK,
	FX_PROBE_PROC, FX_PROBE_NESTED,
};

int fx_user_namespace(const char *uids, const char *gids, char *stacks, int *err);

int fx_probe_nproc(int uid, int gid, char *stacks);
#define FX_ROOM 16 // processes and threads: more than making a sandbox takes
int fx_probe_room(char *stacks);
int fx_probe(int uid, int gid, char *stacks, int *err);

// Directories, and for each why no overlay can hide a name in it: an errno, or 0.
struct fx_overlays { int uid, gid; size_t n; const char *const *dirs; int *errs; };
int fx_probe_overlays(struct fx_overlays *o, char *stacks);

// What is tried by itself (ability.c).
enum fx_ability { FX_CAN_OVERLAY, FX_CAN_MOVE_TREES, FX_CAN_NO_NEW_PRIVS, FX_CAN_FILTER, FX_CAN_KEYRING };
enum fx_outcome { FX_CAN, FX_CANNOT, FX_NOT_TRIED }; // the last: what has to come before it failed
int fx_try(enum fx_ability what, int uid, int gid, const struct sock_fprog *filter, char *stacks, int *err);

const void *fx_stub_code(void);
unsigned long fx_stub_size(void);
unsigned long fx_stub_entry(void);

#endif
