// The last of the four clones of an exec: it drops everything, then executes the program. See forkexec.c.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"
#include "steps.h"

#define LAST_SIGNAL 64
#define LAST_CAPABILITY 63 // more than any kernel has; the loop ends at the first unknown one

// No capability is left anywhere, nor can one come back: not by execve (bounding set, no_new_privs), not by being uid 0
// (securebits).
static int drop_bounding(void)
{
	for (int c = 0; c <= LAST_CAPABILITY; c++)
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0) {
			if (errno == EINVAL && c > 0)
				break;
			return -1;
		}
	return 0;
}

#define SECUREBITS (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED | \
	SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

int fx_drop_privileges(void)
{
	if (LAYER("bounding", drop_bounding()) < 0 || LAYER("securebits", prctl(PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0)) < 0)
		return -1;
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2];
	memset(none, 0, sizeof none);
	if (LAYER("capset", syscall(SYS_capset, &h, none)) < 0)
		return -1;
	return LAYER("no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

// A relay begins with no privilege at all: here, where there is one thread yet, so that all that Go starts have none
// either. Without one to begin with there is nothing to drop but the way to another.
__attribute__((constructor(102))) static void humble(void)
{
	if (fx_argc != 3 || strcmp(fx_argv[0], FX_RELAY_NAME) != 0 || strcmp(fx_argv[1], FX_RELAY_COMMAND) != 0 || environ[0] != NULL)
		return;
	syscall(SYS_prlimit64, 0, RLIMIT_CORE, &(struct rlimit){1, 1}, NULL); // as for programs (core.c), where it may
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct is[2];
	if (syscall(SYS_capget, &h, is) < 0)
		_exit(125);
	int set = (is[0].effective & 1 << CAP_SETPCAP) != 0;
	if (set ? fx_drop_privileges() < 0 : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(125);
	memset(is, 0, sizeof is);
	if (syscall(SYS_capset, &h, is) < 0)
		_exit(125);
}

#define HELD_RESULT 4 // where the descriptor for the program's answer is until the program is executed

// Descriptors 0, 1 and 2 and nothing else, but for what is closed when the program is executed. The numbers may overlap, so they
// are moved away first.
static int set_stdio(const struct fx_exec *x)
{
	const int want[7] = {
		x->stdio[0], x->stdio[1], x->stdio[2], x->asks ? x->ask[1] : -1, x->result > 0 ? x->result : -1, x->guard > 0 ? x->guard : -1,
		fx_calls_need_proc(x) ? x->proc : -1,
	};
	static const int places[7] = {0, 1, 2, FX_LISTENER, HELD_RESULT, FX_GUARD, FX_PROC};
	int away[7];
	for (int i = 0; i < 7; i++)
		if (want[i] >= 0 && (away[i] = fcntl(want[i], F_DUPFD_CLOEXEC, FX_PROC + 1)) < 0)
			return -1;
	for (int i = 0; i < 3; i++)
		if (dup2(away[i], i) < 0)
			return -1;
	int gap = want[3] < 0;
	if (!gap && dup3(away[3], FX_LISTENER, O_CLOEXEC) < 0)
		return -1;
	int from = gap ? 3 : FX_LISTENER + 1; // of what is closed
	for (int i = 4; i < 7; i++) {
		int to = places[i];
		if (want[i] < 0)
			continue;
		if (from < to && LAYER("descriptors", syscall(SYS_close_range, from, to - 1, 0)) < 0)
			return -1;
		if (dup3(away[i], to, O_CLOEXEC) < 0 || (i == 5 && fcntl(to, F_SETFD, 0) < 0))
			return -1;
		from = to + 1;
	}
	return (int)LAYER("descriptors", syscall(SYS_close_range, from, ~0u, 0));
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

// fx_set_rlimit gives the program a limit, or the one that is there already where that is lower and not ours to raise, and
// reads it back: a limit that does not hold must not be reported as if it did.
int fx_set_rlimit(const struct fx_rlimit *want)
{
	struct rlimit is, l = {want->cur, want->max};
	if (syscall(SYS_prlimit64, 0, want->resource, NULL, &is) < 0)
		return -1;
	if (l.rlim_max > is.rlim_max)
		l.rlim_max = is.rlim_max;
	if (l.rlim_cur > l.rlim_max)
		l.rlim_cur = l.rlim_max;
	if (syscall(SYS_prlimit64, 0, want->resource, &l, NULL) < 0 ||
	    syscall(SYS_prlimit64, 0, want->resource, NULL, &is) < 0)
		return -1;
	errno = EIO;
	return is.rlim_cur == l.rlim_cur && is.rlim_max == l.rlim_max ? 0 : -1;
}

static int set_affinity(const unsigned long *cpus)
{
	unsigned long is[FX_CPUS / (8 * sizeof(long))];
	memset(is, 0, sizeof is);
	if (syscall(SYS_sched_setaffinity, 0, sizeof is, cpus) < 0 || syscall(SYS_sched_getaffinity, 0, sizeof is, is) < 0)
		return -1;
	errno = EIO;
	return memcmp(is, cpus, sizeof is) == 0 ? 0 : -1;
}

// be_ordinary takes from a program what its caller may have lent it: a real-time scheduler, and the right to a better
// priority than it starts with. It must not be able to keep the launcher and the supervisor from running.
static int be_ordinary(void)
{
	static const int lent[] = {RLIMIT_NICE, RLIMIT_RTPRIO};
	for (size_t i = 0; i < sizeof lent / sizeof *lent; i++) {
		struct rlimit is, none = {0, 0};
		if (syscall(SYS_prlimit64, 0, lent[i], NULL, &is) < 0 ||
		    (is.rlim_max > 0 && syscall(SYS_prlimit64, 0, lent[i], &none, NULL) < 0))
			return -1;
	}
	long policy = syscall(SYS_sched_getscheduler, 0) & ~SCHED_RESET_ON_FORK;
	struct sched_param p = {0};
	return policy == SCHED_FIFO || policy == SCHED_RR ? (int)syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &p) : 0;
}

// drop_saved_ids leaves a program that was born with its ids no trace of the supervisor's. Its own are mapped by now.
static int drop_saved_ids(void)
{
	if (syscall(SYS_setresgid, -1, -1, syscall(SYS_getegid)) < 0)
		return -1;
	return (int)syscall(SYS_setresuid, -1, -1, syscall(SYS_geteuid));
}

// write_own writes a file of this process in the exec's procfs, which may be covered at /proc. Our memory is the launcher's: where another
// of its threads changes ids for an exec of its own at that moment, the memory cannot be dumped, and the kernel gives these files to root.
static int write_own(const struct fx_exec *x, const char *path, const char *text)
{
	for (int n = 0; n < 10000; n++) {
		if (write_file_in(x->proc, path, text) == 0)
			return 0;
		if (errno != EACCES || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
			return -1;
		sched_yield();
	}
	return -1;
}

int fx_program(void *arg)
{
	struct fx_exec *x = arg;
	fx_call(x, FX_AT_ENTRY);
	// setgroups must be off before an unprivileged process may map its gid, and so stays off for the program.
	TRY(FX_MAP, 0, write_own(x, "self/setgroups", "deny"));
	TRY(FX_MAP, 0, write_own(x, "self/uid_map", x->uid_map));
	TRY(FX_MAP, 0, write_own(x, "self/gid_map", x->gid_map));
	if (has_other_ids(x))
		TRY(FX_IDS, 0, drop_saved_ids());
	TRY(FX_SESSION, 0, setsid());
	if (!x->beside)
		TRY(FX_CLAIM, 0, fx_claim_sure());
	TRY(FX_STDIO, 0, set_stdio(x));
	if (x->tty)
		TRY(FX_TTY, 0, ioctl(0, TIOCSCTTY, 0));
	TRY(FX_RLIMIT, x->n_rlimits, fx_restore_limits());
	for (size_t i = 0; i < x->n_rlimits; i++)
		TRY(FX_RLIMIT, i, fx_set_rlimit(&x->rlimits[i]));
	if (x->cpus)
		TRY(FX_AFFINITY, 0, set_affinity(x->cpus));
	TRY(FX_AFFINITY, 1, be_ordinary());
	umask(x->umask);
	TRY(FX_PRIVILEGE, 0, fx_drop_privileges());
	size_t failed = 0;
	int early = x->beside && x->n_view_checks == 0 && x->n_puts == 0 && x->n_execute == 0 && !x->once; // the filter is loaded before the view is there
	if (!early) {
		if (x->beside && fx_await_built(x) < 0)
			return 125; // init says why
		TRY(FX_LOOK, failed, fx_check_view(x, &failed)); // after the capabilities: the program's own rights decide
		TRY(FX_DIR, 0, chdir(x->dir));
		TRY(FX_PUT, failed, fx_put_all(x, &failed)); // signals are blocked: a file that gets too large is an error
	}
	reset_signals();
	fx_call(x, FX_UNFILTERED);
	if (x->n_execute > 0 && LAYER("execution", fx_restrict_execution(x)) != 0)
		return 125;
	if (x->once)
		TRY(FX_SECCOMP, 0, fx_load_once(x));
	if (x->filter.len > 0)
		TRY(FX_SECCOMP, 0, fx_load_filter(x));
	fx_call(x, FX_IN_PLACE);
	if (!x->path)
		return 0;
	if (early) {
		if (fx_await_built(x) < 0)
			return 125;
		TRY(FX_DIR, 0, chdir(x->dir));
	}
	if (x->result > 0)
		TRY(FX_STDIO, 0, dup2(HELD_RESULT, FX_RESULT)); // the listener has been sent
	syscall(SYS_execve, x->path, x->argv, x->envp, x->key[0], x->key[1], x->key[2]);
	return fail(x, FX_EXECVE, 0);
}
