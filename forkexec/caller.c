// What the caller has set for itself and this command must not pass on changed: who called, and its resource limits. The
// launcher raises its own limits as far as it may: it is a Go program, which takes much more address space than memory, and it
// writes files of its own. Programs get the caller's (restore_limits).
#define _GNU_SOURCE
#include <errno.h>
#include <features.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "forkexec.h"

#define MiB (1ull << 20)
#define OWN_STACK (8 * MiB)
#define THREAD_STACK (1 * MiB)
#define OWN_FILES (256 * MiB) // state, events, logs, and libcontainer's copy of this binary where there is one (small.c)

struct fx_rlimit fx_caller_limits[FX_CALLER_LIMITS] = {
	{RLIMIT_AS, 0, 0}, {RLIMIT_DATA, 0, 0}, {RLIMIT_STACK, 0, 0}, {RLIMIT_FSIZE, 0, 0}, {RLIMIT_CPU, 0, 0},
	{RLIMIT_NOFILE, 0, 0}, // the Go runtime raises this one
};

char **fx_argv;
int fx_argc, fx_first_parent;
int64_t fx_begun_us;

static rlim_t wanted(int resource)
{
	return resource == RLIMIT_STACK ? OWN_STACK : resource == RLIMIT_FSIZE ? OWN_FILES : RLIM_INFINITY;
}

// raise_limit raises a limit of ours to what we want: root may raise the hard one too.
static void raise_limit(const struct fx_rlimit *is)
{
	rlim_t want = wanted(is->resource);
	if (is->cur >= want || is->resource == RLIMIT_NOFILE)
		return;
	struct rlimit l = {want, is->max > want ? is->max : want};
	if (syscall(SYS_prlimit64, 0, is->resource, &l, NULL) == 0)
		return;
	l = (struct rlimit){is->max < want ? is->max : want, is->max};
	syscall(SYS_prlimit64, 0, is->resource, &l, NULL);
}

// Threads get stacks of the size that RLIMIT_STACK had when the process began, with glibc, or of 128 KiB, with musl.
static void fit_threads(void)
{
	struct rlimit as, data;
	pthread_attr_t attr;
	if (getrlimit(RLIMIT_AS, &as) < 0 || getrlimit(RLIMIT_DATA, &data) < 0)
		return;
	size_t size = 0;
	if (pthread_getattr_default_np(&attr) == 0) {
		pthread_attr_getstacksize(&attr, &size);
		if (as.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY || size < THREAD_STACK || size > OWN_STACK) {
			pthread_attr_setstacksize(&attr, THREAD_STACK);
			pthread_setattr_default_np(&attr);
		}
		pthread_attr_destroy(&attr);
	}
#ifdef __GLIBC__
	mallopt(M_ARENA_MAX, 1); // else 128 MiB of addresses are set aside for each of them
#endif
}

// find_arguments finds them where execve has put them: their number, the arguments, a null pointer, the environment.
static void find_arguments(void)
{
	fx_argv = environ - 1;
	for (fx_argc = 0; (uintptr_t)fx_argv[-1] != (uintptr_t)fx_argc; fx_argc++)
		fx_argv--;
}

// The priority puts this before client.c.
__attribute__((constructor(101))) static void remember_caller(void)
{
	find_arguments();
	fx_become_small();
	fx_begun_us = fx_now_us();
	fx_first_parent = getppid();
	for (int i = 0; i < FX_CALLER_LIMITS; i++) {
		struct fx_rlimit *is = &fx_caller_limits[i];
		struct rlimit l = {RLIM_INFINITY, RLIM_INFINITY};
		syscall(SYS_prlimit64, 0, is->resource, NULL, &l);
		is->cur = l.rlim_cur;
		is->max = l.rlim_max;
		raise_limit(is);
	}
	signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error with a name
	fit_threads();
}

// fx_restore_limits gives a program what its caller has. Limits of the policy come after, and are never higher.
int fx_restore_limits(void)
{
	for (int i = 0; i < FX_CALLER_LIMITS; i++) {
		struct rlimit l = {fx_caller_limits[i].cur, fx_caller_limits[i].max};
		if (syscall(SYS_prlimit64, 0, fx_caller_limits[i].resource, &l, NULL) < 0)
			return -1;
	}
	return 0;
}

// fx_need_addresses ends this command where the Go runtime could not even start, or not make the threads that it needs: it
// would die with a trace of its own stacks, and a status that is the program's to have (golang/go#38010).
void fx_need_addresses(void)
{
	struct rlimit l;
	if (getrlimit(RLIMIT_AS, &l) == 0 && l.rlim_cur < FX_ADDRESSES * MiB) {
		dprintf(2, "sandboxrun: limit_reached: the address space limit (ulimit -v, RLIMIT_AS) is %llu KiB; "
			"sandboxrun itself needs %llu KiB\nhint: ulimit -v unlimited\n",
			(unsigned long long)l.rlim_cur / 1024, FX_ADDRESSES * 1024ull);
		_exit(125);
	}
	if (getrlimit(RLIMIT_DATA, &l) == 0 && l.rlim_cur < FX_DATA * MiB) {
		dprintf(2, "sandboxrun: limit_reached: the limit of a process' data (ulimit -d, RLIMIT_DATA) is %llu KiB; "
			"sandboxrun itself needs %llu KiB\nhint: ulimit -d unlimited\n",
			(unsigned long long)l.rlim_cur / 1024, FX_DATA * 1024ull);
		_exit(125);
	}
}
