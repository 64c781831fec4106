// The limits of one exec that no kernel limit stands behind are held by looking now and then. Nothing here is asked of
// the program or believed from it: what is read comes from the kernel, by a /proc and by control groups that the program
// cannot write.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include "forkexec.h"
#include "groups.h"

#define MS 1000 // a millisecond
#define FAST 4000 // bytes a microsecond: faster than a program can touch fresh memory on one processor
#define LOOK_AT_GROUPS (50 * MS)

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t between(int64_t low, int64_t n, int64_t high) { return most(low, least(n, high)); }

int64_t fx_now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

struct usage { int64_t rss, shared, cpu_us, tasks, written; };

static ssize_t read_at(int dir, const char *name, char *buf, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);
	if (fd >= 0)
		close(fd);
	if (n >= 0)
		buf[n] = 0;
	return n;
}

// add_process reads one process' stat. Process 1 is the reaper: only what its children have used counts.
static void add_process(int proc, const char *pid, struct usage *u)
{
	char name[64], text[1024];
	snprintf(name, sizeof name, "%s/stat", pid);
	if (read_at(proc, name, text, sizeof text) <= 0)
		return;
	char *p = strrchr(text, ')'); // the name before it may hold anything
	long long field[25] = {0};
	for (int i = 2; p && i < 24; i++) {
		p = strchr(p + 1, ' ');
		if (p)
			field[i + 1] = strtoll(p + 1, NULL, 10);
	}
	long long tick = 1000000 / sysconf(_SC_CLK_TCK);
	int reaper = strcmp(pid, "1") == 0;
	u->cpu_us += tick * (field[16] + field[17] + (reaper ? 0 : field[14] + field[15]));
	if (reaper)
		return;
	u->tasks += field[20];
	u->rss += field[24] * sysconf(_SC_PAGESIZE);
}

struct dirent64_ { uint64_t ino; int64_t off; unsigned short len; unsigned char type; char name[]; };

// each_process calls for every process of the exec, by its number in there.
static void each_process(int proc, void (*call)(int, const char *, struct usage *), struct usage *u)
{
	char buf[8192] __attribute__((aligned(8)));
	lseek(proc, 0, SEEK_SET);
	for (long n; (n = syscall(SYS_getdents64, proc, buf, sizeof buf)) > 0;)
		for (long at = 0; at < n;) {
			struct dirent64_ *d = (struct dirent64_ *)(buf + at);
			if (d->name[0] >= '1' && d->name[0] <= '9')
				call(proc, d->name, u);
			at += d->len;
		}
}

static int64_t kilobytes(const char *text, const char *word)
{
	const char *p = strstr(text, word);
	return p ? strtoll(p + strlen(word), NULL, 10) * 1024 : 0;
}

// add_shares adds a process' proportional share of the memory that it has mapped. A page that ten processes share
// counts as a tenth for each.
static void add_shares(int proc, const char *pid, struct usage *u)
{
	char name[64], text[4096];
	snprintf(name, sizeof name, "%s/smaps_rollup", pid);
	if (read_at(proc, name, text, sizeof text) <= 0)
		return;
	int64_t shared = kilobytes(text, "\nPss_Shmem:");
	u->shared += shared;
	u->rss += kilobytes(text, "\nPss:") - shared;
}

// in_memory is what lies in the exec's file systems in memory.
static int64_t in_memory(const struct fx_limits *l)
{
	int64_t sum = 0;
	for (size_t i = 0; i < l->n_tmpfs; i++) {
		char path[FX_GROUP_PATH];
		struct statfs st;
		if (snprintf(path, sizeof path, "1/root%s", l->tmpfs[i]) >= (int)sizeof path)
			continue;
		int fd = openat(l->proc, path, O_PATH | O_CLOEXEC);
		if (fd >= 0 && fstatfs(fd, &st) == 0)
			sum += (int64_t)(st.f_blocks - st.f_bfree) * st.f_bsize;
		if (fd >= 0)
			close(fd);
	}
	return sum;
}

// memory_used sums up the memory of an exec. What its processes have resident is quickly read and counts shared pages
// for each of them; only when that is too much is it worth finding out exactly.
static int64_t memory_used(struct fx_limits *l, int64_t rss)
{
	int64_t files = in_memory(l);
	if (rss + files <= l->memory)
		return rss + files;
	struct usage shares = {0};
	each_process(l->proc, add_shares, &shares);
	return shares.rss + most(shares.shared, files); // a file in memory may be mapped too
}

// fx_limits_look says whether an exec's processes have to be looked at.
int fx_limits_look(const struct fx_limits *l)
{
	return l->watched || (l->cpu_us > 0 && !fx_group_of(l, FX_CPUACCT)) || (l->pids > 0 && !fx_group_of(l, FX_PIDS));
}

// look sums up over the processes of the exec. One that is waited for while we look may be missed, both as itself and as
// what its parent has waited for: then the sum is less than the last one, and another look tells.
static struct usage look(struct fx_limits *l)
{
	struct usage u = {0};
	for (int try = 0; try < 3 && l->proc >= 0; try++) {
		u = (struct usage){0};
		each_process(l->proc, add_process, &u);
		if (u.cpu_us >= l->cpu_last_us)
			break;
	}
	return u;
}

// A sum over living processes shrinks when one ends whose parent does not wait for it. What it has used is used.
static void note(int64_t sum, int64_t *used, int64_t *last, int64_t *gone)
{
	if (sum < *last)
		*gone += *last - sum;
	*last = sum;
	*used = most(*used, sum + *gone);
}

// add_written adds what a process, and those that it has waited for, have written to files that lie on a disk.
static void add_written(int proc, const char *pid, struct usage *u)
{
	char name[64], text[1024];
	snprintf(name, sizeof name, "%s/io", pid);
	if (read_at(proc, name, text, sizeof text) <= 0)
		return;
	char *wrote = strstr(text, "\nwrite_bytes:"), *cancelled = strstr(text, "\ncancelled_write_bytes:");
	if (wrote && cancelled)
		u->written += strtoll(wrote + 13, NULL, 10) - strtoll(cancelled + 23, NULL, 10);
}

// fx_limits_written is how many bytes the exec has written, less what was taken back before it went to the disk.
int64_t fx_limits_written(struct fx_limits *l)
{
	struct usage u = {0};
	each_process(l->proc, add_written, &u);
	note(u.written, &l->written, &l->written_last, &l->written_gone);
	return l->written;
}

static void end(struct fx_limits *l, int why)
{
	if (l->why == FX_BY_ITSELF)
		l->why = why;
}

// sample looks at what the exec uses and says when to look again.
static int64_t sample(struct fx_limits *l)
{
	struct usage u = look(l);
	int64_t again = 500 * MS, cpu = fx_group_cpu(l);
	if (cpu >= 0)
		l->cpu_used_us = most(l->cpu_used_us, cpu);
	else
		note(u.cpu_us, &l->cpu_used_us, &l->cpu_last_us, &l->cpu_gone_us);
	if (l->cpu_us > 0) {
		if (l->cpu_used_us > l->cpu_us)
			end(l, FX_CPU_TIME);
		again = least(again, between(5 * MS, (l->cpu_us - l->cpu_used_us) / (l->cpus ? l->cpus : 1), 500 * MS));
	}
	if (l->watched & FX_MEMORY) {
		int64_t used = memory_used(l, u.rss);
		l->memory_peak = most(l->memory_peak, used);
		if (used > l->memory)
			end(l, FX_MEMORY_USED);
		again = least(again, between(2 * MS, (l->memory - used) / FAST, 50 * MS));
	}
	if (l->pids > 0 && !fx_group_of(l, FX_PIDS)) {
		l->tasks_peak = most(l->tasks_peak, u.tasks);
		if ((l->watched & FX_PIDS) && u.tasks > l->pids)
			end(l, FX_TASKS);
		again = least(again, (l->watched & FX_PIDS ? 5 : 10) * MS);
	}
	const struct fx_cgroup *m = fx_group_of(l, FX_MEMORY);
	if (m && l->memory > 0) {
		const char *file = m->unified ? "memory.events" : "memory.oom_control";
		if (fx_group_number(l, m, file, "oom_kill") > 0)
			end(l, FX_MEMORY_USED);
		again = least(again, LOOK_AT_GROUPS);
	}
	l->ramp_us = l->ramp_us ? 2 * l->ramp_us : MS; // something may happen right at the start
	return least(again, l->ramp_us);
}

static int64_t deadline(struct fx_limits *l, int64_t from, int64_t length, int64_t now, int why)
{
	if (length <= 0)
		return INT64_MAX;
	if (now - from >= length)
		end(l, why);
	return from + length - now;
}

// fx_limits_overdue sets why where an exec that has not started yet has no time left.
void fx_limits_overdue(struct fx_limits *l)
{
	int64_t now = fx_now_us();
	deadline(l, l->started_us, l->wall_us, now, FX_WALL);
	deadline(l, l->started_us, l->idle_us, now, FX_IDLE);
	if (l->why != FX_BY_ITSELF)
		l->ended_us = now;
}

// fx_limits_check sets why when a limit is exceeded, and says in how many microseconds it wants to be called again; 0
// for never. output_us is when the program last wrote something. It may be called as often as one likes.
int64_t fx_limits_check(struct fx_limits *l, int64_t output_us)
{
	int64_t now = fx_now_us(), next = INT64_MAX;
	if (l->ended_us) // the supervisor has been told
		return now - l->ended_us < FX_GRACE ? l->ended_us + FX_GRACE - now : FX_GRACE;
	next = least(next, deadline(l, l->started_us, l->wall_us, now, FX_WALL));
	next = least(next, deadline(l, most(l->started_us, output_us), l->idle_us, now, FX_IDLE));
	if (l->cpu_us || l->pids || l->memory) {
		if (now >= l->sample_us)
			l->sample_us = now + sample(l);
		next = least(next, l->sample_us - now);
	}
	if (l->why != FX_BY_ITSELF)
		l->ended_us = now;
	return next == INT64_MAX ? 0 : most(1, next);
}

