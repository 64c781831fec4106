// Memory that only descriptors hold: files in memory that nobody has mapped, and pipes; and what the kernel keeps of
// descriptors, mappings and locks. To look through all descriptors of
// an exec takes long, so the kernel's own counts for the whole machine say when it is worth it: as long as there is no more
// shared memory, no more open files and no more memory of the kernel's than at the last look, nothing can have been hidden
// since.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "limits.h"

// A pipe that is made when its user has fs.pipe-user-pages-soft pages in pipes gets two. What a user may have up to there
// counts for nobody; it is 64 MiB for all of his programs together.
#define PIPE (2 * 4096)
#define DESCRIPTOR 512 // what the kernel keeps of an open file that holds nothing, of a mapping and of a lock, at least
#define MAPPING 256
#define LOCK 200
#define LOOK_CPU (250 * MS)
#define LOOK_WALL (1000 * MS)
#define SEEN 65536 // inodes; a power of two

struct seen { uint64_t ino[SEEN]; size_t n; };

struct found {
	struct fx_look k;
	struct seen *seen;
	int64_t files, pipes, descriptors, mappings;
	int sockets; // they are looked at
	int unseen;  // there are descriptors that nobody can see
	char task[PROC_PATH];
};

static struct found *found_of(struct fx_look *k) { return (struct found *)k; }

// slot is where an inode is, or would be. Pipes and files in memory number theirs apart, so the kind goes into the number.
static size_t slot(const struct seen *s, uint64_t ino)
{
	size_t at = (ino * 0x9e3779b97f4a7c15ull >> 40) & (SEEN - 1);
	while (s->ino[at] && s->ino[at] != ino)
		at = (at + 1) & (SEEN - 1);
	return at;
}

// mark reports whether an inode is new.
static int mark(struct found *f, uint64_t ino)
{
	size_t at = slot(f->seen, ino);
	if (f->seen->ino[at])
		return 0;
	if (f->seen->n++ >= SEEN / 2) {
		f->k.late = 1;
		return 0;
	}
	f->seen->ino[at] = ino;
	return 1;
}

int fx_hidden_has(const struct fx_limits *l, uint64_t ino)
{
	const struct seen *s = l->seen;
	return s && s->ino[slot(s, ino << 1)] != 0;
}

static void descriptor(struct fx_look *k, const char *number)
{
	struct found *f = found_of(k);
	char path[2 * PROC_PATH], text[1024];
	struct stat st;
	f->descriptors++;
	snprintf(path, sizeof path, "%s/fd/%s", f->task, number);
	if (fstatat(k->l->proc, path, &st, 0) < 0)
		return;
	if (S_ISREG(st.st_mode) && ((uint64_t)major(st.st_dev) << 20 | minor(st.st_dev)) == k->l->memory_dev) {
		if (mark(f, st.st_ino << 1))
			f->files += st.st_blocks * 512;
	} else if (S_ISFIFO(st.st_mode)) {
		if (mark(f, st.st_ino << 1 | 1))
			f->pipes++;
	} else if (S_ISSOCK(st.st_mode) && f->sockets && mark(f, st.st_ino << 1 | 1)) {
		snprintf(path, sizeof path, "%s/fdinfo/%s", f->task, number);
		if (fx_read_at(k->l->proc, path, text, sizeof text) > 0 && fx_field(text, "\nscm_fds:") > 0)
			f->unseen = 1;
	}
}

// A thread may have descriptors of its own, whatever its process has.
static void thread(struct fx_look *k, const char *tid)
{
	struct found *f = found_of(k);
	char process[PROC_PATH], path[PROC_PATH + 4];
	memcpy(process, f->task, sizeof process);
	snprintf(f->task, sizeof f->task, "%.60s/%.20s", process, tid);
	snprintf(path, sizeof path, "%s/fd", f->task);
	if (faccessat(k->l->proc, path, R_OK | X_OK, AT_EACCESS) < 0 && errno == EACCES)
		f->unseen = 1;
	else
		fx_each(k, k->l->proc, path, descriptor);
	memcpy(f->task, process, sizeof process);
}

// lines counts the lines of a file.
static int64_t lines(struct fx_look *k, const char *path)
{
	char buf[32768];
	int64_t sum = 0;
	int fd = openat(k->l->proc, path, O_RDONLY | O_CLOEXEC);
	for (ssize_t n; fd >= 0 && !fx_look_late(k) && (n = read(fd, buf, sizeof buf)) > 0;)
		for (const char *p = buf; (p = memchr(p, '\n', (size_t)(buf + n - p))); p++)
			sum++;
	if (fd >= 0)
		close(fd);
	return sum;
}

static void process(struct fx_look *k, const char *pid)
{
	struct found *f = found_of(k);
	char status[STATUS_SIZE], alive[PROC_PATH], maps[PROC_PATH + 8];
	if (strcmp(pid, "1") == 0)
		return;
	if (fx_alive(k, pid, status, alive)) {
		snprintf(maps, sizeof maps, "%s/maps", alive);
		f->mappings += lines(k, maps);
	}
	snprintf(f->task, sizeof f->task, "%.20s/task", pid);
	char path[PROC_PATH];
	memcpy(path, f->task, sizeof path);
	fx_each(k, k->l->proc, path, thread);
}

// device finds the file system in which the kernel keeps memory that is shared without a name.
static uint64_t device(void)
{
	struct stat st;
	int fd = memfd_create("sandboxrun", MFD_CLOEXEC);
	uint64_t dev = fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)major(st.st_dev) << 20 | minor(st.st_dev) : 0;
	if (fd >= 0)
		close(fd);
	return dev;
}

// fx_hidden leaves what pipes and the kernel hold in l->pipes. What cannot be looked through in time, is on its way between two sockets, or
// belongs to a program that may be executed and not read, is as much as the whole machine has got since the exec began.
int64_t fx_hidden(struct fx_limits *l, int64_t rest)
{
	char text[STATUS_SIZE];
	int64_t now = fx_now_us();
	if (fx_read_at(l->proc, "meminfo", text, sizeof text) <= 0)
		return l->hidden;
	int64_t shared = fx_field(text, "\nShmem:") * 1024, slab = fx_field(text, "\nSUnreclaim:") * 1024;
	int64_t files = fx_read_at(l->proc, "sys/fs/file-nr", text, sizeof text) > 0 ? strtoll(text, NULL, 10) : 0;
	if (!l->shared_at) {
		l->memory_dev = device();
		l->shared_began = l->shared_at = most(1, shared);
		l->files_at = files;
		l->slab_at = slab;
	}
	l->shared_began = least(l->shared_began, most(1, shared));
	int64_t more = most(0, shared - l->shared_at), more_kernel = most(0, slab - l->slab_at) + most(0, files - l->files_at) * PIPE;
	if (l->hidden + l->pipes + more + more_kernel <= rest || now < l->hidden_us)
		return l->hidden;
	struct found f = {.seen = l->seen ? l->seen : malloc(sizeof(struct seen)), .sockets = more > 0};
	l->seen = f.seen;
	if (!f.seen)
		return l->hidden;
	memset(f.seen, 0, sizeof *f.seen);
	fx_look_begin(&f.k, l, LOOK_WALL, LOOK_CPU);
	fx_each(&f.k, l->proc, ".", process);
	l->pipes = f.pipes * PIPE + f.descriptors * DESCRIPTOR + f.mappings * MAPPING + lines(&f.k, "locks") * LOCK;
	l->hidden_us = fx_now_us() + 4 * (fx_now_us() - now);
	l->hidden = f.unseen || f.k.late ? most(f.files, shared - l->shared_began) : f.files;
	if (f.k.late)
		l->pipes = most(l->pipes, more_kernel);
	else if (!f.unseen) {
		l->shared_at = most(1, shared);
		l->files_at = files;
		l->slab_at = slab;
	}
	return l->hidden;
}
