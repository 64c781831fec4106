// The short way of `sandboxrun exec`: an exec that is started, looked after and, where there is nothing to say of it, answered
// before the Go runtime starts. client.c draws it.
#ifndef SHORT_H
#define SHORT_H

#include "forkexec.h"

// What the command line asks for.
struct fx_request {
	const char *id, *cwd, *result;  // NULL: not given
	const char *policy;             // of a run and a create
	const char *ready;              // of a run in a pool: what process 1 calls the sandbox until it is complete
	const char *owner;              // of a create: a pid, or empty for none
	char *const *argv;              // of the program
	const char **env;               // NAME=VALUE
	size_t n_env;
	int64_t timeout_us;             // 0: not given
	int json, input;
};

// fx_read_request reads what follows `exec`. It fails where anything is not quite plain: then Go reads it, and reports the error.
int fx_read_request(struct fx_request *q, char **args, char *const *env);

// fx_read_run is the same for what follows `run`. It gives no id.
int fx_read_run(struct fx_request *q, char **args, char *const *env);

// fx_read_create and fx_read_delete are the same for what follows these.
int fx_read_create(struct fx_request *q, char **args);
int fx_read_delete(struct fx_request *q, char **args);

// fx_claim_created has the pool that the environment names give a sandbox as `create` makes it, and fx_delete_by_pool has it delete one. They
// fail where the command has to do it itself.
int fx_claim_created(const struct fx_request *q, char *const *env);
int fx_delete_by_pool(const struct fx_request *q, char *const *env);

// fx_claim_sandbox claims a sandbox of the pool that the environment names, for one run. It fails where there is none. The pool removes it when
// this process has ended.
int fx_claim_sandbox(struct fx_request *q, char *const *env);

// fx_drop_claim gives up a sandbox that the pool is not sure of.
void fx_drop_claim(void);

// fx_claim_lost reports whether that pool has ended, so that nobody will.
int fx_claim_lost(void);

// fx_pool_dir opens the directory in which that pool listens.
int fx_pool_dir(char *const *env);

// What process 1 holds about execs, besides how they are started: Answer in launch.go.
struct fx_text { const char *p; size_t n; };

struct fx_absent { int grant, writable; const char *below; }; // a denied path where nothing is, below a grant

struct fx_launch {
	struct fx_text results[4];      // one for each of FX_MERGED and FX_TIMEOUT
	struct fx_text started, ended;  // events
	const char *fine, *failed;      // the finding for status 0, and for any other
	int64_t output;                 // how many bytes of each stream are kept
	const char **secrets;           // how the names of variables end whose values are to be redacted
	size_t n_secrets, secret_length;
	const char *relay;              // the file that a relay holds locked while it runs, or NULL
	int timed;                      // the exec has less time than the policy gives
	int64_t cpu_per_wall, cpu_backstop_us; // the limit of processor time for another time on the clock; 0: its own
	struct fx_absent *absent;
	size_t n_absent;
	int *grants;                    // directories
	const char **visible;           // of all that programs see of the host, dev and ino, 16 bytes each
	size_t n_visible;
	uint64_t store_dev, store_ino;
	struct fx_text sealed;          // all that process 1 holds
};

#define FX_GRANTS 64 // that are kept open for denied paths

#define FX_MERGED 1
#define FX_TIMEOUT 2

// fx_read_launch fills in all of an exec that does not depend on the command: its sandbox, mounts, filter and stub; and its
// environment. It gives a descriptor of the sandbox's root. It fails where anything is not as expected.
int fx_read_launch(struct fx_exec *x, struct fx_launch *la, const struct fx_request *q, char *const *env, int *root);

// fx_read_complete gives all that process 1 holds of a sandbox that is complete.
int fx_read_complete(struct fx_text *sealed, const struct fx_request *q, char *const *env);

struct reader;
int fx_read_plan(struct fx_exec *x, struct fx_launch *la, struct reader *r, const struct fx_request *q, char *const *env, int root);

// fx_open_inside opens what a program in the sandbox would, with no way out of its root.
int fx_open_inside(int root, const char *name, uint64_t flags);

const char *fx_variable(char *const *env, const char *name);

// fx_has_secret reports whether a program has a variable whose value is to be redacted, and that stands in a text if there is one.
int fx_has_secret(const struct fx_launch *la, char *const *env, const char *text);

// fx_open_grant opens a grant that has denied paths in it, where it is the one that the sandbox shows.
int fx_open_grant(int root, const char *host, const char *shown);

// fx_nothing_at reports whether nothing is at a path below a grant, as far as that is certain.
int fx_nothing_at(int grant, const char *below);

void fx_keep(struct fx_kept *k, const char *p, size_t n);

int fx_events_plain(const struct fx_limits *l, const struct fx_launch *la, const char *command, char *const *env);
void fx_event_started(struct fx_short *s, const struct fx_launch *la, const char *command);

// fx_open_result makes sure that a result can go where --result says. *go is 1 where that is for Go to judge.
int fx_open_result(struct fx_short *s, const struct fx_launch *la, const struct fx_request *q);
void fx_discard_result(struct fx_short *s);

// fx_answer_modes closes the filter's listener, unless something is asked there: then somebody else answers from now on.
void fx_answer_modes(struct fx_exec *x, int asked);

// fx_answer ends this process where all that can be said of an exec is that its program has exited by itself.
void fx_answer(struct fx_short *s, const struct fx_launch *la, const struct fx_request *q);

#endif
