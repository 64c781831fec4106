// The control groups of one exec, and the count of a sandbox's execs. A group of the sandbox's own limits all execs
// together; each exec has one below it, so that what it used and exceeded is known of it alone.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "forkexec.h"
#include "groups.h"

#define HELPERS 3 // processes of ours in a sandbox for an exec besides the program: at its start join and member; the reaper
#define LARGEST_PAGE 65536
#define SLACK 64 // helpers that are allowed for where the limit cannot be adapted while an exec runs

int fx_exec_name(const struct fx_limits *l, char *buf, size_t size)
{
	if (l->waits)
		return snprintf(buf, size, "w%lld", (long long)l->waits);
	return snprintf(buf, size, "e%06llu", (unsigned long long)l->number);
}

static int group_path(const struct fx_limits *l, const struct fx_cgroup *g, const char *file, char *buf)
{
	char name[32];
	fx_exec_name(l, name, sizeof name);
	int n = !g->own ? snprintf(buf, FX_GROUP_PATH, "%s%s%s", g->parent, *file ? "/" : "", file)
			: snprintf(buf, FX_GROUP_PATH, "%s/%s%s%s", g->parent, name, *file ? "/" : "", file);
	if (n < 0 || n >= FX_GROUP_PATH)
		return errno = ENAMETOOLONG, -1;
	return 0;
}

// put_number writes a limit and reads it back. The kernel rounds bytes down to pages.
static int put_number(const char *path, int64_t n)
{
	char text[32];
	int len = snprintf(text, sizeof text, "%lld", (long long)n);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t w = write(fd, text, (size_t)len);
	int saved = errno;
	ssize_t r = w == len ? pread(fd, text, sizeof text - 1, 0) : -1;
	close(fd);
	text[r > 0 ? r : 0] = 0;
	int64_t is = text[0] >= '0' && text[0] <= '9' ? strtoll(text, NULL, 10) : -1; // else "max"
	errno = w == len ? EIO : saved;
	return is >= 0 && is <= n && n - is < LARGEST_PAGE ? 0 : -1;
}

static int group_write(struct fx_limits *l, const struct fx_cgroup *g, const char *file, int64_t n)
{
	char path[FX_GROUP_PATH];
	if (group_path(l, g, file, path) == 0 && put_number(path, n) == 0)
		return 0;
	l->failed = file;
	return -1;
}

// number_in finds the number that follows a word at the start of a line, or the first one where word is empty.
static int64_t number_in(const char *path, const char *word)
{
	char text[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return -1;
	text[n] = 0;
	size_t len = strlen(word);
	for (char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (strncmp(p, word, len) == 0 && (len == 0 || p[len] == ' '))
			return strtoll(p + len, NULL, 10);
	return -1;
}

int64_t fx_counted(const struct fx_limits *l, int which)
{
	for (size_t i = 0; i < l->n_cgroups; i++) {
		const struct fx_counter *c = &l->cgroups[i].counters[which];
		char path[FX_GROUP_PATH];
		if (!*c->file)
			continue;
		int64_t n = group_path(l, &l->cgroups[i], c->file, path) < 0 ? -1 : number_in(path, c->word);
		return n < 0 ? -1 : n / c->divisor;
	}
	return -1;
}

static int group_limit(struct fx_limits *l, const struct fx_cgroup *g)
{
	for (size_t i = 0; i < g->n_writes; i++)
		if (group_write(l, g, g->writes[i].file, g->writes[i].value) < 0 && !(g->writes[i].optional && errno == ENOENT))
			return -1;
	return 0;
}

static int group_make(struct fx_limits *l, struct fx_cgroup *g)
{
	char path[FX_GROUP_PATH];
	l->failed = "";
	if (group_path(l, g, "", path) < 0)
		return -1;
	if (g->own && mkdir(path, 0755) < 0) {
		// A launcher that was killed has left it; its exec is gone with it.
		if (errno != EEXIST || rmdir(path) < 0 || mkdir(path, 0755) < 0)
			return -1;
	}
	if (group_limit(l, g) < 0)
		return -1;
	if (!g->unified && group_path(l, g, g->join, path) < 0)
		return -1;
	g->fd = open(path, (g->unified ? O_RDONLY | O_DIRECTORY : O_WRONLY) | O_CLOEXEC);
	return g->fd < 0 ? -1 : 0;
}

const struct fx_cgroup *fx_group_of(const struct fx_limits *l, unsigned controller)
{
	for (size_t i = 0; i < l->n_cgroups; i++)
		if (l->cgroups[i].controllers & controller)
			return &l->cgroups[i];
	return NULL;
}

// sandbox_refused is how often the sandbox's own group has refused a process.
static int64_t sandbox_refused(const struct fx_cgroup *g)
{
	char path[FX_GROUP_PATH];
	const struct fx_counter *c = &g->counters[FX_COUNT_PIDS_REFUSED];
	int n = snprintf(path, sizeof path, "%s/%s", g->parent, c->file);
	return n < 0 || n >= (int)sizeof path ? -1 : number_in(path, c->word);
}

struct counts { uint64_t last, running; };

// count changes the file that all execs of a sandbox share, and what depends on it: the helpers of those that run are
// counted by the kernel too, and are not the program's to use. A launcher that was killed is counted for ever, which
// leaves programs a little more room together, and no single one any. Where it fails nothing has been counted.
static int count(struct fx_limits *l, int change)
{
	if (l->state < 0)
		return 0;
	struct counts c = {0, 0}, was;
	const struct fx_cgroup *g = fx_group_of(l, FX_PIDS);
	int fd = openat(l->state, "execs", (change > 0 ? O_CREAT : 0) | O_RDWR | O_CLOEXEC, 0600), result = -1;
	l->failed = "execs";
	if (fd < 0)
		return -1;
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			goto out;
	if (pread(fd, &c, sizeof c, 0) < 0)
		goto out;
	was = c;
	c.last += change > 0 && !l->check;
	c.last -= change < 0 && l->unused && c.last == l->number;
	c.running += c.running > 0 || change > 0 ? (uint64_t)change : 0;
	if (pwrite(fd, &c, sizeof c, 0) != sizeof c)
		goto out;
	if (change > 0)
		l->number = l->check ? 0 : c.last;
	result = 0;
	if (l->sandbox_pids > 0 && g) {
		char path[FX_GROUP_PATH];
		int n = snprintf(path, sizeof path, "%s/%s", g->parent, g->shared);
		l->failed = g->shared;
		result = n < (int)sizeof path ? put_number(path, l->sandbox_pids + (int64_t)c.running) : -1; // their reapers
		int saved = errno;
		if (result < 0 && change > 0 && pwrite(fd, &was, sizeof was, 0) == sizeof was)
			l->number = 0; // the sandbox's group is gone: it ends just now
		errno = saved;
	} else if (l->nproc) {
		uint64_t helpers = HELPERS * c.running, most = helpers < SLACK ? SLACK : helpers;
		l->nproc = l->sandbox_pids > 0 ? (uint64_t)l->sandbox_pids + 1 + most : 0;
	}
out:;
	int saved = errno;
	close(fd);
	errno = saved;
	return result;
}

// fx_limits_open numbers the exec and makes its groups. On failure errno and failed say why, and nothing is left.
int fx_limits_open(struct fx_limits *l)
{
	l->proc = l->ipc[0] = l->ipc[1] = l->ipc[2] = l->sockets = -1;
	for (size_t i = 0; i < l->n_cgroups; i++)
		l->cgroups[i].fd = -1;
	if (count(l, 1) < 0)
		return -1;
	const struct fx_cgroup *p = fx_group_of(l, FX_PIDS);
	if (p && p->unified)
		l->pids_before = sandbox_refused(p);
	for (size_t i = 0; i < l->n_cgroups; i++)
		if (group_make(l, &l->cgroups[i]) < 0) {
			int saved = errno;
			fx_limits_close(l);
			errno = saved;
			return -1;
		}
	if (!l->started_us) // else it has begun before, with what may block
		l->started_us = fx_now_us();
	return 0;
}

static void close_groups(struct fx_limits *l)
{
	for (size_t i = 0; i < l->n_cgroups; i++) {
		if (l->cgroups[i].fd >= 0)
			close(l->cgroups[i].fd);
		l->cgroups[i].fd = -1;
	}
}

// fx_limits_started is called once the program has been executed.
void fx_limits_started(struct fx_limits *l)
{
	l->running_us = fx_now_us();
	if (l->pids > 0 && !fx_group_of(l, FX_PIDS))
		l->tasks_peak = 1; // the program; that nobody has looked yet must not mean that nobody does
	close_groups(l);
}

int64_t fx_group_memory(const struct fx_limits *l)
{
	int64_t own = fx_counted(l, FX_COUNT_ANON), shared = fx_counted(l, FX_COUNT_SHMEM);
	return own < 0 ? -1 : own + (shared > 0 ? shared : 0);
}

static void read_groups(struct fx_limits *l)
{
	const struct fx_cgroup *p = fx_group_of(l, FX_PIDS);
	if (fx_group_of(l, FX_MEMORY))
		l->oom_kills = fx_counted(l, FX_COUNT_OOM_KILLS);
	if (p) // else it stays 0: answer.c takes anything else for a reason to look closer
		l->pids_events = fx_counted(l, FX_COUNT_PIDS_REFUSED);
	// Since Linux 6.11 an event is counted where the limit stood that was met: that may be the sandbox's own.
	if (p && p->unified && l->pids_events == 0 && l->pids_before >= 0)
		l->pids_events = sandbox_refused(p) - l->pids_before;
	int64_t cpu = fx_counted(l, FX_COUNT_CPU);
	if (cpu >= 0)
		l->cpu_used_us = cpu - l->counted_before_us;
}

// fx_limits_settle reads what the groups have counted. Every process of the exec is gone, but for the supervisor.
void fx_limits_settle(struct fx_limits *l)
{
	if (l->closed_us)
		return;
	l->closed_us = fx_now_us();
	fx_limits_stop(l);
	read_groups(l);
}

// fx_limits_close does that too and, unless the groups go with the sandbox, removes them. The supervisor has ended.
void fx_limits_close(struct fx_limits *l)
{
	fx_limits_settle(l);
	close_groups(l);
	for (size_t i = 0; i < l->n_cgroups; i++) {
		const struct fx_cgroup *g = &l->cgroups[i];
		char path[FX_GROUP_PATH];
		if (!g->own || l->once || group_path(l, g, "", path) < 0)
			continue;
		// A process that is gone may still be on its way out of its group.
		for (int try = 0; rmdir(path) < 0 && errno == EBUSY && try < 100; try++)
			usleep(100);
	}
	const int opened[] = {l->proc, l->ipc[0], l->ipc[1], l->ipc[2], l->sockets};
	for (int i = 0; i < 5; i++)
		if (opened[i] >= 0)
			close(opened[i]);
	l->proc = l->ipc[0] = l->ipc[1] = l->ipc[2] = l->sockets = -1;
	if (!l->once)
		count(l, -1);
}
