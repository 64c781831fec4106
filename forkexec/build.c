// Builds what a sandbox's programs see, from inside its namespaces, as a list of steps that forkexec/build.go has
// written down. The same way in as for an exec: join, then a member of the PID namespace, so that /proc is the sandbox's.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

static int write_all(int fd, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t w = write(fd, data, n);
		if (w < 0)
			return -1;
		data += w;
		n -= (size_t)w;
	}
	return 0;
}

// set_times gives a copy its original's time of modification: byte code, fonts and packages have caches that are compared with it.
static int set_times(int fd, const char *path, int64_t modified)
{
	const int64_t second = 1000000000;
	long ns = (long)(modified % second);
	struct timespec t = {.tv_sec = modified / second - (ns < 0), .tv_nsec = ns < 0 ? ns + second : ns};
	return (int)syscall(SYS_utimensat, fd, path, (struct timespec[2]){t, t}, path ? AT_SYMLINK_NOFOLLOW : 0);
}

static int make_file(const struct fx_op *o)
{
	int fd = open(o->target, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	int r = write_all(fd, o->data, o->size);
	if (r == 0)
		r = fchmod(fd, (mode_t)o->flags);
	if (r == 0 && o->modified != 0)
		r = set_times(fd, NULL, o->modified);
	int saved = errno;
	close(fd);
	errno = saved;
	return r;
}

// new_root makes target the root of every process of the mount namespace and lets go of the old one with all that was
// mounted there, the host's file tree too.
static int new_root(const char *target)
{
	if (chdir(target) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return -1;
	return umount2(".", MNT_DETACH);
}

// open_unfollowed opens a path of which no part is followed if it is a link: links were followed when the view was decided, so one
// that is there now was put there since, by a process that may write there. A link itself can be shown, and be mounted on.
static int open_unfollowed(const char *path)
{
	struct { uint64_t flags, mode, resolve; } how = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, 4 /* RESOLVE_NO_SYMLINKS */};
	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

// move_tree puts a detached tree at a path.
static int move_tree(int tree, const char *target)
{
	int at = open_unfollowed(target);
	if (at < 0)
		return -1;
	int r = (int)syscall(SYS_move_mount, tree, "", at, "", FX_MOVE_MOUNT_F_EMPTY_PATH | FX_MOVE_MOUNT_T_EMPTY_PATH);
	int saved = errno;
	close(at);
	errno = saved;
	return r;
}

// bind_path bind-mounts a host path at another path.
static int bind_path(const struct fx_op *o)
{
	int r = -1, fd = open_unfollowed(o->source);
	if (fd < 0)
		return -1;
	int tree = (int)syscall(SYS_open_tree, fd, "", FX_OPEN_TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
	if (tree >= 0)
		r = move_tree(tree, o->target);
	int saved = errno;
	if (tree >= 0)
		close(tree);
	close(fd);
	errno = saved;
	return r;
}

// set_sysctl lowers a setting of the sandbox's own user namespace, and reads it back.
static int set_sysctl(const struct fx_op *o)
{
	char is[64];
	int fd = open(o->target, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = write(fd, o->data, o->size) == (ssize_t)o->size ? pread(fd, is, sizeof is, 0) : -1;
	int saved = errno;
	close(fd);
	errno = n < 0 ? saved : EIO;
	return n == (ssize_t)o->size + 1 && memcmp(is, o->data, o->size) == 0 ? 0 : -1;
}

// show_cgroup mounts what run times recognise a control group by. Files that say the limits are put over it; what it shows
// itself nobody sees. Where it cannot be mounted the files are all there is.
static int show_cgroup(const struct fx_op *o)
{
	if (unshare(CLONE_NEWCGROUP) == 0)
		mount("cgroup2", o->target, "cgroup2", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	return 0;
}

// mount_op waits for writers when it makes a mount read-only: an exec that another thread of the launcher starts at this time has a copy
// of the file table, with a file in it that we have just written, until it executes its program.
static int mount_op(const struct fx_op *o)
{
	const struct timespec pause = {0, 1000000};
	int r;
	for (int try = 0; (r = mount(o->source, o->target, o->fstype, o->flags, o->data)) < 0 && errno == EBUSY && try < 2000; try++)
		if (!(o->flags & MS_REMOUNT) || syscall(SYS_nanosleep, &pause, NULL) < 0)
			return errno = EBUSY, -1;
	return r;
}

// hide_names mounts an overlay over a directory, which shows it without some names. The directory is named by the working directory, because
// a path in the options could have a comma or a colon, or lead through a link. Nothing can be written to such an overlay: it has no
// upper layer. It is mounted in a user namespace and without "userxattr", so it believes no attribute of a file.
static int hide_names(const struct fx_op *o)
{
	char options[FX_OVERLAY_OPTIONS];
	int at = open_unfollowed(o->target), r = -1;
	if (at < 0)
		return -1;
	if (fx_overlay_options(options, o->source) == 0 && fchdir(at) == 0)
		r = mount("overlay", ".", "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, options);
	int saved = errno;
	close(at);
	if (chdir("/") < 0)
		return -1;
	errno = saved;
	return r;
}

static int run_op(const struct fx_op *o)
{
	struct fx_mount_attr attr = {.attr_set = o->flags, .propagation = MS_PRIVATE};

	switch (o->kind) {
	case FX_OP_MKDIR:
		return mkdir(o->target, (mode_t)o->flags);
	case FX_OP_SYMLINK:
		return symlink(o->source, o->target);
	case FX_OP_FILE:
		return make_file(o);
	case FX_OP_MOUNT:
		return mount_op(o);
	case FX_OP_BIND:
		return bind_path(o);
	case FX_OP_ATTR:
		return (int)syscall(SYS_mount_setattr, AT_FDCWD, o->target, AT_RECURSIVE | AT_SYMLINK_NOFOLLOW, &attr, sizeof attr);
	case FX_OP_MOVE:
		return move_tree(o->fd, o->target);
	case FX_OP_ROOT:
		return new_root(o->target);
	case FX_OP_SYSCTL:
		return set_sysctl(o);
	case FX_OP_CGROUP:
		return show_cgroup(o);
	case FX_OP_TIMES:
		return set_times(AT_FDCWD, o->target, o->modified);
	case FX_OP_WHITEOUT:
		return mknod(o->target, S_IFCHR, 0);
	case FX_OP_HIDE:
		return LAYER("hidden modules", hide_names(o));
	}
	errno = EINVAL;
	return -1;
}

static int builder(void *arg)
{
	struct fx_build *b = arg;
	umask(0);
	for (size_t i = 0; i < b->n_ops; i++)
		if (b->ops[i].kind == FX_OP_NETWORK) {
			b->missing = fx_network(b->ops[i].fd, (int)b->ops[i].flags);
		} else if (run_op(&b->ops[i]) < 0) {
			b->step = FX_MOUNT;
			b->err = errno;
			b->index = i;
			return 1;
		}
	return 0;
}

static int stop(struct fx_build *b, int step)
{
	b->step = step;
	b->err = errno;
	return 1;
}

static int build_join(void *arg)
{
	struct fx_build *b = arg;
	if (setns(b->target, b->namespaces) < 0)
		return stop(b, FX_JOIN);
	if (become(0, 0) < 0)
		return stop(b, FX_BECOME);
	int pid = clone(builder, b->stacks + 2 * FX_STACK, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, b);
	if (pid < 0)
		return stop(b, FX_SPAWN);
	reap(pid);
	return 0;
}

void fx_build(struct fx_build *b)
{
	if (in_child_as_another(build_join, b->stacks + FX_STACK, CLONE_FILES, b) < 0)
		stop(b, FX_SPAWN);
}
