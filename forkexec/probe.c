// Tries what a sandbox needs from the kernel, a step at a time, in a process that is thrown away.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

struct probe {
	int uid, gid, step, err;
	char *stack;
};

static int stop(struct probe *p, int step)
{
	p->step = step;
	p->err = errno;
	return 1;
}

// The program's own user namespace, in which it is shown its number.
static int innermost(void *arg)
{
	struct probe *p = arg;
	char text[32];
	snprintf(text, sizeof text, "%d 0 1", p->uid);
	return write_file("/proc/self/uid_map", text) < 0 ? stop(p, FX_PROBE_NESTED) : 0;
}

static int nested(void *arg)
{
	struct probe *p = arg;
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return stop(p, FX_PROBE_PROC);
	int pid = clone(innermost, p->stack + 3 * FX_STACK, CLONE_VM | CLONE_VFORK | CLONE_NEWUSER | SIGCHLD, p);
	if (pid < 0)
		return stop(p, FX_PROBE_NESTED);
	reap(pid);
	return 0;
}

static int steps(void *arg)
{
	struct probe *p = arg;
	struct fx_mount_attr readonly = {.attr_set = FX_MOUNT_ATTR_RDONLY};
	if (map_root(p->uid, p->gid) < 0)
		return stop(p, FX_PROBE_MAP);
	if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return stop(p, FX_PROBE_NAMESPACES);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("tmpfs", "/tmp", "tmpfs", 0, NULL) < 0)
		return stop(p, FX_PROBE_MOUNT);
	if (syscall(SYS_mount_setattr, AT_FDCWD, "/tmp", AT_RECURSIVE, &readonly, sizeof readonly) < 0)
		return stop(p, FX_PROBE_ATTR);
	if (unshare(CLONE_NEWNET) < 0)
		return stop(p, FX_PROBE_NETWORK);
	int flags = CLONE_VM | CLONE_VFORK | CLONE_NEWPID | SIGCHLD;
	int pid = clone(nested, p->stack + FX_STACK, flags, p);
	if (pid < 0)
		return stop(p, FX_PROBE_NAMESPACES);
	reap(pid);
	return 0;
}

int fx_probe(int uid, int gid, char *stacks, int *err)
{
	struct probe p = {.uid = uid, .gid = gid, .stack = stacks};
	if (in_child(steps, stacks + 2 * FX_STACK, CLONE_NEWUSER, &p) < 0)
		stop(&p, FX_PROBE_USERNS);
	*err = p.err;
	return p.step;
}

#define PROBE_TASKS 3
#define ROOM_STACK 4096

static int idle(void *parent)
{
	end_with_parent(*(int *)parent);
	for (;;)
		pause();
	return 0;
}

// fx_probe_room returns how many more processes and threads there may be, up to FX_ROOM.
int fx_probe_room(char *stacks)
{
	int pids[FX_ROOM], n = 0, self = getpid();
	unsigned long before;
	block_signals(&before);
	while (n < FX_ROOM && (pids[n] = clone(idle, stacks + (n + 1) * ROOM_STACK, CLONE_VM | SIGCHLD, &self)) > 0)
		n++;
	for (int i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		reap(pids[i]);
	}
	unblock_signals(&before);
	return n;
}

// count_tasks counts how many children it may have under a limit that is less than any user's number of processes: they
// are counted by themselves only where the kernel counts a user namespace's own.
static int count_tasks(void *arg)
{
	struct probe *p = arg;
	struct rlimit few = {PROBE_TASKS, PROBE_TASKS};
	int pids[PROBE_TASKS + 1], n = 0, self = getpid();
	if (map_root(p->uid, p->gid) < 0 || setrlimit(RLIMIT_NPROC, &few) < 0)
		return 1;
	while (n <= PROBE_TASKS && (pids[n] = clone(idle, p->stack + (n + 1) * (FX_STACK / 4), CLONE_VM | SIGCHLD, &self)) > 0)
		n++;
	for (int i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		reap(pids[i]);
	}
	p->step = n;
	return 0;
}

// fx_probe_nproc reports whether RLIMIT_NPROC limits a user namespace by itself, as it does since Linux 5.14, and holds for
// this user: root is exempt.
int fx_probe_nproc(int uid, int gid, char *stacks)
{
	struct probe p = {.uid = uid, .gid = gid, .stack = stacks};
	unsigned long before;
	block_signals(&before);
	int pid = clone(count_tasks, stacks + 2 * FX_STACK, CLONE_VM | CLONE_VFORK | CLONE_NEWUSER | SIGCHLD, &p);
	unblock_signals(&before);
	reap(pid);
	return pid > 0 && p.step > 0 && p.step <= PROBE_TASKS;
}

// try_overlay mounts an overlay over nothing of anybody's: on a file system in memory, which is mounted at /proc.
static int try_overlay(const char *dir)
{
	char options[FX_OVERLAY_OPTIONS];
	struct stat st;
	if (chdir(dir) < 0 || mount("tmpfs", "/proc", "tmpfs", 0, "mode=755,size=64k") < 0 || fx_overlay_options(options, "/proc/without") < 0)
		return -1;
	if (mkdir("/proc/without", 0755) < 0 || mkdir("/proc/shown", 0755) < 0 || mknod("/proc/without/hidden", S_IFCHR, 0) < 0)
		return -1;
	if (mount("overlay", "/proc/shown", "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, options) < 0)
		return -1;
	if (stat("/proc/shown/hidden", &st) == 0)
		return errno = EEXIST, -1;
	return errno == ENOENT ? 0 : -1;
}

static int try_overlays(void *arg)
{
	struct fx_overlays *o = arg;
	if (map_root(o->uid, o->gid) < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	for (size_t i = 0; i < o->n; i++) {
#ifdef FX_SABOTAGE
		if (fx_without("overlays")) {
			o->errs[i] = ENODEV;
			continue;
		}
#endif
		o->errs[i] = try_overlay(o->dirs[i]) < 0 ? errno : 0;
		chdir("/");
		umount2("/proc", MNT_DETACH); // with the overlay; if it is not mounted, the machine's own is locked and stays
	}
	return 0;
}

// fx_probe_overlays tries, in a mount namespace that is thrown away, in which directories an overlay can hide names.
int fx_probe_overlays(struct fx_overlays *o, char *stacks)
{
	for (size_t i = 0; i < o->n; i++)
		o->errs[i] = EPERM;
	return in_child(try_overlays, stacks + 2 * FX_STACK, CLONE_NEWUSER, o);
}
