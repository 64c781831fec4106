// What limits.c, memory.c, hidden.c and sockets.c share: how the processes of an exec are looked at.
#ifndef LIMITS_H
#define LIMITS_H

#include <sys/types.h>
#include "forkexec.h"

#define MS 1000 // a millisecond
#define PROC_PATH 96
#define STATUS_SIZE 8192

// A look has an end, whatever the program has made for it to look at.
struct fx_look {
	struct fx_limits *l;
	int64_t until_us;       // on the clock
	int64_t cpu_until_us;   // of this thread's processor time, which a busy machine does not use up
	int late;               // the look was ended before it had seen everything
	// The sums.
	int64_t rss, shared, tables, cpu_us, tasks, written;
	int64_t twins;          // memory of processes that are about as large as the one before: children of vfork, perhaps
	int64_t last_own;
};

struct dirent64_ { uint64_t ino; int64_t off; unsigned short len; unsigned char type; char name[]; };

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t between(int64_t low, int64_t n, int64_t high) { return most(low, least(n, high)); }

void fx_look_begin(struct fx_look *k, struct fx_limits *l, int64_t wall_us, int64_t cpu_us);
int fx_look_late(struct fx_look *k);
ssize_t fx_read_at(int dir, const char *name, char *buf, size_t size);

// fx_each calls for every name in a directory that is a number, until it is late.
void fx_each(struct fx_look *k, int dir, const char *path, void (*call)(struct fx_look *, const char *));

// fx_field finds the number behind a word that stands at the beginning of a line: "\nVmPTE:". 0 where it is not there.
int64_t fx_field(const char *text, const char *word);

// fx_alive reads the status of a process, or of a thread of it that still has its memory: the first thread may have ended
// before the others, and /proc then says nothing of theirs under the number of the process. It gives the path of the one
// that it has read, or 0 where there is none.
int fx_alive(struct fx_look *k, const char *pid, char *text, char path[PROC_PATH]);

// fx_memory says how much memory the exec has, and whether it is certain that it has more than allowed.
int64_t fx_memory(struct fx_limits *l, int64_t resident, int *exceeded);

// fx_resident adds what is quickly read of a process: too much where processes share memory.
void fx_resident(struct fx_look *k, const char *pid);

// fx_hidden is the memory that no process has mapped and that only descriptors hold: of files in memory, and of pipes.
int64_t fx_hidden(struct fx_limits *l, int64_t rest);
int fx_hidden_has(const struct fx_limits *l, uint64_t ino);

// fx_sockets is the memory of the sockets of the sandbox's network namespace.
int64_t fx_sockets(struct fx_limits *l);

#endif
