// What one exec sees besides what every exec of its sandbox sees, or does not see: mounts of its own mount namespace, made by its
// process 1. Nothing is made where another exec could find it: a mount point that is missing is made in a file system in memory that
// covers the directory around it, for this exec alone, and shows what is in that directory.
//
// A program of another exec can do anything meanwhile to what it may write. So no link is followed anywhere here.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"
#include "steps.h"

#ifndef FSCONFIG_SET_STRING
#define FSCONFIG_SET_STRING 1
#define FSCONFIG_CMD_CREATE 6
#endif
#define FX_FSOPEN_CLOEXEC 1
#define FX_FSMOUNT_CLOEXEC 1
#define OPTIONS 256 // bytes, of a tmpfs

static int close_keeping(int fd)
{
	int saved = errno;
	if (fd >= 0)
		close(fd);
	errno = saved;
	return -1;
}

static int open_exactly(int dir, const char *path, uint64_t flags)
{
	struct open_how how;
	memset(&how, 0, sizeof how);
	how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC | flags;
	how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

// clone_at copies what is mounted at a path, with all below it.
static int clone_at(int dir, const char *path)
{
	int at = open_exactly(dir, path, 0);
	if (at < 0)
		return -1;
	int tree = (int)syscall(SYS_open_tree, at, "", FX_OPEN_TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
	close_keeping(at);
	return tree;
}

static int protect(int tree, uint64_t attributes, unsigned recursive)
{
	struct fx_mount_attr attr = {.attr_set = attributes, .propagation = MS_PRIVATE};
	return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | recursive, &attr, sizeof attr);
}

static int move_onto(int tree, int at)
{
	return (int)syscall(SYS_move_mount, tree, "", at, "", FX_MOVE_MOUNT_F_EMPTY_PATH | FX_MOVE_MOUNT_T_EMPTY_PATH);
}

static int move_to(int tree, int dir, const char *path)
{
	int at = open_exactly(dir, path, 0);
	int r = at < 0 ? -1 : move_onto(tree, at);
	close_keeping(at);
	return r;
}

// new_tmpfs makes a file system in memory, mounted nowhere yet. options are pairs: "mode=700,size=4k".
static int new_tmpfs(const char *options, uint64_t attributes)
{
	char text[OPTIONS];
	if (strlen(options) >= sizeof text)
		return errno = EINVAL, -1;
	strcpy(text, options);
	int fs = (int)syscall(SYS_fsopen, "tmpfs", FX_FSOPEN_CLOEXEC), mounted = -1;
	if (fs < 0)
		return -1;
	int r = 0;
	for (char *name = text; r == 0 && name && *name;) {
		char *next = strchr(name, ','), *value = strchr(name, '=');
		if (next)
			*next++ = 0;
		if (!value)
			return errno = EINVAL, close_keeping(fs);
		*value++ = 0;
		r = (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, name, value, 0);
		name = next;
	}
	if (r == 0)
		r = (int)syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (r == 0)
		mounted = (int)syscall(SYS_fsmount, fs, FX_FSMOUNT_CLOEXEC, attributes);
	close_keeping(fs);
	return mounted;
}

// The directory that is covered just now, and what covers it.
struct cover { int under, over; };

static int begin_cover(struct cover *c, const struct fx_view_step *s)
{
	c->under = open_exactly(AT_FDCWD, s->target, O_DIRECTORY);
	if (c->under < 0)
		return -1;
	c->over = new_tmpfs(s->source, 0);
	return c->over < 0 ? -1 : move_onto(c->over, c->under);
}

// end_cover makes what covers the root the root: the kernel finds what is mounted there only from above.
static int end_cover(struct cover *c, const struct fx_view_step *s)
{
	int r = protect(c->over, s->attributes, 0);
	if (r == 0 && strcmp(s->target, "/") == 0 && (r = fchdir(c->over)) == 0 && (r = chroot(".")) == 0)
		r = chdir("/");
	close_keeping(c->under);
	close_keeping(c->over);
	c->under = c->over = -1;
	return r;
}

// show_again shows in a cover what is in the directory under it.
static int show_again(const struct cover *c, const struct fx_view_step *s)
{
	int tree = clone_at(c->under, s->target);
	int r = tree < 0 ? -1 : move_to(tree, c->over, s->target);
	close_keeping(tree);
	return r;
}

static int make_file(int dir, const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

// attach mounts a copy of mounts at a path.
static int attach(struct fx_view_step *s)
{
	int r = move_to(s->fd, AT_FDCWD, s->target);
	if (s->ours) {
		close_keeping(s->fd);
		s->fd = -1;
	}
	return r;
}

// mask hides a directory by an empty one, anything else by an empty file, or a device that cannot be opened on such a mount.
static int mask(const struct fx_view_step *s, int directory)
{
	int tree = directory ? new_tmpfs(s->source, s->attributes) : clone_at(AT_FDCWD, s->source);
	if (tree < 0)
		return -1;
	int r = directory ? 0 : protect(tree, s->attributes, 0);
	if (r == 0)
		r = move_to(tree, AT_FDCWD, s->target);
	close_keeping(tree);
	return r;
}

static int run_step(struct fx_exec *x, struct fx_view_step *s, struct cover *c)
{
	struct fx_view_step *to;
	switch (s->kind) {
	case FX_VIEW_HOLD:
		to = &x->view_steps[s->attributes];
		to->ours = 1;
		return to->fd = clone_at(AT_FDCWD, s->target), to->fd < 0 ? -1 : 0;
	case FX_VIEW_ATTACH:
		return LAYER("view grant", attach(s));
	case FX_VIEW_COVER:
		return begin_cover(c, s);
	case FX_VIEW_COVERED:
		return end_cover(c, s);
	case FX_VIEW_DIR:
		return mkdirat(c->over, s->target, 0755);
	case FX_VIEW_FILE:
		return make_file(c->over, s->target);
	case FX_VIEW_LINK:
		return symlinkat(s->source, c->over, s->target);
	case FX_VIEW_AGAIN:
		return show_again(c, s);
	case FX_VIEW_MASK_DIR:
		return LAYER("view mask", mask(s, 1));
	case FX_VIEW_MASK_FILE:
		return LAYER("view mask", mask(s, 0));
	}
	errno = EINVAL;
	return -1;
}

// fx_show_view makes the mounts. The file table is the launcher's too, so nothing of it stays open.
int fx_show_view(struct fx_exec *x, size_t from, size_t to, size_t *failed)
{
	struct cover c = {-1, -1};
	int r = 0;
	if (from == to)
		return 0;
	umask(0); // the program has its own
	for (size_t i = from; r == 0 && i < to; i++) {
		*failed = i;
		r = run_step(x, &x->view_steps[i], &c);
	}
	close_keeping(c.under);
	close_keeping(c.over);
	for (size_t i = from; i < to; i++)
		if (x->view_steps[i].ours && x->view_steps[i].fd >= 0) {
			close_keeping(x->view_steps[i].fd);
			x->view_steps[i].fd = -1;
		}
	return r;
}

// has_nothing reports whether a file is a regular one without content, or a directory without entries but itself and its parent.
static int has_nothing(int fd)
{
	struct stat st;
	char entries[512] __attribute__((aligned(8)));
	if (fstat(fd, &st) < 0)
		return 0;
	if (S_ISREG(st.st_mode))
		return st.st_size == 0;
	if (!S_ISDIR(st.st_mode))
		return 0;
	for (long n; (n = syscall(SYS_getdents64, fd, entries, sizeof entries)) != 0;) {
		if (n < 0)
			return 0;
		for (long at = 0; at < n;) {
			const char *e = entries + at, *name = e + 19; // struct linux_dirent64
			if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
				return 0;
			at += *(const unsigned short *)(e + 16);
		}
	}
	return 1;
}

// fx_check_view looks, with the program's rights and in its place, whether it sees what it is to see, and nothing of what is hidden
// from it.
int fx_check_view(const struct fx_exec *x, size_t *failed)
{
	for (size_t i = 0; i < x->n_view_checks; i++) {
		const struct fx_view_check *k = &x->view_checks[i];
		*failed = i;
		if (k->denied) {
			int fd = open(k->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
			if (fd < 0 && (errno == EACCES || errno == ENOENT || errno == ENOTDIR))
				continue;
			int held = fd >= 0 && k->empty && has_nothing(fd);
			if (fd >= 0)
				errno = EEXIST;
			close_keeping(fd);
			if (held)
				continue;
			return -1;
		}
		struct stat st;
		struct statfs fs;
		int fd = open(k->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		int r = fd < 0 ? -1 : fstat(fd, &st) < 0 ? -1 : fstatfs(fd, &fs);
		close_keeping(fd);
		if (r < 0)
			return -1;
		errno = ESTALE;
		if (st.st_dev != k->dev || st.st_ino != k->ino)
			return -1;
		errno = EROFS;
		if (!k->writable && !(fs.f_flags & 1 /* ST_RDONLY */))
			return -1;
	}
	return 0;
}

static int copy_trees(void *arg)
{
	struct fx_trees *t = arg;
	// The caller's view of the host, in the sandbox's user namespace: there its root may copy mounts, and nowhere else.
	if (setns(t->target, CLONE_NEWUSER) < 0 || become(0, 0) < 0 || unshare(CLONE_NEWNS) < 0) {
		t->err = errno;
		return 1;
	}
	for (size_t i = 0; i < t->n; i++) {
		int tree = clone_at(AT_FDCWD, t->paths[i]);
		t->fds[i] = tree;
		if (tree < 0 || protect(tree, t->attributes, AT_RECURSIVE) < 0) {
			t->err = errno;
			return 1;
		}
		t->done = i + 1;
	}
	return 0;
}

// fx_copy_trees copies mounts of the host for a launcher that may not do so itself. They are mounted nowhere yet.
void fx_copy_trees(struct fx_trees *t)
{
	if (in_child_as_another(copy_trees, t->stacks + FX_STACK, CLONE_FILES, t) < 0)
		t->err = errno;
}
