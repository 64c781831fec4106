// Files that are written for a program before it is executed, by the process that becomes it: with its ids, in its view, below
// its working directory. No link leads out of that (RESOLVE_BENEATH), whatever another program does to the path meanwhile.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "forkexec.h"

#define RACES 100 // how often a path is looked up again because of a rename

static int open_beneath(const char *path, uint64_t flags, uint64_t mode)
{
	struct open_how how;
	memset(&how, 0, sizeof how);
	how.flags = flags | O_CLOEXEC;
	how.mode = mode;
	how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
	int fd = -1;
	for (int n = 0; n < RACES; n++) {
		fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	return fd;
}

// is_file reports whether a file that is open is one that holds data. Our memory is the launcher's, so nothing of /proc is written:
// /proc/self/mem would be the launcher.
static int is_file(int fd)
{
	struct stat st;
	struct statfs fs;
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return -1;
	errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	return S_ISREG(st.st_mode) && fs.f_type != PROC_SUPER_MAGIC ? 0 : -1;
}

static int write_file_at(int fd, const struct fx_put *p)
{
	if (is_file(fd) < 0 || ftruncate(fd, 0) < 0)
		return -1;
	const char *data = p->data;
	for (size_t done = 0; done < p->size;) {
		ssize_t n = write(fd, data + done, p->size - done);
		if (n < 0)
			return -1;
		done += (size_t)n;
	}
	return 0;
}

static int make_directory(const struct fx_put *p)
{
	int dir = open_beneath(p->parent, O_PATH | O_DIRECTORY, 0);
	if (dir < 0)
		return -1;
	int r = mkdirat(dir, p->name, 0777);
	int saved = errno;
	close(dir);
	errno = saved;
	return r < 0 && errno != EEXIST ? -1 : 0;
}

// fx_put_all writes all files, and says which one failed.
int fx_put_all(const struct fx_exec *x, size_t *failed)
{
	for (size_t i = 0; i < x->n_puts; i++) {
		const struct fx_put *p = &x->puts[i];
		*failed = i;
		if (p->parent) {
			if (make_directory(p) < 0)
				return -1;
			continue;
		}
		// A pipe does not hold us up, nor does a lease.
		int fd = open_beneath(p->name, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY, p->mode);
		if (fd < 0)
			return -1;
		int r = write_file_at(fd, p), saved = errno;
		close(fd);
		errno = saved;
		if (r < 0)
			return -1;
	}
	return 0;
}

// fx_mount_fresh mounts an empty directory where no link leads, and nowhere else: a program may have put one there.
int fx_mount_fresh(const struct fx_mount *m)
{
	struct open_how how;
	memset(&how, 0, sizeof how);
	how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
	how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
	int at = (int)syscall(SYS_openat2, AT_FDCWD, m->target, &how, sizeof how);
	if (at < 0)
		return -1;
	int r = fchdir(at), saved = errno;
	close(at);
	if (r == 0) {
		r = mount(m->source, ".", m->fstype, m->flags & ~FX_FRESH, m->data);
		saved = errno;
	}
	if (chdir("/") < 0)
		return -1;
	errno = saved;
	return r;
}

// fx_keep_namespace opens the exec's mount namespace, which keeps its view together when all processes in it have ended. It is called
// when /proc has just been mounted: a later mount hides /proc/1, which is this process. To open it behind that, by a clone of the
// mount, is dear, since to release such a clone the kernel waits for all processors. The file table is the launcher's too.
int fx_keep_namespace(struct fx_exec *x)
{
	x->view[1] = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	return x->view[1];
}

// fx_keep_view opens the root of the exec's view.
int fx_keep_view(struct fx_exec *x)
{
	if (x->view[1] < 0)
		return errno = ENOENT, -1;
	x->view[0] = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return x->view[0];
}
