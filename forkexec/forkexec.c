// From one process outside to a program inside, in four clones. None copies the launcher: each child borrows its memory
// (CLONE_VM) and its parent sleeps (CLONE_VFORK) until it has exec'd or is gone, so at any time one of them runs.
//
//   launcher --- join ......... enters the sandbox's namespaces; the PID one counts for its children only
//            --- member ....... so this one is in it, and may nest a PID namespace in it
//            --- init ......... process 1 of the exec's own PID, mount and IPC namespace: mounts, starts the program,
//                  |            then becomes the reaper (stub.c)
//                  `- program . drops everything, then execve
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
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

#define VFORK (CLONE_VM | CLONE_VFORK | SIGCHLD)
#define LAST_SIGNAL 64
#define KEYRING_PERMISSIONS 0x3f1b0000 // possessor: all; user: view, read, search (so the next exec finds it), link
#define LAST_CAPABILITY 63 // more than any kernel has; the loop ends at the first unknown one

// The Go runtime raises our limit of open files to the most that is allowed. Programs are to have the caller's. The
// priority puts this before client.c.
static struct rlimit caller_nofile;

__attribute__((constructor(101))) static void remember_limits(void)
{
	syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &caller_nofile);
}

static char *stack(struct fx_exec *x, int n) { return x->stacks + (n + 1) * FX_STACK; }

static int fail(struct fx_exec *x, enum fx_step step, size_t index)
{
	if (x->step == FX_OK) {
		x->step = step;
		x->err = errno;
		x->index = index;
	}
	return 125;
}

#define TRY(step, index, expr) do { if ((expr) < 0) return fail(x, (step), (index)); } while (0)

// No capability is left anywhere, nor can one come back: not by execve (bounding set, no_new_privs), not by being uid 0
// (securebits).
static int drop_privileges(void)
{
	for (int c = 0; c <= LAST_CAPABILITY; c++)
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0) {
			if (errno == EINVAL && c > 0)
				break;
			return -1;
		}
	if (prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
		  SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
		  SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED, 0, 0, 0) < 0)
		return -1;
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2];
	memset(none, 0, sizeof none);
	if (syscall(SYS_capset, &h, none) < 0)
		return -1;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

// Descriptors 0, 1 and 2 and nothing else. The numbers may overlap, so they are moved away first.
static int set_stdio(const int want[3])
{
	int away[3];
	for (int i = 0; i < 3; i++)
		if ((away[i] = fcntl(want[i], F_DUPFD_CLOEXEC, 3)) < 0)
			return -1;
	for (int i = 0; i < 3; i++)
		if (dup2(away[i], i) < 0)
			return -1;
	return (int)syscall(SYS_close_range, 3, ~0u, 0);
}

// The caller's ignored signals and its mask must not reach the program (DOMjudge/domjudge#3669).
static void reset_signals(void)
{
	struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } dfl;
	memset(&dfl, 0, sizeof dfl);
	for (int s = 1; s <= LAST_SIGNAL; s++)
		syscall(SYS_rt_sigaction, s, &dfl, NULL, 8);
	unsigned long none = 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
}

static int program(void *arg)
{
	struct fx_exec *x = arg;
	// setgroups must be off before an unprivileged process may map its gid, and so stays off for the program.
	TRY(FX_MAP, 0, write_file("/proc/self/setgroups", "deny"));
	TRY(FX_MAP, 0, write_file("/proc/self/uid_map", x->uid_map));
	TRY(FX_MAP, 0, write_file("/proc/self/gid_map", x->gid_map));
	TRY(FX_SESSION, 0, setsid());
	TRY(FX_STDIO, 0, set_stdio(x->stdio));
	if (x->ctty)
		TRY(FX_TTY, 0, ioctl(0, TIOCSCTTY, 0));
	TRY(FX_RLIMIT, x->n_rlimits, syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &caller_nofile, NULL));
	for (size_t i = 0; i < x->n_rlimits; i++) {
		struct rlimit l = {x->rlimits[i].cur, x->rlimits[i].max};
		TRY(FX_RLIMIT, i, syscall(SYS_prlimit64, 0, x->rlimits[i].resource, &l, NULL));
	}
	umask(x->umask);
	TRY(FX_PRIVILEGE, 0, drop_privileges());
	TRY(FX_DIR, 0, chdir(x->dir)); // after the capabilities: the program's own rights decide
	reset_signals();
	if (x->filter.len > 0)
		TRY(FX_SECCOMP, 0, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &x->filter));
	execve(x->path, x->argv, x->envp);
	return fail(x, FX_EXECVE, 0);
}

// init becomes the reaper: descriptor 0 is whose end ends it, 1 where it reports. Only fails.
static int become_reaper(struct fx_exec *x)
{
	TRY(FX_REAPER, 0, unshare(CLONE_FILES)); // from here on our descriptors are our own
	int stub = fcntl(x->stub, F_DUPFD_CLOEXEC, 3);
	int status = fcntl(x->status, F_DUPFD_CLOEXEC, 3);
	int waiter = x->waiter < 0 ? -1 : fcntl(x->waiter, F_DUPFD_CLOEXEC, 3);
	if (stub < 0 || status < 0 || (waiter < 0 && x->waiter >= 0))
		return fail(x, FX_REAPER, 0);
	TRY(FX_REAPER, 0, syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC));
	if (waiter >= 0)
		TRY(FX_REAPER, 0, dup2(waiter, 0));
	else
		close(0);
	TRY(FX_REAPER, 0, dup2(status, 1));
	char *argv[] = {"sandboxrun", "reaper", NULL};
	char *envp[] = {NULL};
	syscall(SYS_execveat, stub, "", argv, envp, AT_EMPTY_PATH);
	return fail(x, FX_REAPER, 0);
}

static int clone_pidfd(int (*fn)(void *), struct fx_exec *x, int n, int flags, volatile int *pidfd)
{
	// CLONE_PIDFD puts the descriptor where the third argument after fn's says, before the child runs.
	return clone(fn, stack(x, n), VFORK | CLONE_PIDFD | flags, x, (int *)pidfd);
}

// The program must not hold the caller's session keyring. One of the sandbox's own is shared by its execs: one each
// would use up a user's quota of keys. Where keyctl is refused the seccomp filter, which refuses it too, stands alone.
static void leave_keyring(void)
{
	long ring = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, "sandboxrun");
	if (ring >= 0)
		syscall(SYS_keyctl, KEYCTL_SETPERM, ring, KEYRING_PERMISSIONS);
}

static int init(void *arg)
{
	struct fx_exec *x = arg;
	leave_keyring();
	for (size_t i = 0; i < x->n_mounts; i++) {
		const struct fx_mount *m = &x->mounts[i];
		TRY(FX_MOUNT, i, mount(m->source, m->target, m->fstype, m->flags, m->data));
	}
	if (x->uid != 0 || x->gid != 0) {
		TRY(FX_IDS, 0, become(x->uid, x->gid)); // which takes every capability with it
		TRY(FX_IDS, 0, prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)); // as in join
	}
	TRY(FX_USERNS, 0, clone_pidfd(program, x, 3, CLONE_NEWUSER, &x->program_pidfd));
	if (x->step != FX_OK)
		return 125;
	if (x->uid == 0)
		TRY(FX_REAPER, 0, drop_privileges());
	else
		TRY(FX_REAPER, 0, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	return become_reaper(x);
}

static int member(void *arg)
{
	struct fx_exec *x = arg;
	int flags = CLONE_PARENT | CLONE_FILES | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC;
	TRY(FX_NAMESPACES, 0, clone_pidfd(init, x, 2, flags, &x->reaper_pidfd));
	return 0;
}

static int join(void *arg)
{
	struct fx_exec *x = arg;
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

void fx_start(struct fx_exec *x)
{
	unsigned long before;
	int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
	x->reaper_pidfd = x->program_pidfd = -1;
	x->helpers[0] = x->helpers[1] = 0;
	block_signals(&before);
	int pid = clone(join, stack(x, 0), VFORK | CLONE_FILES, x);
	if (pid < 0)
		fail(x, FX_SPAWN, 0);
	x->helpers[0] = pid;
	if (dumpable == 0)
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	unblock_signals(&before);
	reap(x->helpers[0]);
	reap(x->helpers[1]);
}
