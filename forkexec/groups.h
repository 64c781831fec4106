// What groups.c does for limits.c.
#ifndef GROUPS_H
#define GROUPS_H

#include "forkexec.h"

const struct fx_cgroup *fx_group_of(const struct fx_limits *l, unsigned controller);

// fx_group_number reads, of an exec's group, the number that follows a word at the start of a line of a file, or the
// first one where word is empty. -1 if it is not there.
int64_t fx_group_number(const struct fx_limits *l, const struct fx_cgroup *g, const char *file, const char *word);

// fx_group_cpu is the processor time that the exec has used, in microseconds, or -1 where no group counts it.
int64_t fx_group_cpu(const struct fx_limits *l);

// fx_group_memory is what of the exec's memory the kernel cannot have back, or -1 where no group counts it.
int64_t fx_group_memory(const struct fx_limits *l);

#endif
