// Tries by itself what only some sandboxes need, or what a sandbox could not say the name of when it fails. Each in a
// process that is thrown away: nothing of it stays.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

struct attempt {
	enum fx_ability what;
	int uid, gid;
	const struct sock_fprog *filter;
	int outcome, err;
};

// Such as hides names in a directory.
static int overlay(void)
{
	char options[FX_OVERLAY_OPTIONS];
	if (mkdir("/tmp/lower", 0700) < 0 || mkdir("/tmp/without", 0700) < 0 || mknod("/tmp/without/hidden", S_IFCHR, 0) < 0 || chdir("/tmp/lower") < 0)
		return -1;
	return fx_overlay_options(options, "/tmp/without") < 0 ? -1 : mount("overlay", "/tmp", "overlay", MS_RDONLY, options);
}

static int move_trees(void)
{
	int fd = (int)syscall(SYS_open_tree, AT_FDCWD, "/tmp", FX_OPEN_TREE_CLONE | O_CLOEXEC);
	return fd < 0 ? -1 : (int)syscall(SYS_move_mount, fd, "", AT_FDCWD, "/tmp", FX_MOVE_MOUNT_F_EMPTY_PATH);
}

static int load_filter(const struct sock_fprog *filter)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter);
}

static int mounts(const struct attempt *a) { return a->what == FX_CAN_OVERLAY || a->what == FX_CAN_MOVE_TREES; }

// prepare is what has to come before a mount.
static int prepare(const struct attempt *a)
{
	if (map_root(a->uid, a->gid) < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	return mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
}

static int attempt(void *arg)
{
	struct attempt *a = arg;
	int r = -1;
	if (mounts(a) && prepare(a) < 0) {
		a->err = errno;
		return 1;
	}
	switch (a->what) {
	case FX_CAN_OVERLAY:
		r = overlay();
		break;
	case FX_CAN_MOVE_TREES:
		r = move_trees();
		break;
	case FX_CAN_NO_NEW_PRIVS:
		r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		break;
	case FX_CAN_FILTER:
		r = load_filter(a->filter);
		break;
	case FX_CAN_KEYRING:
		r = (int)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
		break;
	}
	a->outcome = r < 0 ? FX_CANNOT : FX_CAN;
	a->err = r < 0 ? errno : 0;
	return 0;
}

int fx_try(enum fx_ability what, int uid, int gid, const struct sock_fprog *filter, char *stacks, int *err)
{
	struct attempt a = {.what = what, .uid = uid, .gid = gid, .filter = filter, .outcome = FX_NOT_TRIED};
	if (in_child(attempt, stacks + FX_STACK, mounts(&a) ? CLONE_NEWUSER : 0, &a) < 0)
		a.err = errno;
	*err = a.err;
	return a.outcome;
}
