// What launch.c does for client.c.
#ifndef CLIENT_H
#define CLIENT_H

#include "forkexec.h"

// fx_read_launch fills in all of an exec that does not depend on the command: its sandbox, environment, mounts, filter
// and stub. It gives a descriptor of the sandbox's root. It fails where anything is not as expected.
int fx_read_launch(struct fx_exec *x, const char *id, char *const *env, int *root);

// fx_open_inside opens what a program in the sandbox would, with no way out of its root.
int fx_open_inside(int root, const char *name, uint64_t flags);

struct fx_verdict {
	const char *outcome, *finding; // as in the Result; finding may be NULL
	int status;                    // the command's exit status
	char message[128];             // for the user, where there is something to say
};

// fx_judge says what became of an exec. st is NULL where the sandbox ended under it.
void fx_judge(const struct fx_exec *x, const struct fx_status *st, double seconds, struct fx_verdict *v);

int fx_events_plain(const struct fx_limits *l, const char *command, char *const *env);
void fx_event_started(const struct fx_limits *l, const char *command);
void fx_event_ended(const struct fx_limits *l, const struct fx_status *st, const struct fx_verdict *v, double seconds);

const char *fx_variable(char *const *env, const char *name);

#endif
