// The exec's own /proc: what the launcher opens of it for its looks, and the cover by which a program sees none of it
// (processes.proc = false).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"
#include "steps.h"

// open_proc opens the exec's /proc for the launcher, and where no process may be missed without the program's covers: dear, since
// to release such a clone the kernel waits for all processors.
static int open_proc(struct fx_limits *l)
{
	if (!fx_limits_all(l))
		return l->proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int bare = (int)syscall(SYS_open_tree, AT_FDCWD, "/proc", FX_OPEN_TREE_CLONE | O_CLOEXEC);
	if (bare < 0)
		return -1;
	l->proc = openat(bare, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int saved = errno;
	close(bare);
	return errno = saved, l->proc;
}

// fx_open_for_looking opens what shows all that this exec has: its processes, what it has by IPC, and the sockets of its network
// namespace, unless that is the host's.
int fx_open_for_looking(struct fx_exec *x)
{
	struct fx_limits *l = x->limits;
	if (open_proc(l) < 0 || !(l->watched & FX_MEMORY))
		return l->proc;
	static const char *const lists[] = {"/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem"};
	for (int i = 0; i < 3; i++) {
		l->ipc[i] = open(lists[i], O_RDONLY | O_CLOEXEC);
		if (l->ipc[i] < 0 && errno != ENOENT) // a kernel without these
			return -1;
	}
	if (x->namespaces & CLONE_NEWNET)
		l->sockets = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	return x->namespaces & CLONE_NEWNET ? l->sockets : 0;
}

// fx_hold_proc opens the exec's procfs for what the start and the supervisor still need of it, and then covers it where the program is to see
// none. In the program's process the descriptor is closed before the program is executed.
int fx_hold_proc(struct fx_exec *x, size_t *i)
{
	x->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (*i = 0; x->proc >= 0 && *i < x->n_mounts; (*i)++) {
		const struct fx_mount *m = &x->mounts[*i];
		if ((m->flags & FX_COVER) && mount(m->source, m->target, m->fstype, m->flags & ~FX_COVER, m->data) < 0)
			return -1;
	}
	return x->proc;
}
