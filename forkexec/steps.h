// What the children of an exec (forkexec.c, program.c) have in common: how a failed step is reported.
#ifndef STEPS_H
#define STEPS_H

#include <errno.h>
#include "forkexec.h"

static inline int fail(struct fx_exec *x, enum fx_step step, size_t index)
{
	if (x->step == FX_OK) {
		x->step = step;
		x->err = errno;
		x->index = index;
	}
	return 125;
}

#define TRY(step, index, expr) do { if ((expr) < 0) return fail(x, (step), (index)); } while (0)

#define FX_TICK_US 50000 // how long one of them waits for another before it looks around: far longer than a start takes

// has_other_ids reports whether the program is another user than the supervisor.
static inline int has_other_ids(const struct fx_exec *x) { return x->uid != 0 || x->gid != 0; }

int fx_drop_privileges(void);
int fx_set_rlimit(const struct fx_rlimit *want);
int fx_program(void *exec);
int fx_open_listener(struct fx_exec *x);
void fx_take_listener(struct fx_exec *x);
int fx_restrict_execution(struct fx_exec *x);
int fx_open_for_looking(struct fx_exec *x);
int fx_hold_proc(struct fx_exec *x, size_t *i);
int fx_can_go_beside(const struct fx_exec *x);
int fx_program_beside(void *exec);
int fx_build_beside(struct fx_exec *x);
int fx_await_built(const struct fx_exec *x);

// fx_claim_sure waits until the pool is sure of the sandbox that it has given to this process, if it has. It fails where the sandbox is not to
// be used.
int fx_claim_sure(void);

#endif
