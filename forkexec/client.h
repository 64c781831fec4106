// What launch.c does for client.c.
#ifndef CLIENT_H
#define CLIENT_H

#include "forkexec.h"

// fx_read_launch fills in all of an exec that does not depend on the command: its sandbox, environment, mounts, filter
// and stub. It gives a descriptor of the sandbox's root. It fails where anything is not as expected.
int fx_read_launch(struct fx_exec *x, const char *id, char *const *env, int *root);

const char *fx_variable(char *const *env, const char *name);

#endif
