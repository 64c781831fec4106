// Makes a user namespace that nobody is in, for idmapped mounts: the kernel takes their maps from one.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

// rest is all that the process does that holds the namespace until a descriptor does.
static int rest(void *parent)
{
	end_with_parent(*(int *)parent);
	for (;;)
		syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
	return 0;
}

static int file_of(char *buf, size_t size, int pid, const char *name)
{
	int n = snprintf(buf, size, "/proc/%d/%s", pid, name);
	return n > 0 && (size_t)n < size ? 0 : -1;
}

// fx_user_namespace gives a descriptor of a new user namespace with these maps, or -1 and errno in *err. To write more than
// one line takes CAP_SETUID and CAP_SETGID out here.
int fx_user_namespace(const char *uids, const char *gids, char *stacks, int *err)
{
	unsigned long before;
	char name[64];
	int fd = -1, self = getpid();
	block_signals(&before);
	// Without an exit signal nobody else who waits for children meets this one.
	int pid = clone(rest, stacks + FX_STACK, CLONE_VM | CLONE_NEWUSER, &self);
	unblock_signals(&before);
	if (pid < 0) {
		*err = errno;
		return -1;
	}
	if (file_of(name, sizeof name, pid, "uid_map") == 0 && write_file(name, uids) == 0 &&
	    file_of(name, sizeof name, pid, "gid_map") == 0 && write_file(name, gids) == 0 &&
	    file_of(name, sizeof name, pid, "ns/user") == 0)
		fd = open(name, O_RDONLY | O_CLOEXEC);
	*err = errno;
	kill(pid, SIGKILL);
	reap(pid);
	return fd;
}
