// The limits of one exec that no kernel limit stands behind are held by looking now and then. Nothing here is asked of
// the program or believed from it: what is read comes from the kernel, by a /proc and by control groups that the program
// cannot write.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "groups.h"
#include "limits.h"

#define FAST 4000 // bytes a microsecond: faster than a program can touch fresh memory on one processor
#define LOOK_AT_GROUPS (50 * MS)
#define YOUNG (10 * MS)   // until then a program has not made enough to make a look slow
#define LOOK_WALL (2000 * MS)
#define LOOK_CPU (500 * MS)
#define BRIEF (5 * MS) // a look may come before a program has begun
#define FAULT (20 * 1024) // what a fault brings: measured 18 to 20 KiB for true, sh and ls, whose pages the kernel maps by up to 16 at once

static int64_t clock_us(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

int64_t fx_now_us(void) { return clock_us(CLOCK_MONOTONIC); }

void fx_look_begin(struct fx_look *k, struct fx_limits *l, int64_t wall_us, int64_t cpu_us)
{
	memset(k, 0, sizeof *k);
	k->l = l;
	k->until_us = fx_now_us() + wall_us;
	k->cpu_until_us = clock_us(CLOCK_THREAD_CPUTIME_ID) + cpu_us;
}

int fx_look_late(struct fx_look *k)
{
	if (!k->late)
		k->late = fx_now_us() > k->until_us || clock_us(CLOCK_THREAD_CPUTIME_ID) > k->cpu_until_us;
	return k->late;
}

ssize_t fx_read_at(int dir, const char *name, char *buf, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);
	if (fd >= 0)
		close(fd);
	if (n >= 0)
		buf[n] = 0;
	return n;
}

int64_t fx_field(const char *text, const char *word)
{
	const char *p = strstr(text, word);
	return p ? strtoll(p + strlen(word), NULL, 10) : 0;
}

static int numeric(const char *name) { return name[0] >= '0' && name[0] <= '9'; }

// first_number is the first entry of a list that is one.
static const char *first_number(const char *buf, long n)
{
	for (long at = 0; at < n; at += ((const struct dirent64_ *)(buf + at))->len)
		if (numeric(((const struct dirent64_ *)(buf + at))->name))
			return ((const struct dirent64_ *)(buf + at))->name;
	return "";
}

#define PROCESSES 256 // FIRST_PROCESS_ENTRY of fs/proc: where they begin in a list of /proc. To list what stands before takes the longest

// next_entries lists a directory on. In the exec's /proc it begins at the processes; where process 1 is not the first of them, it lists all.
static long next_entries(int fd, char *buf, size_t size, int *proc)
{
	int skips = *proc && lseek(fd, PROCESSES, SEEK_SET) == PROCESSES;
	long n = syscall(SYS_getdents64, fd, buf, size);
	if (skips && strcmp(first_number(buf, n), "1") != 0 && lseek(fd, 0, SEEK_SET) == 0)
		n = syscall(SYS_getdents64, fd, buf, size);
	*proc = 0;
	return n;
}

void fx_each(struct fx_look *k, int dir, const char *path, void (*call)(struct fx_look *, const char *))
{
	char buf[8192] __attribute__((aligned(8)));
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), proc = strcmp(path, ".") == 0;
	for (long n; fd >= 0 && !fx_look_late(k) && (n = next_entries(fd, buf, sizeof buf, &proc)) > 0;)
		for (long at = 0; at < n;) {
			struct dirent64_ *d = (struct dirent64_ *)(buf + at);
			if (numeric(d->name) && fx_look_late(k)) // to ask costs a system call
				break;
			if (numeric(d->name))
				call(k, d->name);
			at += d->len;
		}
	if (fd >= 0)
		close(fd);
}

struct living { struct fx_look k; const char *pid; char *text, *path; int found; };

static void try_thread(struct fx_look *k, const char *tid)
{
	struct living *v = (struct living *)k;
	char name[PROC_PATH + 8];
	if (v->found)
		return;
	snprintf(v->path, PROC_PATH, "%.20s/task/%.20s", v->pid, tid);
	snprintf(name, sizeof name, "%s/status", v->path);
	v->found = fx_read_at(k->l->proc, name, v->text, STATUS_SIZE) > 0 && strstr(v->text, "\nVmRSS:");
}

int fx_alive(struct fx_look *k, const char *pid, char *text, char path[PROC_PATH])
{
	snprintf(path, PROC_PATH, "%.20s/status", pid);
	if (fx_read_at(k->l->proc, path, text, STATUS_SIZE) <= 0)
		return 0;
	snprintf(path, PROC_PATH, "%.20s", pid);
	if (strstr(text, "\nVmRSS:"))
		return 1;
	if (fx_field(text, "\nThreads:") <= 1)
		return 0;
	struct living v = {.k = *k, .pid = pid, .text = text, .path = path};
	char dir[PROC_PATH];
	snprintf(dir, sizeof dir, "%.20s/task", pid);
	fx_each(&v.k, k->l->proc, dir, try_thread);
	k->late |= v.k.late;
	return v.found;
}

// add_process reads one process' stat. Process 1 is the reaper: only what its children have used counts.
static void add_process(struct fx_look *k, const char *pid)
{
	char name[64], text[1024];
	snprintf(name, sizeof name, "%.20s/stat", pid);
	if (fx_read_at(k->l->proc, name, text, sizeof text) <= 0)
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
	k->cpu_us += tick * (field[16] + field[17] + (reaper ? 0 : field[14] + field[15]));
	if (reaper)
		return;
	k->tasks += field[20];
	if ((k->l->watched & FX_MEMORY) || k->l->measure)
		fx_resident(k, pid);
}

// fx_limits_look reports whether an exec's processes have to be looked at.
int fx_limits_look(const struct fx_limits *l) { return l->measure || fx_limits_all(l); }

// fx_limits_all reports whether a limit hangs on that, so that none of them may be missed.
int fx_limits_all(const struct fx_limits *l)
{
	return l->watched || (l->cpu_us > 0 && !fx_group_of(l, FX_CPUACCT)) ||
	       (l->pids > 0 && !fx_group_of(l, FX_PIDS));
}

// look sums up over the processes of the exec. One that is waited for while we look may be missed, both as itself and as
// what its parent has waited for: then the sum is less than the last one, and the next look finds it.
static void look(struct fx_limits *l, struct fx_look *k)
{
	fx_look_begin(k, l, LOOK_WALL, LOOK_CPU);
	for (int try = 0; try < 3 && l->proc >= 0; try++) {
		k->rss = k->shared = k->tables = k->cpu_us = k->tasks = 0;
		fx_each(k, l->proc, ".", add_process);
		if (k->late || k->cpu_us >= l->cpu_last_us)
			break;
	}
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
static void add_written(struct fx_look *k, const char *pid)
{
	char name[64], text[1024];
	snprintf(name, sizeof name, "%.20s/io", pid);
	if (fx_read_at(k->l->proc, name, text, sizeof text) <= 0)
		return;
	char *wrote = strstr(text, "\nwrite_bytes:"), *cancelled = strstr(text, "\ncancelled_write_bytes:");
	if (wrote && cancelled)
		k->written += strtoll(wrote + 13, NULL, 10) - strtoll(cancelled + 23, NULL, 10);
}

// fx_limits_written is how many bytes the exec has written, less what was taken back before it went to the disk. Where there
// are too many processes to ask, it is what is known; the free space shows the rest.
int64_t fx_limits_written(struct fx_limits *l)
{
	struct fx_look k;
	fx_look_begin(&k, l, LOOK_WALL / 10, LOOK_CPU / 10);
	fx_each(&k, l->proc, ".", add_written);
	note(k.written, &l->written, &l->written_last, &l->written_gone);
	return l->written;
}

static void end(struct fx_limits *l, int why)
{
	int none = FX_BY_ITSELF;
	__atomic_compare_exchange_n(&l->why, &none, why, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static int64_t sample_cpu(struct fx_limits *l, const struct fx_look *k)
{
	int64_t cpu = fx_counted(l, FX_COUNT_CPU);
	if (cpu >= 0)
		l->cpu_used_us = most(l->cpu_used_us, cpu - l->counted_before_us);
	else if (!k->late)
		note(most(k->cpu_us - l->cpu_before_us, 0), &l->cpu_used_us, &l->cpu_last_us, &l->cpu_gone_us);
	if (l->cpu_us == 0)
		return 500 * MS;
	if (l->cpu_used_us > l->cpu_us)
		end(l, FX_CPU_TIME);
	// Without a group a process that comes and goes between two looks is not counted, so there are ten looks in what is left.
	return between(5 * MS, (l->cpu_us - l->cpu_used_us) / (l->cpus ? l->cpus : 1) / (cpu >= 0 ? 1 : 10), 500 * MS);
}

// sample_memory looks where nobody else does, and otherwise at whether the kernel has.
static int64_t sample_memory(struct fx_limits *l, const struct fx_look *k)
{
	const struct fx_cgroup *m = fx_group_of(l, FX_MEMORY);
	if (l->watched & FX_MEMORY) {
		int exceeded;
		int64_t used = fx_memory(l, k->rss + k->shared + k->tables, &exceeded);
		if (exceeded)
			end(l, FX_MEMORY_USED);
		if (exceeded || used <= l->memory)
			l->memory_peak = most(l->memory_peak, used);
		return between(2 * MS, (l->memory - used) / FAST, 50 * MS);
	}
	if (!m || l->memory == 0)
		return 500 * MS;
	if (fx_counted(l, FX_COUNT_OOM_KILLS) > 0)
		end(l, FX_MEMORY_USED);
	if (l->ramp_us > MS)
		l->memory_peak = most(l->memory_peak, fx_group_memory(l));
	return LOOK_AT_GROUPS;
}

static int64_t sample_tasks(struct fx_limits *l, const struct fx_look *k)
{
	if (l->pids == 0 || fx_group_of(l, FX_PIDS))
		return 500 * MS;
	l->tasks_peak = most(l->tasks_peak, k->tasks);
	if ((l->watched & FX_PIDS) && k->tasks > l->pids)
		end(l, FX_TASKS);
	return (l->watched & FX_PIDS ? 5 : 10) * MS;
}

// fx_limits_sample looks at what the exec uses, sets why when a limit is exceeded, and says in how many microseconds to
// look again. How long it takes depends on what the program makes, so it is called where nobody waits for it. What it has
// not seen by its end counts as too much, where a limit hangs on it that nobody else holds.
int64_t fx_limits_sample(struct fx_limits *l)
{
	struct fx_look k;
	int64_t began = fx_now_us();
	memset(&k, 0, sizeof k);
	if (fx_limits_look(l))
		look(l, &k);
	int64_t again = least(sample_cpu(l, &k), least(sample_memory(l, &k), sample_tasks(l, &k)));
	if (k.late)
		end(l, l->watched & FX_MEMORY ? FX_MEMORY_USED : l->watched & FX_PIDS ? FX_TASKS : l->cpu_us ? FX_CPU_TIME : FX_BY_ITSELF);
	l->ramp_us = l->ramp_us ? 2 * l->ramp_us : MS; // something may happen right at the start
	return most(least(again, l->ramp_us), fx_now_us() - began);
}

static int sampled(const struct fx_limits *l) { return l->cpu_us || l->pids || l->memory || l->measure; }

// sampler is a thread of the plain exec's. Go has its own (limits.go).
static void *sampler(void *arg)
{
	struct fx_limits *l = arg;
	struct pollfd stop = {l->stop, POLLIN, 0};
	for (int64_t again = 0;; again = fx_limits_sample(l)) {
		struct timespec t = {again / 1000000, again % 1000000 * 1000};
		if (ppoll(&stop, 1, &t, NULL) > 0)
			return NULL;
		if (l->why != FX_BY_ITSELF) {
			eventfd_write(l->wake, 1);
			return NULL;
		}
	}
}

// sample_apart samples without holding up the clock: at first at once, since most programs have ended by the time that a
// thread would be worth its while.
static int64_t sample_apart(struct fx_limits *l, int64_t now)
{
	if (l->elsewhere || !sampled(l))
		return INT64_MAX;
	if (now - l->started_us < YOUNG) {
		if (now >= l->sample_us)
			l->sample_us = now + fx_limits_sample(l);
		return l->sample_us - now;
	}
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->stop = eventfd(0, EFD_CLOEXEC);
	pthread_t *t = malloc(sizeof *t);
	if (l->wake < 0 || l->stop < 0 || !t || pthread_create(t, NULL, sampler, l) != 0) {
		free(t);
		end(l, FX_UNHELD); // nobody would hold the limits
		return 0;
	}
	l->thread = t;
	l->elsewhere = 1;
	return INT64_MAX;
}

// fx_limits_stop ends the sampling. Every process of the exec is gone, so that there is nothing left to look at for long.
void fx_limits_stop(struct fx_limits *l)
{
	if (l->thread) {
		eventfd_write(l->stop, 1);
		pthread_join(*(pthread_t *)l->thread, NULL);
		free(l->thread);
		close(l->stop);
		close(l->wake);
		l->thread = NULL;
	}
	free(l->seen);
	l->seen = NULL;
}

// fx_high_water is the most memory that this process has had, in bytes, and a little more, since the kernel counts roughly. A
// program begins in our memory, so that the kernel takes ours for its own until it has more.
int64_t fx_high_water(void)
{
	char text[STATUS_SIZE];
	if (fx_read_at(AT_FDCWD, "/proc/self/status", text, sizeof text) <= 0)
		return 0; // then the program may be said to have had as much as we
	return fx_field(text, "\nVmHWM:") * 1024 + (1 << 20);
}

// fx_own_most is fx_high_water of a launcher that has no time to read its status. It may be its caller's.
int64_t fx_own_most(void)
{
	struct rusage own;
	return getrusage(RUSAGE_SELF, &own) < 0 ? INT64_MAX : own.ru_maxrss * 1024 + (1 << 20);
}

// fx_used_memory is what an exec has used. What the kernel says of its largest process it says of the launcher too, if that had more. Then
// it is what was seen in the last three quarters of the program's time, or, for one that ended within some milliseconds, estimated.
int64_t fx_used_memory(const struct fx_limits *l, int64_t largest, int64_t faults, int64_t launcher)
{
	int64_t lived = l->closed_us - l->running_us;
	if (largest <= launcher && l->largest > 0 && lived > BRIEF && 4 * (l->seen_us - l->running_us) >= lived)
		largest = l->largest;
	else if (largest <= launcher)
		largest = most(l->largest, least(largest, faults * FAULT));
	return most(largest, l->memory_peak);
}

int64_t fx_used_cpu(const struct fx_limits *l, int64_t cpu_us) { return most(cpu_us - l->cpu_before_us, l->cpu_used_us); }

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

// fx_limits_check looks at the clock, and at nothing that could hold it up. It sets why when a limit is exceeded, and says in
// how many microseconds it wants to be called again; 0 for never. output_us is when the program last wrote something. It
// may be called as often as one likes.
int64_t fx_limits_check(struct fx_limits *l, int64_t output_us)
{
	int64_t now = fx_now_us(), next = INT64_MAX;
	if (l->ended_us) // the supervisor has the order
		return now - l->ended_us < FX_GRACE ? l->ended_us + FX_GRACE - now : FX_GRACE;
	next = least(next, deadline(l, l->started_us, l->wall_us, now, FX_WALL));
	next = least(next, deadline(l, most(l->started_us, output_us), l->idle_us, now, FX_IDLE));
	next = least(next, sample_apart(l, now));
	if (l->why != FX_BY_ITSELF)
		l->ended_us = now;
	return next == INT64_MAX ? 0 : most(1, next);
}
