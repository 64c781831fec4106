// Makes an exec from a sandbox's forkexec.Launch, for client.c.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "reader.h"
#include "short.h"

// matches is spec.matches for one star at most; *odd is set if there are more.
static int matches(const char *pattern, const char *name, size_t n, int *odd)
{
	const char *star = strchr(pattern, '*');
	if (!star)
		return strlen(pattern) == n && memcmp(pattern, name, n) == 0;
	size_t before = (size_t)(star - pattern), after = strlen(star + 1);
	*odd |= strchr(star + 1, '*') != NULL;
	return n >= before + after && memcmp(pattern, name, before) == 0 && memcmp(star + 1, name + n - after, after) == 0;
}

static size_t name_length(const char *kv) { return (size_t)(strchrnul(kv, '=') - kv); }

static void put(const char **env, size_t *n, const char *kv)
{
	size_t len = name_length(kv);
	for (size_t i = 0; i < *n; i++)
		if (strncmp(env[i], kv, len + 1) == 0) {
			env[i] = kv;
			return;
		}
	env[(*n)++] = kv;
}

static int in_order(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static int any_matches(const char **patterns, size_t n, const char *variable, int *odd)
{
	for (size_t i = 0; i < n; i++)
		if (matches(patterns[i], variable, name_length(variable), odd))
			return 1;
	return 0;
}

// environment is spec.Exec.Environ: what every program has, then what the policy takes from the caller and does not deny, then what it sets, then
// what this exec adds.
static const char **environment(struct reader *r, char *const *caller, const struct fx_request *q)
{
	size_t n_base, n_allow, n_deny, n_set, n_caller = 0, n = 0;
	const char **base = strings(r, &n_base), **allow = strings(r, &n_allow), **deny = strings(r, &n_deny), **set = strings(r, &n_set);
	while (caller[n_caller])
		n_caller++;
	const char **env = r->bad ? NULL : calloc(n_base + n_caller + n_set + q->n_env + 1, sizeof *env);
	if (!env)
		return NULL;
	int odd = 0;
	for (size_t i = 0; i < n_base; i++)
		put(env, &n, base[i]);
	for (size_t i = 0; i < n_caller; i++)
		if (strchr(caller[i], '=') && any_matches(allow, n_allow, caller[i], &odd) && !any_matches(deny, n_deny, caller[i], &odd))
			put(env, &n, caller[i]);
	for (size_t i = 0; i < n_set; i++)
		put(env, &n, set[i]);
	for (size_t i = 0; i < q->n_env; i++)
		put(env, &n, q->env[i]);
	qsort(env, n, sizeof *env, in_order);
	return odd ? NULL : env;
}

// plain_path reports whether path.Clean would leave a path as it is.
static int plain_path(const char *p)
{
	for (p += *p == '/';; p++) {
		size_t n = (size_t)(strchrnul(p, '/') - p);
		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return 0;
		p += n;
		if (!*p)
			return 1;
	}
}

// directory is where the program starts: container/exec.go joins the two.
static const char *directory(const char *own, const char *asked)
{
	static char joined[4096];
	if (!asked)
		return own;
	if (!plain_path(asked))
		return NULL;
	if (*asked == '/')
		return asked;
	int n = snprintf(joined, sizeof joined, "%s/%s", strcmp(own, "/") == 0 ? "" : own, asked);
	return n < (int)sizeof joined ? joined : NULL;
}

static int make_stub(const char *elf, size_t n)
{
	int fd = memfd_create("sandboxrun", MFD_CLOEXEC | MFD_ALLOW_SEALING | 0x10 /* MFD_EXEC */);
	if (fd < 0)
		fd = memfd_create("sandboxrun", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || write(fd, elf, n) != (ssize_t)n || fchmod(fd, 0555) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -1;
	return fd;
}

int fx_open_inside(int root, const char *name, uint64_t flags)
{
	if (!(flags & O_PATH)) // whatever a program has put there, it neither blocks nor becomes our controlling terminal
		flags |= O_NOCTTY | O_NONBLOCK;
	struct { uint64_t flags, mode, resolve; } how = {flags | O_CLOEXEC, 0, 0x10 | 0x02}; // IN_ROOT, NO_MAGICLINKS
	return (int)syscall(SYS_openat2, root, name, &how, sizeof how);
}

// masked reports whether all masks are where they were put: the kernel drops one when somebody outside replaces what is
// under it.
static int masked(struct reader *r, int root)
{
	for (uint64_t n = number(r); n > 0 && !r->bad; n--) {
		const char *path = text(r);
		uint64_t dev = number(r), ino = number(r);
		struct stat st;
		int fd = fx_open_inside(root, path, O_PATH | O_NOFOLLOW);
		int same = fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
		close(fd);
		if (r->bad || !same)
			return 0;
	}
	return !r->bad;
}

// granted reports whether the writable directories that the sandbox shows are those of the host: container/granted.go.
static int granted(struct reader *r)
{
	for (uint64_t n = number(r); n > 0 && !r->bad; n--) {
		const char *path = text(r);
		uint64_t dev = number(r), ino = number(r);
		struct stat st;
		if (r->bad || lstat(path, &st) < 0 || st.st_dev != dev || st.st_ino != ino)
			return 0;
	}
	return !r->bad;
}

static int read_texts(struct fx_text *list, size_t n, struct reader *r)
{
	for (size_t i = 0; i < n; i++)
		list[i].p = bytes(r, &list[i].n);
	return r->bad ? -1 : 0;
}

static int read_answer(struct fx_launch *la, struct reader *r)
{
	read_texts(la->results, 4, r);
	read_texts(&la->started, 1, r);
	read_texts(&la->ended, 1, r);
	la->fine = text(r);
	la->failed = text(r);
	la->output = (int64_t)number(r);
	la->secrets = strings(r, &la->n_secrets);
	la->secret_length = number(r);
	la->relay = optional(r);
	la->cpu_per_wall = (int64_t)number(r);
	la->cpu_backstop_us = (int64_t)number(r);
	la->visible = strings(r, &la->n_visible);
	return r->bad ? -1 : 0;
}

// take_time gives an exec less time on the clock, and the processor time that comes with that: container.effective.
static void take_time(struct fx_exec *x, struct fx_launch *la, int64_t us, struct fx_rlimit *limits)
{
	struct fx_limits *l = x->limits;
	la->timed = us > 0 && (l->wall_us == 0 || us < l->wall_us);
	if (!la->timed)
		return;
	l->wall_us = us;
	if (la->cpu_per_wall == 0)
		return;
	l->cpu_us = la->cpu_per_wall * us;
	for (size_t i = 0; i < x->n_rlimits; i++)
		if (limits[i].resource == RLIMIT_CPU)
			limits[i].cur = limits[i].max = (uint64_t)(l->cpu_us + la->cpu_backstop_us + 999999) / 1000000;
}

// read_group reads what is to be written and counted in a group.
static int read_group(struct fx_cgroup *g, struct reader *r)
{
	g->own = (int)number(r);
	g->join = text(r);
	g->shared = text(r);
	g->n_writes = number(r);
	if (r->bad || g->n_writes > FX_WRITES)
		return -1;
	for (size_t i = 0; i < g->n_writes; i++) {
		g->writes[i].file = text(r);
		g->writes[i].value = (int64_t)number(r);
		g->writes[i].optional = (int)number(r);
	}
	for (size_t i = 0; i < FX_COUNTERS; i++) {
		g->counters[i].file = text(r);
		g->counters[i].word = text(r);
		g->counters[i].divisor = (int64_t)number(r);
		if (*g->counters[i].file && g->counters[i].divisor < 1)
			return -1;
	}
	return 0;
}

static int read_limits(struct fx_exec *x, struct fx_launch *la, const struct fx_request *q, struct reader *r)
{
	struct fx_limits *l = x->limits;
	int64_t *const first[] = {&l->wall_us, &l->idle_us, &l->cpu_us, &l->memory, &l->pids, &l->sandbox_pids};
	for (size_t i = 0; i < sizeof first / sizeof *first; i++)
		*first[i] = (int64_t)number(r);
	l->watched = (unsigned)number(r);
	l->nproc = number(r);
	l->cpus = (unsigned)number(r);
	l->tmpfs = strings(r, &l->n_tmpfs);
	l->n_cgroups = number(r);
	if (r->bad || l->n_cgroups > FX_CGROUPS)
		return -1;
	for (size_t i = 0; i < l->n_cgroups; i++) {
		l->cgroups[i].parent = text(r);
		l->cgroups[i].unified = (int)number(r);
		l->cgroups[i].controllers = (unsigned)number(r);
		if (read_group(&l->cgroups[i], r) < 0)
			return -1;
	}
	x->n_rlimits = number(r);
	if (r->bad || x->n_rlimits > MAX_LAUNCH / 8)
		return -1;
	struct fx_rlimit *limits = calloc(x->n_rlimits + 1, sizeof *limits);
	for (size_t i = 0; limits && i < x->n_rlimits; i++) {
		limits[i].resource = (int)number(r);
		limits[i].cur = number(r);
		limits[i].max = number(r);
	}
	x->rlimits = limits;
	static unsigned long mask[FX_CPUS / (8 * sizeof(long))];
	size_t n;
	const char *cpus = bytes(r, &n);
	if (n == sizeof mask)
		x->cpus = memcpy(mask, cpus, n);
	if (r->bad || !limits || (n && !x->cpus) || read_answer(la, r) < 0)
		return -1;
	take_time(x, la, q->timeout_us, limits);
	return 0;
}

// read_absent opens the grants that have denied paths in them where nothing is, and looks that nothing is there.
static int read_absent(struct fx_launch *la, struct reader *r, int root)
{
	size_t n_grants = number(r);
	if (r->bad || n_grants > FX_GRANTS)
		return -1;
	la->grants = calloc(n_grants + 1, sizeof *la->grants);
	for (size_t i = 0; la->grants && i < n_grants; i++) {
		const char *host = text(r), *shown = text(r);
		if (r->bad || (la->grants[i] = fx_open_grant(root, host, shown)) < 0)
			return -1;
	}
	la->n_absent = number(r);
	if (r->bad || la->n_absent > MAX_LAUNCH / 8)
		return -1;
	la->absent = calloc(la->n_absent + 1, sizeof *la->absent);
	for (size_t i = 0; la->absent && i < la->n_absent; i++) {
		struct fx_absent *a = &la->absent[i];
		size_t grant = number(r);
		a->writable = (int)number(r);
		a->below = text(r);
		if (r->bad || grant >= n_grants || !fx_nothing_at(la->grants[grant], a->below))
			return -1;
		a->grant = la->grants[grant];
	}
	return la->grants && la->absent ? 0 : -1;
}

// fx_read_plan turns it into an exec. What is not there stays as the caller has set it.
int fx_read_plan(struct fx_exec *x, struct fx_launch *la, struct reader *r, const struct fx_request *q, char *const *env, int root)
{
	if (number(r) != FX_LAUNCH_MAGIC)
		return -1;
	x->namespaces = (int)number(r);
	x->drop_groups = (int)number(r);
	x->uid = (int)number(r);
	x->gid = (int)number(r);
	x->umask = (unsigned)number(r);
	x->uid_map = text(r);
	x->gid_map = text(r);
	x->dir = directory(text(r), q->cwd);
	if (!x->dir || !masked(r, root) || !granted(r) || read_absent(la, r, root) < 0)
		return -1;
	x->n_mounts = number(r);
	if (r->bad || x->n_mounts > MAX_LAUNCH / 8)
		return -1;
	struct fx_mount *m = calloc(x->n_mounts + 1, sizeof *m);
	for (size_t i = 0; m && i < x->n_mounts; i++) {
		m[i].flags = number(r);
		m[i].source = optional(r);
		m[i].target = text(r);
		m[i].fstype = optional(r);
		m[i].data = optional(r);
	}
	x->mounts = m;
	x->envp = (char *const *)environment(r, env, q);
	if (read_limits(x, la, q, r) < 0)
		return -1;
	size_t n_filter, n_stub;
	const char *filter = bytes(r, &n_filter), *stub = bytes(r, &n_stub);
	if (r->bad || !m || !x->envp || n_filter == 0 || n_filter % sizeof(struct sock_filter))
		return -1;
	x->filter.len = (unsigned short)(n_filter / sizeof(struct sock_filter));
	x->filter.filter = malloc(n_filter);
	if (!x->filter.filter)
		return -1;
	memcpy(x->filter.filter, filter, n_filter);
	x->stub = make_stub(stub, n_stub);
	return x->stub < 0 ? -1 : 0;
}

