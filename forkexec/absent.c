// Denied paths where nothing is. container/deny decides what becomes of a file that appears at one; this file only checks that
// nothing has.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "short.h"

struct how { uint64_t flags, mode, resolve; };

#define NO_MAGICLINKS 0x02
#define NO_SYMLINKS 0x04
#define BENEATH 0x08

int fx_open_grant(int root, const char *host, const char *shown)
{
	struct stat want, is;
	struct how how = {O_PATH | O_CLOEXEC, 0, NO_SYMLINKS};
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, host, &how, sizeof how);
	int inside = fx_open_inside(root, shown, O_PATH | O_NOFOLLOW);
	int same = fd >= 0 && inside >= 0 && fstat(inside, &want) == 0 && fstat(fd, &is) == 0 && want.st_dev == is.st_dev &&
		   want.st_ino == is.st_ino;
	close(inside);
	if (same)
		return fd;
	close(fd);
	return -1;
}

int fx_nothing_at(int grant, const char *below)
{
	struct how how = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, BENEATH | NO_SYMLINKS | NO_MAGICLINKS};
	int fd = (int)syscall(SYS_openat2, grant, below, &how, sizeof how);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR;
	close(fd);
	return 0;
}
