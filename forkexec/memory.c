// How much memory an exec has, where no control group counts it. What processes have mapped is read from the kernel's own
// accounts of each; what they have not mapped and still keep is found by what keeps it: IPC segments, file systems in
// memory, descriptors, sockets. Pages of files on a disk do not count: the kernel takes them back when it needs them.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "limits.h"

#define EXACT_CPU (250 * MS)   // the time to find out exactly; what is not known by then counts in full
#define EXACT_WALL (1000 * MS)
#define VFORK_TIME (300 * MS)  // a child of vfork has its parent's memory until it executes something
#define SOON (2 * MS)          // until then little can have been hidden, and most programs have ended
#define CHUNK 65536
// What the kernel keeps besides of a message, a semaphore, a file in memory and a thread.
#define MESSAGE 64
#define SEMAPHORE 64
#define INODE 1024
#define THREAD (24 * 1024)

static int64_t kilobytes(const char *text, const char *word) { return fx_field(text, word) * 1024; }

// own_of is what of a process' status nobody else can share, or that hardly anybody does. Huge pages are in no other number.
static int64_t own_of(const char *status)
{
	return kilobytes(status, "\nRssAnon:") + kilobytes(status, "\nVmSwap:") + kilobytes(status, "\nHugetlbPages:") +
	       least(kilobytes(status, "\nRssFile:"), kilobytes(status, "\nVmLck:"));
}

// tables_of is what the kernel keeps of a process besides.
static int64_t tables_of(const char *status)
{
	return kilobytes(status, "\nVmPTE:") + kilobytes(status, "\nVmPMD:") + fx_field(status, "\nThreads:") * THREAD;
}

void fx_resident(struct fx_look *k, const char *pid)
{
	char text[STATUS_SIZE], path[PROC_PATH];
	if (!fx_alive(k, pid, text, path))
		return;
	k->l->seen_us = fx_now_us();
	k->l->largest = most(k->l->largest, kilobytes(text, "\nVmHWM:"));
	k->rss += own_of(text);
	k->shared += kilobytes(text, "\nRssShmem:");
	k->tables += tables_of(text);
}

// add_shares adds a process' proportional share of the memory that it has mapped: a page that ten processes share counts
// as a tenth for each. Who made itself unreadable counts in full.
static void add_shares(struct fx_look *k, const char *pid)
{
	char status[STATUS_SIZE], text[4096], path[PROC_PATH], name[PROC_PATH + 16];
	if (strcmp(pid, "1") == 0 || !fx_alive(k, pid, status, path))
		return;
	snprintf(name, sizeof name, "%s/smaps_rollup", path);
	int64_t own, shared;
	if (fx_read_at(k->l->proc, name, text, sizeof text) > 0) {
		own = kilobytes(text, "\nPss_Anon:") + kilobytes(text, "\nSwapPss:") +
		      least(kilobytes(text, "\nPss_File:"), kilobytes(text, "\nLocked:")) +
		      kilobytes(text, "\nPrivate_Hugetlb:") + kilobytes(text, "\nShared_Hugetlb:");
		shared = kilobytes(text, "\nPss_Shmem:");
	} else {
		own = own_of(status);
		shared = kilobytes(status, "\nRssShmem:");
	}
	if (most(own, k->last_own) - least(own, k->last_own) <= own / 16)
		k->twins += own + shared;
	k->last_own = own;
	k->rss += own;
	k->shared += shared;
	k->tables += tables_of(status);
}

struct anonymous { const struct fx_limits *l; int counts; int64_t sum; };

// line reads a line of smaps. A mapping begins with its addresses: "7f00-7f10 rw-s 00000000 00:01 4711 /memfd:x (deleted)".
// Shared memory without a file system of its own lies in one that only the kernel makes files in, so that its names are
// true there: segments of IPC are counted elsewhere, and so are files that a descriptor has been found of.
static void line(struct anonymous *a, const char *text)
{
	unsigned major, minor;
	unsigned long long ino;
	char name[8];
	if ((text[0] >= '0' && text[0] <= '9') || (text[0] >= 'a' && text[0] <= 'f')) {
		name[0] = 0;
		int n = sscanf(text, "%*s %*s %*s %x:%x %llu %7s", &major, &minor, &ino, name);
		a->counts = n >= 3 && ((uint64_t)major << 20 | minor) == a->l->memory_dev && strncmp(name, "/SYSV", 5) != 0 &&
			    !fx_hidden_has(a->l, ino);
	} else if (a->counts && strncmp(text, "Pss:", 4) == 0)
		a->sum += strtoll(text + 4, NULL, 10) * 1024;
}

// add_anonymous adds what a process has mapped of shared memory that is in no file system of the exec's.
static void add_anonymous(struct fx_look *k, const char *pid)
{
	char status[STATUS_SIZE], path[PROC_PATH], name[PROC_PATH + 8];
	char buf[CHUNK + 1];
	if (strcmp(pid, "1") == 0 || !fx_alive(k, pid, status, path) || kilobytes(status, "\nRssShmem:") == 0)
		return;
	snprintf(name, sizeof name, "%s/smaps", path);
	int fd = openat(k->l->proc, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		k->shared += kilobytes(status, "\nRssShmem:");
		return;
	}
	struct anonymous a = {k->l, 0, 0};
	size_t have = 0;
	for (ssize_t n; !fx_look_late(k) && (n = read(fd, buf + have, CHUNK - have)) > 0;) {
		have += (size_t)n;
		buf[have] = 0;
		char *p = buf;
		for (char *end; (end = memchr(p, '\n', have - (size_t)(p - buf))); p = end + 1) {
			*end = 0;
			line(&a, p);
		}
		have -= (size_t)(p - buf);
		if (have == CHUNK) // no line is so long
			have = 0;
		memmove(buf, p, have);
	}
	close(fd);
	k->shared += a.sum;
}

// in_files is what lies in the exec's file systems in memory.
static int64_t in_files(const struct fx_limits *l)
{
	int64_t sum = 0;
	for (size_t i = 0; i < l->n_tmpfs; i++) {
		char path[FX_GROUP_PATH];
		struct statfs st;
		if (snprintf(path, sizeof path, "1/root%s", l->tmpfs[i]) >= (int)sizeof path)
			continue;
		int fd = openat(l->proc, path, O_PATH | O_CLOEXEC);
		if (fd >= 0 && fstatfs(fd, &st) == 0)
			sum += (int64_t)(st.f_blocks - st.f_bfree) * st.f_bsize + (int64_t)(st.f_files - st.f_ffree) * INODE;
		if (fd >= 0)
			close(fd);
	}
	return sum;
}

// in_list adds up a list of IPC objects, which was opened in the exec's own IPC namespace: for each line, two of its numbers,
// each times so many bytes. Columns are counted from the end where they are negative.
static int64_t in_list(int fd, int a, int64_t a_bytes, int b, int64_t b_bytes)
{
	char buf[8192];
	int64_t sum = 0, number[32] = {0};
	int n = 0, digits = 0, lines = 0;
	off_t at = 0;
	for (ssize_t got; fd >= 0 && (got = pread(fd, buf, sizeof buf, at)) > 0; at += got)
		for (ssize_t i = 0; i < got; i++) {
			char c = buf[i];
			if (c >= '0' && c <= '9' && n < 31) {
				number[n] = (digits ? number[n] * 10 : 0) + c - '0';
				digits = 1;
				continue;
			}
			n += digits;
			digits = 0;
			if (c == '\n') {
				if (lines++ > 0 && n >= 8) // the first has the names
					sum += number[a < 0 ? n + a : a] * a_bytes + number[b < 0 ? n + b : b] * b_bytes;
				n = 0;
			}
		}
	return sum;
}

// in_ipc is what the exec's segments hold, attached or not, and its queues of messages and its semaphores.
static int64_t in_ipc(const struct fx_limits *l)
{
	return in_list(l->ipc[0], -1, 1, -2, 1) /* resident, swapped */ + in_list(l->ipc[1], 3, 1, 4, MESSAGE) + in_list(l->ipc[2], 3, SEMAPHORE, 3, 0);
}

// exactly finds out what processes share. Of memory that is shared through files both accounts may tell: their mappings,
// and where the files lie. Only where that matters are the mappings looked at one by one.
static int64_t exactly(struct fx_limits *l, int64_t files, int64_t rest, int *certain)
{
	struct fx_look k, m;
	fx_look_begin(&k, l, EXACT_WALL, EXACT_CPU);
	fx_each(&k, l->proc, ".", add_shares);
	int64_t base = k.rss + k.tables + rest, used = base + most(k.shared, files);
	if (k.late)
		return *certain = 1, most(used, l->memory + 1);
	if (used <= l->memory && base + k.shared + files > l->memory && l->memory_dev) {
		fx_look_begin(&m, l, EXACT_WALL, EXACT_CPU);
		fx_each(&m, l->proc, ".", add_anonymous);
		used = base + (m.late ? k.shared + files : most(k.shared, files + m.shared));
	}
	int64_t now = fx_now_us();
	if (used <= l->memory || used - least(k.twins, l->memory) > l->memory)
		l->twins_us = 0;
	else if (!l->twins_us)
		l->twins_us = now;
	*certain = used > l->memory && (!l->twins_us || now - l->twins_us >= VFORK_TIME);
	return used;
}

int64_t fx_memory(struct fx_limits *l, int64_t resident, int *exceeded)
{
	if (l->ramp_us < SOON && resident <= l->memory)
		return *exceeded = 0, resident;
	int64_t files = in_files(l) + in_ipc(l), rest = fx_sockets(l);
	int64_t hidden = fx_hidden(l, l->memory - resident - files - rest);
	rest += l->pipes;
	files += hidden;
	*exceeded = 0;
	if (resident + files + rest <= l->memory) {
		l->twins_us = 0;
		return resident + files + rest;
	}
	return exactly(l, files, rest, exceeded);
}
