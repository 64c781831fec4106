// From one process outside to a program inside, in four clones. None copies the launcher: each child borrows its memory
// (CLONE_VM) and its parent sleeps (CLONE_VFORK) until it has exec'd or is gone, so at any time one of them runs. The program alone may have its
// process made while init has more to do: beside.c.
//
//   launcher --- join ......... enters the sandbox's namespaces; the PID one counts for its children only
//            --- member ....... so this one is in it, and may nest a PID namespace in it
//            --- init ......... process 1 of the exec's own PID, mount and IPC namespace: mounts, starts the program,
//                  |            then becomes the reaper (stub.c)
//                  `- program . drops everything, then execve
//
// The launcher itself does not sleep but waits, since what the children do may block: see await.
//
// join, member and init are all children of the launcher (CLONE_PARENT): the first two end at once, and the launcher
// can wait for the reaper itself.
//
// The children share the launcher's file table until init leaves it, so the pidfds that clone makes are the launcher's
// without being sent. They run with every signal blocked and call nothing that takes a lock: another thread of the
// launcher may hold any lock of libc or of Go.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"
#include "raw.h"
#include "steps.h"

#define VFORK (CLONE_VM | CLONE_VFORK | SIGCHLD)
#define KEYRING_PERMISSIONS 0x3f1b0000 // possessor: all; user: view, read, search (so the next exec finds it), link

static char *stack(struct fx_exec *x, int n) { return x->stacks + (n + 1) * FX_STACK; }

// drop_most is for the supervisor. The capability that it keeps gives it nothing in a user namespace: timers that
// wake the machine ask for it in the host's. But the kernel lets nobody change the priority, scheduler, processors or I/O
// class of a process that has a capability which the other lacks (cap_safe_nice in security/commoncap.c), and a program
// has none. Where the program is another user the supervisor needs one more, to end it. With no_new_privs an execve, here that
// of the stub, never adds to what is permitted.
#define KEPT CAP_WAKE_ALARM

static int drop_most(const struct fx_exec *x)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct kept[2];
	memset(kept, 0, sizeof kept);
	kept[KEPT / 32].permitted = kept[KEPT / 32].effective = 1u << KEPT % 32;
	if (has_other_ids(x)) {
		kept[0].permitted |= 1u << CAP_KILL;
		kept[0].effective |= 1u << CAP_KILL;
	}
	if (syscall(SYS_capset, &h, kept) < 0)
		return -1;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

// init becomes the reaper: descriptor 0 is whose end ends it, 1 where it reports, 2 the exec's procfs. Only fails.
static int become_reaper(struct fx_exec *x)
{
	TRY(FX_REAPER, 0, unshare(CLONE_FILES)); // from here on our descriptors are our own
	int stub = fcntl(x->stub, F_DUPFD_CLOEXEC, 3);
	int status = fcntl(x->status, F_DUPFD_CLOEXEC, 3);
	int proc = fcntl(x->proc, F_DUPFD_CLOEXEC, 3);
	int waiter = x->waiter < 0 ? -1 : fcntl(x->waiter, F_DUPFD_CLOEXEC, 3);
	if (stub < 0 || status < 0 || proc < 0 || (waiter < 0 && x->waiter >= 0))
		return fail(x, FX_REAPER, 0);
	TRY(FX_REAPER, 0, syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC));
	if (waiter >= 0)
		TRY(FX_REAPER, 0, dup2(waiter, 0));
	else
		close(0);
	TRY(FX_REAPER, 0, dup2(status, 1));
	TRY(FX_REAPER, 0, dup2(proc, 2));
	char *argv[] = {"sandboxrun", "reaper", NULL};
	char *envp[] = {NULL};
	syscall(SYS_execveat, stub, "", argv, envp, AT_EMPTY_PATH);
	return fail(x, FX_REAPER, 0);
}

// What the kernel counts for each user, and since Linux 5.14 for each user namespace, and which part of the caller's limit a
// sandbox can have: less than all, and more than programs use.
static const struct { int resource; unsigned part; uint64_t least; } shares[] = {
	{RLIMIT_SIGPENDING, 4, 0}, {RLIMIT_MSGQUEUE, 2, 0}, {RLIMIT_MEMLOCK, 2, 0}, {RLIMIT_NPROC, 2, 4096},
};

// share_limits makes these limits what the program's user namespace is allowed as a whole, whatever its processes set for
// themselves (Linux 5.14): clone takes them over into the namespace that it makes. A limit of processes of the policy's own is
// stricter. One that is low already stays.
static int share_limits(const struct fx_limits *l)
{
	for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
		struct rlimit is;
		if (syscall(SYS_prlimit64, 0, shares[i].resource, NULL, &is) < 0)
			return -1;
		if (is.rlim_max == RLIM_INFINITY || is.rlim_max <= shares[i].least)
			continue;
		struct fx_rlimit part = {shares[i].resource, is.rlim_max / shares[i].part, is.rlim_max / shares[i].part};
		if (fx_set_rlimit(&part) < 0)
			return -1;
	}
	if (!l || !l->nproc)
		return 0;
	struct fx_rlimit all = {RLIMIT_NPROC, l->nproc, l->nproc};
	return fx_set_rlimit(&all);
}

static int clone_pidfd(int (*fn)(void *), struct fx_exec *x, int n, int flags, volatile int *pidfd)
{
	// CLONE_PIDFD puts the descriptor where the third argument after fn's says, before the child runs.
	return clone(fn, stack(x, n), CLONE_VM | SIGCHLD | CLONE_PIDFD | flags, x, (int *)pidfd);
}

// The program must not hold the caller's session keyring. One of the sandbox's own is shared by its execs: one each
// would use up a user's quota of keys. Where keyctl is refused the seccomp filter, which refuses it too, stands alone.
static void leave_keyring(void)
{
	long ring = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, "sandboxrun");
	if (ring >= 0)
		syscall(SYS_keyctl, KEYCTL_SETPERM, ring, KEYRING_PERMISSIONS);
}

// enter_groups puts this process, and so all that comes of it, into the exec's control groups of version 1. To move a
// thread by its tasks file costs microseconds, a process by the other file milliseconds. What led here is not counted.
static int enter_groups(const struct fx_limits *l)
{
	for (size_t i = 0; l && i < l->n_cgroups; i++)
		if (!l->cgroups[i].unified && write(l->cgroups[i].fd, "0", 1) != 1)
			return -1;
	return 0;
}

static int unified_group(const struct fx_limits *l)
{
	return l && l->n_cgroups > 0 && l->cgroups[0].unified ? l->cgroups[0].fd : -1;
}

struct clone_args_ {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};
#define CLONE_INTO_CGROUP_ 0x200000000ull

// clone_into is clone_pidfd with a child that is born in a control group of version 2. To move a process there would take
// milliseconds. libc has no clone3 that runs a function.
static long clone_into(int group, int (*fn)(void *), struct fx_exec *x, int n, int flags, volatile int *pidfd)
{
	struct clone_args_ args;
	memset(&args, 0, sizeof args);
	// With CLONE_PARENT the child's signal is its parent's own.
	args.flags = CLONE_VM | CLONE_PIDFD | CLONE_INTO_CGROUP_ | (unsigned)flags;
	args.pidfd = (uint64_t)(uintptr_t)pidfd;
	args.stack = (uint64_t)(uintptr_t)stack(x, n - 1);
	args.stack_size = FX_STACK;
	args.cgroup = (uint64_t)group;
	long ret;
#if defined(__x86_64__)
	register long r12 __asm__("r12") = (long)x, r13 __asm__("r13") = (long)fn;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r12, %%rdi\n\t"
			 "call *%%r13\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n"
			 "1:"
			 : "=a"(ret)
			 : "a"(SYS_clone3), "D"(&args), "S"(sizeof args), "r"(r12), "r"(r13), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_clone3, x0 __asm__("x0") = (long)&args, x1 __asm__("x1") = sizeof args;
	register long x19 __asm__("x19") = (long)x, x20 __asm__("x20") = (long)fn;
	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, #0\n\t"
			 "mov x0, x19\n\t"
			 "blr x20\n\t"
			 "mov x8, %[exit]\n\t"
			 "svc 0\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x19), "r"(x20), [exit] "i"(SYS_exit)
			 : "memory", "x30", "cc");
	ret = x0;
#endif
	if (ret >= 0)
		return ret;
	errno = (int)-ret;
	return -1;
}

// lend_ids makes the program's ids this process' own for as long as it takes to make the program, so that it, and its
// user namespace, belong to them. The capabilities stay, and the saved ids, so that they can be given back.
static int lend_ids(const struct fx_exec *x)
{
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ||
	    syscall(SYS_setresgid, x->gid, x->gid, 0) < 0 || syscall(SYS_setresuid, x->uid, x->uid, 0) < 0)
		return -1;
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); // as in join
}

static int take_ids_back(void)
{
	return become(0, 0) < 0 ? -1 : prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

// open_terminal makes the program's terminal in the devpts that has just been mounted. The file table is the launcher's
// too. No path is used for the inner end, and the program's user owns it.
static int open_terminal(struct fx_exec *x)
{
	int unlock = 0;
	struct winsize size = {.ws_row = x->rows, .ws_col = x->cols};
	x->master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (x->master < 0 || ioctl(x->master, TIOCSPTLCK, &unlock) < 0)
		return -1;
	x->slave = ioctl(x->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (x->slave < 0)
		return -1;
	int ok = ioctl(x->slave, TIOCSWINSZ, &size) == 0 && (!x->termios || ioctl(x->slave, TCSETS, x->termios) == 0) &&
		 (!has_other_ids(x) || fchown(x->slave, (uid_t)x->uid, (gid_t)x->gid) == 0);
	for (int i = 0; i < 3; i++)
		x->stdio[i] = x->slave;
	return ok ? 0 : -1;
}

static int init(void *arg)
{
	struct fx_exec *x = arg;
	TRY(FX_CGROUP, 0, enter_groups(x->limits));
	leave_keyring();
	size_t at = 0;
	TRY(FX_SHOW, at, fx_show_view(x, 0, x->n_view_first, &at));
	x->beside = fx_can_go_beside(x);
	for (size_t i = 0; i < (x->beside ? 1 : x->n_mounts); i++) {
		const struct fx_mount *m = &x->mounts[i];
		if (m->flags & FX_COVER)
			continue;
		TRY(FX_MOUNT, i, m->flags & FX_FRESH ? fx_mount_fresh(m) : mount(m->source, m->target, m->fstype, m->flags, m->data));
		if (x->keep_view && x->view[1] < 0 && m->fstype && strcmp(m->fstype, "proc") == 0)
			TRY(FX_VIEW, 0, fx_keep_namespace(x));
	}
	TRY(FX_SHOW, at, fx_show_view(x, x->n_view_first, x->n_view_steps, &at));
	if (x->keep_view)
		TRY(FX_VIEW, 0, fx_keep_view(x));
	if (x->tty)
		TRY(FX_TERMINAL, 0, open_terminal(x));
	const struct fx_limits *l = x->limits;
	if (l && fx_limits_look(l)) // what is opened here is the launcher's too
		TRY(FX_MOUNT, 0, fx_open_for_looking(x));
	size_t cover = 0;
	TRY(FX_MOUNT, cover, fx_hold_proc(x, &cover));
	TRY(FX_RLIMIT, x->n_rlimits, share_limits(l));
	if (has_other_ids(x))
		TRY(FX_IDS, 0, lend_ids(x));
	if (x->beside) {
		x->unstarted = 1;
		TRY(FX_USERNS, 0, clone_pidfd(fx_program_beside, x, 3, CLONE_NEWUSER, &x->program_pidfd));
		if (has_other_ids(x))
			TRY(FX_IDS, 0, take_ids_back()); // and the program ends with us
		if (fx_build_beside(x) < 0)
			return 125;
	} else {
		TRY(FX_USERNS, 0, clone_pidfd(fx_program, x, 3, CLONE_VFORK | CLONE_NEWUSER, &x->program_pidfd));
		if (x->step != FX_OK)
			return 125;
		if (!x->path) // there is no program to wait for
			return 0;
		if (has_other_ids(x))
			TRY(FX_IDS, 0, take_ids_back());
	}
	TRY(FX_REAPER, 0, drop_most(x));
	return become_reaper(x);
}

static int member(void *arg)
{
	struct fx_exec *x = arg;
	// In a control group namespace of its own the program does not see what its group is called.
	int flags = CLONE_VFORK | CLONE_PARENT | CLONE_FILES | LAYER("pid", CLONE_NEWPID) | LAYER("mnt", CLONE_NEWNS) |
		    LAYER("ipc", CLONE_NEWIPC) | LAYER("cgroup", CLONE_NEWCGROUP);
	int group = unified_group(x->limits);
	if (group < 0)
		TRY(FX_NAMESPACES, 0, clone_pidfd(init, x, 2, flags, &x->reaper_pidfd));
	else
		TRY(FX_NAMESPACES, 0, clone_into(group, init, x, 2, flags, &x->reaper_pidfd));
	return 0;
}

static int join(void *arg)
{
	struct fx_exec *x = arg;
	size_t i;
	TRY(FX_RLIMIT, i, fx_core_limit(x, &i));
	if (x->drop_groups)
		TRY(FX_GROUPS, 0, syscall(SYS_setgroups, 0, NULL));
	TRY(FX_JOIN, 0, setns(x->target, x->namespaces));
	TRY(FX_BECOME, 0, become(0, 0));
	// Another uid made our memory, which is the launcher's, undumpable: then the kernel gives /proc/self to root, and
	// program could not write its own maps. fx_start puts it back.
	TRY(FX_BECOME, 0, prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
	int pid = clone(member, stack(x, 1), VFORK | CLONE_PARENT | CLONE_FILES, x);
	if (pid < 0)
		return fail(x, FX_SPAWN, 0);
	x->helpers[1] = pid;
	return 0;
}

#define RAW(n, a, b, c, d) sys6((n), (long)(a), (long)(b), (long)(c), (long)(d), 8, 0)

// cancelled gives the signal by which somebody wants the exec to end.
static int cancelled(const struct fx_exec *x)
{
	unsigned info[32]; // one struct signalfd_siginfo; it begins with the signal's number
	while (x->signals >= 0 && RAW(SYS_read, x->signals, info, sizeof info, 0) == sizeof info)
		if (info[0] == SIGTERM || info[0] == SIGINT || info[0] == SIGHUP || info[0] == SIGQUIT)
			return (int)info[0];
	return x->cancel ? *x->cancel : 0;
}

// await waits for the first helper, and so for all. What they do may block for long: a file system that does not answer,
// a lease on the program. That counts as the program's time, and ends with it, or by a signal of the caller's: then what
// blocks is killed. Where that is the program the supervisor reports its end as any other.
//
// The helpers share this thread's errno, so everything here is done without it.
static void await(struct fx_exec *x, int helper)
{
	struct fx_limits *l = x->limits;
	for (;;) {
		struct pollfd p = {helper, POLLIN, 0};
		struct timespec tick = {0, FX_TICK_US * 1000};
		if (RAW(SYS_ppoll, &p, 1, &tick, NULL) > 0 && p.revents)
			return;
		if (!x->cancelled && l && l->why == FX_BY_ITSELF)
			fx_limits_overdue(l);
		if (!x->cancelled && (!l || l->why == FX_BY_ITSELF))
			x->cancelled = cancelled(x);
		if (!x->cancelled && (!l || l->why == FX_BY_ITSELF))
			continue;
		int built = !x->beside || x->built != 0;
		int blocked = x->program_pidfd >= 0 && built ? x->program_pidfd : x->reaper_pidfd;
		if (blocked >= 0)
			RAW(SYS_pidfd_send_signal, blocked, SIGKILL, NULL, 0);
	}
}

void fx_start(struct fx_exec *x)
{
	unsigned long before;
	int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), helper = -1;
	x->reaper_pidfd = x->program_pidfd = x->master = x->slave = x->proc = x->view[0] = x->view[1] = -1;
	x->helpers[0] = x->helpers[1] = x->cancelled = x->beside = x->built = 0;
	if (fx_open_listener(x) < 0) {
		fail(x, FX_SPAWN, 0);
		return;
	}
	block_signals(&before);
	int pid = clone(join, stack(x, 0), CLONE_VM | CLONE_FILES | CLONE_PIDFD | SIGCHLD, x, &helper);
	if (pid < 0)
		fail(x, FX_SPAWN, 0);
	else
		await(x, helper);
	x->helpers[0] = pid;
	if (dumpable == 0)
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	unblock_signals(&before);
	reap(x->helpers[0]);
	reap(x->helpers[1]);
	if (helper >= 0)
		close(helper);
	if (x->slave >= 0)
		close(x->slave);
	if (x->proc >= 0)
		close(x->proc);
	fx_take_listener(x);
	if (x->cancelled || (x->limits && x->limits->why != FX_BY_ITSELF)) {
		x->step = FX_OK; // whatever the helpers say of it
		return;
	}
	if (x->reaper_pidfd < 0 || x->program_pidfd < 0) { // a child was killed with its sandbox, before it could say anything
		errno = ESRCH;
		fail(x, FX_SPAWN, 0);
	}
}
