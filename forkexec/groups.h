// What groups.c does for limits.c.
#ifndef GROUPS_H
#define GROUPS_H

#include "forkexec.h"

const struct fx_cgroup *fx_group_of(const struct fx_limits *l, unsigned controller);

// fx_counted reads one of enum fx_count for the exec. -1 if no group counts it.
int64_t fx_counted(const struct fx_limits *l, int which);

// fx_group_memory is what of the exec's memory the kernel cannot have back, or -1 where no group counts it.
int64_t fx_group_memory(const struct fx_limits *l);

#endif
