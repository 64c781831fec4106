// What feed.c does for client.c.
#ifndef FEED_H
#define FEED_H

#include <poll.h>
#include "forkexec.h"

struct fx_feed {
	int to;             // the program's standard input, or -1
	enum { FX_FILE, FX_PIPE, FX_SOCKET, FX_NULL } kind;
	// What is waited for: input; that the program has read what it was shown; that it takes the rest of it; that it has read all.
	enum { FX_WAIT, FX_SHOWN, FX_WRITE, FX_DRAIN } state;
	int streaming;      // it has read a lot, so that a pipe is copied at full speed
	int wait;           // milliseconds
	size_t page, have, done, passed;
	char data[65536];
};

// fx_feed_open makes the pipe. It fails where the input is for Go to pass on.
int fx_feed_open(struct fx_feed *f, struct fx_exec *x);

// fx_feed_wait says what to poll for, and for how many milliseconds at most.
int fx_feed_wait(struct fx_feed *f, struct pollfd p[2]);

// fx_feed_move passes on what there is. *failed is the errno of reading it.
void fx_feed_move(struct fx_feed *f, const struct pollfd p[2], int *failed);

#endif
