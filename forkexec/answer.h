// What answer.c, events.c and resultfile.c share.
#ifndef ANSWER_H
#define ANSWER_H

#include "short.h"

#define FX_COMMAND 256 // bytes of a command's name
#define FX_VALUE 320   // bytes of any value but output

struct fx_values {
	const struct fx_short *s;
	const char *time, *command, *finding;
};

char *fx_fill(const struct fx_text *t, const struct fx_values *v, size_t *size);
int fx_event_ended(struct fx_short *s, const struct fx_launch *la, struct fx_values *v);

// fx_commit_result gives the file of --result its name. It gives an errno.
int fx_commit_result(struct fx_short *s, const struct fx_request *q);

#endif
