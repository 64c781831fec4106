// In a plain exec the program's process is made as soon as it has a /proc, and gives up what it has while init makes the other mounts: either
// takes as long as the other, and half of the program's share is the kernel's translation of the filter.
//
// Until the program is executed both share this thread's errno, so init does without it here. An exec for which init does more than to mount
// takes one step after the other. So does a program that has more to do in its view than to enter its directory: the filter comes last.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include "forkexec.h"
#include "raw.h"
#include "steps.h"

int fx_can_go_beside(const struct fx_exec *x)
{
	if (!x->path || x->n_calls > 0 || x->n_view_steps > 0 || x->tty)
		return 0;
	if (x->n_mounts == 0 || !x->mounts[0].fstype || strcmp(x->mounts[0].fstype, "proc") != 0)
		return 0;
	for (size_t i = 0; i < x->n_mounts; i++)
		if (x->mounts[i].flags & (FX_FRESH | FX_COVER))
			return 0;
	return 1;
}

// fx_program_beside is fx_program in a process whose parent does not sleep. The kernel tells the parent by unstarted when that process has left
// its memory.
int fx_program_beside(void *exec)
{
	struct fx_exec *x = exec;
	sys6(SYS_set_tid_address, (long)&x->unstarted, 0, 0, 0, 0, 0);
	return fx_program(x);
}

static void futex(const volatile int *word, int op, int value)
{
	struct timespec tick = {0, FX_TICK_US * 1000};
	sys6(SYS_futex, (long)word, op, value, op == FUTEX_WAIT ? (long)&tick : 0, 0, 0);
}

// fx_await_built waits, in the program's process, until init has made the mounts. It fails where they will not be there.
int fx_await_built(const struct fx_exec *x)
{
	int built;
	while ((built = __atomic_load_n(&x->built, __ATOMIC_ACQUIRE)) == 0)
		futex(&x->built, FUTEX_WAIT, 0);
	return built;
}

// await_program waits until the program has been executed, as a parent does after vfork. Where that is killed the kernel may
// not say so.
static void await_program(struct fx_exec *x)
{
	while (__atomic_load_n(&x->unstarted, __ATOMIC_ACQUIRE) != 0) {
		struct pollfd p = {x->program_pidfd, POLLIN, 0};
		struct timespec now = {0, 0};
		futex(&x->unstarted, FUTEX_WAIT, 1);
		if (sys6(SYS_ppoll, (long)&p, 1, (long)&now, 0, 8, 0) > 0)
			return;
	}
}

// fx_build_beside makes all mounts but the first, which is there, lets the program go on, and waits until it has been executed.
int fx_build_beside(struct fx_exec *x)
{
	enum fx_step step = FX_OK;
	size_t i = 1;
	long err = 0;
	for (; i < x->n_mounts && err >= 0; i++) {
		const struct fx_mount *m = &x->mounts[i];
		err = sys6(SYS_mount, (long)m->source, (long)m->target, (long)m->fstype, (long)m->flags, (long)m->data, 0);
	}
	if (err < 0) {
		step = FX_MOUNT;
		i--;
	} else if (fx_claim_sure() < 0) {
		step = FX_CLAIM;
		err = -ECANCELED;
	}
	__atomic_store_n(&x->built, step == FX_OK ? 1 : -1, __ATOMIC_RELEASE);
	futex(&x->built, FUTEX_WAKE, 1);
	await_program(x);
	errno = (int)-err;
	if (step != FX_OK)
		fail(x, step, i);
	return x->step == FX_OK ? 0 : -1;
}
