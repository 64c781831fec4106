// What the children of forkexec.c, build.c and probe.c do alike. They share the launcher's memory, run while it sleeps,
// and call nothing that takes a lock: another thread of the launcher may hold any lock of libc or of Go.
#ifndef CHILD_H
#define CHILD_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Builds for tests (-tags sabotage) leave one layer out, to see that a check notices: sabotage.c.
#ifdef FX_SABOTAGE
int fx_without(const char *layer);
#define LAYER(name, expr) (fx_without(name) ? 0 : (expr))
#else
#define LAYER(name, expr) (expr)
#endif

// No signal may run one of the launcher's handlers in a child. The children inherit the mask.
static inline void block_signals(unsigned long *before)
{
	unsigned long all = ~0ul;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, before, 8);
}

static inline void unblock_signals(const unsigned long *before)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, before, NULL, 8);
}

// The raw calls: libc's own would tell every thread of the launcher to change its credentials too.
static inline long become(int uid, int gid)
{
	long r = syscall(SYS_setresgid, gid, gid, gid);
	return r < 0 ? r : syscall(SYS_setresuid, uid, uid, uid);
}

static inline int write_file_in(int dir, const char *path, const char *text)
{
	int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t n = strlen(text);
	ssize_t w = write(fd, text, n);
	int saved = errno;
	close(fd);
	errno = w < 0 ? saved : EIO;
	return w == (ssize_t)n ? 0 : -1;
}

static inline int write_file(const char *path, const char *text) { return write_file_in(AT_FDCWD, path, text); }

// map_root makes the caller root of the user namespace that it has just been put in.
static inline int map_root(int uid, int gid)
{
	char users[32], groups[32];
	snprintf(users, sizeof users, "0 %d 1", uid);
	snprintf(groups, sizeof groups, "0 %d 1", gid);
	if (write_file("/proc/self/setgroups", "deny") < 0 || write_file("/proc/self/uid_map", users) < 0)
		return -1;
	return write_file("/proc/self/gid_map", groups);
}

// end_with_parent has a child that only waits to be killed end with the process that made it, which may be killed before. A thread is the
// parent to the kernel: it must not end while the child is needed.
static inline void end_with_parent(int parent)
{
	if (syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || syscall(SYS_getppid) != parent)
		syscall(SYS_exit_group, 0);
}

// fx_overlay_options are those of an overlay that shows the working directory without what is hidden in a directory of whiteouts.
#define FX_OVERLAY_OPTIONS 256
static inline int fx_overlay_options(char *to, const char *whiteouts)
{
	int n = snprintf(to, FX_OVERLAY_OPTIONS, "lowerdir=%s:.,xino=off,redirect_dir=nofollow,metacopy=off", whiteouts);
	errno = ENAMETOOLONG;
	return n < 0 || n >= FX_OVERLAY_OPTIONS ? -1 : 0;
}

struct fx_exec;
int fx_core_limit(const struct fx_exec *x, size_t *index);

static inline void reap(int pid)
{
	while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
		;
}

// in_child does something in a child that shares our memory, and waits until it has ended. No signal's handler runs in the child.
static inline int in_child(int (*what)(void *), char *stack, int flags, void *arg)
{
	unsigned long before;
	block_signals(&before);
	int pid = clone(what, stack, CLONE_VM | CLONE_VFORK | SIGCHLD | flags, arg), err = errno;
	unblock_signals(&before);
	reap(pid);
	errno = err;
	return pid < 0 ? -1 : 0;
}

// in_child_as_another is for a child that changes its user, which clears whether we are dumpable.
static inline int in_child_as_another(int (*what)(void *), char *stack, int flags, void *arg)
{
	int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
	int r = in_child(what, stack, flags, arg), err = errno;
	prctl(PR_SET_DUMPABLE, dumpable == 0 ? 0 : 1, 0, 0, 0);
	errno = err;
	return r;
}

#endif
