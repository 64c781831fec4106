// Mounts a file system in memory for a program that asks for it, in the program's own user and mount namespaces: see container/chmod.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

// be_like_them takes their ids and keeps every capability, as long as it takes to enter their user namespace.
static int be_like_them(const struct fx_theirs *t)
{
	if (syscall(SYS_geteuid) == t->uid && syscall(SYS_getegid) == t->gid)
		return 0;
	return prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ? -1 : (int)become(t->uid, t->gid);
}

static int mount_theirs(void *arg)
{
	struct fx_theirs *t = arg;
	// In their user namespace we have the capabilities that they have there, and none anywhere else.
	if (be_like_them(t) == 0 && setns(t->userns, CLONE_NEWUSER) == 0 && setns(t->mntns, CLONE_NEWNS) == 0 && fchdir(t->root) == 0 &&
	    syscall(SYS_chroot, ".") == 0 && fchdir(t->cwd) == 0 && mount(t->source, t->target, t->type, t->flags, t->data) == 0)
		t->err = 0;
	else
		t->err = errno;
	return 0;
}

// fx_mount_theirs leaves the errno in err.
void fx_mount_theirs(struct fx_theirs *t)
{
	t->err = ESRCH; // it has not even begun
	if (in_child_as_another(mount_theirs, t->stacks + FX_STACK, 0, t) < 0)
		t->err = errno;
}
