// Where --result goes on the short way: to a descriptor of the caller's, or to a file that programs of the sandbox cannot see.
// container/hostfile/resultfile.go says what is not accepted; here everything that is not quite plain is left to it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "answer.h"

#ifndef SYS_statmount
#define SYS_statmount 457
#endif
#define WANT_UNIQUE_ID 0x4000u // STATX_MNT_ID_UNIQUE, Linux 6.8
#define MOUNT_ID_AT 0x90       // of stx_mnt_id in struct statx
#define WANT_ROOT 8            // STATMOUNT_MNT_ROOT
#define ROOT_AT 104            // of mnt_root in struct statmount: where in its strings the text begins
#define STRINGS_AT 512
#define MAX_DEPTH 256
#define NO_SYMLINKS 0x04

// mount_of gives the number of the mount that a directory is in, which is never given away. 0 where the kernel has no such number.
static uint64_t mount_of(int fd)
{
	union { char bytes[256]; uint64_t align; } st;
	uint64_t id;
	memset(&st, 0, sizeof st);
	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, WANT_UNIQUE_ID, &st) < 0 || !(*(uint32_t *)st.bytes & WANT_UNIQUE_ID))
		return 0;
	memcpy(&id, st.bytes + MOUNT_ID_AT, sizeof id);
	return id;
}

// whole reports whether a mount shows all of its file system. Then what is above a directory in the file system is above it here.
static int whole(uint64_t id)
{
	struct { uint32_t size, spare; uint64_t id, param; } want = {24, 0, id, WANT_ROOT};
	union { char bytes[STRINGS_AT + 4096]; uint64_t align; } got;
	uint32_t at;
	memset(&got, 0, sizeof got);
	if (syscall(SYS_statmount, &want, &got, sizeof got, 0) < 0)
		return 0;
	memcpy(&at, got.bytes + ROOT_AT, sizeof at);
	return (got.bytes[8] & WANT_ROOT) && at < 4000 && strcmp(got.bytes + STRINGS_AT + at, "/") == 0;
}

static int shown(const struct fx_launch *la, const struct stat *st)
{
	if (st->st_dev == la->store_dev && st->st_ino == la->store_ino)
		return 1;
	for (size_t i = 0; i < la->n_visible; i++) {
		uint64_t is[2];
		memcpy(is, la->visible[i], sizeof is);
		if (is[0] == st->st_dev && is[1] == st->st_ino)
			return 1;
	}
	return 0;
}

// out_of_sight reports whether a directory lies in nothing that programs see, and not in the state directory.
static int out_of_sight(const struct fx_launch *la, int dir)
{
	uint64_t mount = mount_of(dir);
	struct stat st, last = {0};
	int at = mount && whole(mount) && la->n_visible ? dup(dir) : -1;
	for (int depth = 0; at >= 0 && depth < MAX_DEPTH; depth++) {
		if (fstat(at, &st) < 0 || shown(la, &st))
			break;
		int top = depth > 0 && st.st_dev == last.st_dev && st.st_ino == last.st_ino;
		if (top || mount_of(at) != mount) {
			close(at);
			return 1;
		}
		last = st;
		int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = up;
	}
	close(at);
	return 0;
}

static int open_file(struct fx_short *s, const struct fx_launch *la, const char *path)
{
	char parent[4096];
	struct stat st;
	struct { uint64_t flags, mode, resolve; } how = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, NO_SYMLINKS};
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	int n = slash ? snprintf(parent, sizeof parent, "%.*s", (int)(slash - path + 1), path) : snprintf(parent, sizeof parent, ".");
	if (n >= (int)sizeof parent || !*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
		return -1;
	s->result_dir = (int)syscall(SYS_openat2, AT_FDCWD, parent, &how, sizeof how);
	if (s->result_dir < 0 || !out_of_sight(la, s->result_dir))
		return -1;
	if (fstatat(s->result_dir, base, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
		return -1;
	uint64_t random[2];
	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -1;
	snprintf(s->result_name, sizeof s->result_name, "%s%08llx%08llx", FX_RESULT_PREFIX, (unsigned long long)random[0] & 0xffffffff,
		 (unsigned long long)random[1] & 0xffffffff);
	s->result_file = openat(s->result_dir, s->result_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return s->result_file < 0 ? -1 : 0;
}

int fx_open_result(struct fx_short *s, const struct fx_launch *la, const struct fx_request *q)
{
	s->result_dir = s->result_file = -1;
	if (!q->result)
		return 0;
	if (strspn(q->result, "0123456789") != strlen(q->result)) {
		if (open_file(s, la, q->result) == 0)
			return 0;
		fx_discard_result(s);
		return -1;
	}
	int fd = strlen(q->result) < 8 ? atoi(q->result) : -1;
	int flags = fd > 2 ? fcntl(fd, F_GETFD) : -1, mode = flags < 0 ? -1 : fcntl(fd, F_GETFL);
	if (mode < 0 || (flags & FD_CLOEXEC) || (mode & O_ACCMODE) == O_RDONLY || (mode & O_PATH))
		return -1;
	s->result_file = fd;
	return 0;
}

void fx_discard_result(struct fx_short *s)
{
	if (s->result_dir < 0)
		return;
	if (s->result_file >= 0) {
		unlinkat(s->result_dir, s->result_name, 0);
		close(s->result_file);
	}
	close(s->result_dir);
	s->result_dir = s->result_file = -1;
}

int fx_commit_result(struct fx_short *s, const struct fx_request *q)
{
	const char *slash = q->result ? strrchr(q->result, '/') : NULL, *base = slash ? slash + 1 : q->result;
	int failed = close(s->result_file) < 0 ? errno : 0;
	if (s->result_dir < 0)
		return failed;
	if (!failed && renameat(s->result_dir, s->result_name, s->result_dir, base) < 0)
		failed = errno;
	if (failed)
		unlinkat(s->result_dir, s->result_name, 0);
	return failed;
}
