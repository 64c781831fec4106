// System calls that are tried as the program would make them: a flat list of system calls, made by the very process that
// would otherwise execute the program. It shares our memory, so what it has seen is ours when it has gone. calls.go makes
// the list; nothing here knows what any of it means.
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>
#include "forkexec.h"

// fx_calls_need_proc reports whether the check looks at the exec's procfs under its cover. A program's start has no calls.
int fx_calls_need_proc(const struct fx_exec *x)
{
	for (size_t i = 0; i < x->n_calls; i++)
		if (x->calls[i].from == FX_FROM_PROC)
			return 1;
	return 0;
}

void fx_call(const struct fx_exec *x, int stage)
{
	for (size_t i = 0; i < x->n_calls; i++) {
		struct fx_call *c = &x->calls[i];
		if (c->stage != stage)
			continue;
		long first = c->from >= 0 ? x->calls[c->from].result : c->arg[0];
		if (c->from == FX_FROM_PROC)
			first = stage == FX_AT_ENTRY ? x->proc : FX_PROC;
		c->result = syscall(c->number, first, c->arg[1], c->arg[2], c->arg[3], c->arg[4], c->arg[5]);
		c->err = c->result == -1 ? errno : 0;
		c->done = 1;
	}
}
