// Loads a program's seccomp filter, one that asks the launcher too.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"
#include "short.h"
#include "steps.h"

union control { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; };

static struct msghdr message(union control *c, struct iovec *io)
{
	struct msghdr m;
	memset(&m, 0, sizeof m);
	memset(c, 0, sizeof *c);
	m.msg_iov = io;
	m.msg_iovlen = 1;
	m.msg_control = c->room;
	m.msg_controllen = sizeof c->room;
	return m;
}

// send_listener hands the filter's listener to the launcher, which answers what the filter asks (container/chmod).
static void send_listener(int fd)
{
	char byte = 0;
	union control control;
	struct iovec io = {&byte, 1};
	struct msghdr m = message(&control, &io);
	control.h.cmsg_level = SOL_SOCKET;
	control.h.cmsg_type = SCM_RIGHTS;
	control.h.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.h), &fd, sizeof fd);
	syscall(SYS_sendmsg, FX_LISTENER, &m, MSG_NOSIGNAL); // execve closes both descriptors here
}

// What is asked is refused (ENOSYS) where nobody answers: somebody outside has a filter in place that asks already (EBUSY), or all
// programs of this user have so many descriptors on their way that no other can be sent.
int fx_load_filter(const struct fx_exec *x)
{
	long fd = -1;
	if (x->asks && (fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &x->filter)) >= 0)
		send_listener((int)fd);
	else if (!x->asks || errno == EBUSY)
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &x->filter);
	return fd < 0 ? -1 : 0;
}

int fx_open_listener(struct fx_exec *x)
{
	x->listener = x->ask[0] = x->ask[1] = -1;
	return x->asks ? socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, x->ask) : 0;
}

// fx_take_listener does not wait: what was sent is there as soon as the program is executed.
void fx_take_listener(struct fx_exec *x)
{
	char byte;
	int fd;
	union control control;
	struct iovec io = {&byte, 1};
	struct msghdr m = message(&control, &io);
	if (!x->asks)
		return;
	close(x->ask[1]);
	if (recvmsg(x->ask[0], &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) == 1 && m.msg_controllen >= CMSG_LEN(sizeof fd) &&
	    control.h.cmsg_type == SCM_RIGHTS) {
		memcpy(&fd, CMSG_DATA(&control.h), sizeof fd);
		x->listener = fd;
	}
	close(x->ask[0]);
}

// fx_answer_modes has a process of its own answer what the filter asks, in Go (container/chmod): few programs ask. That process ends with the
// exec, or with us. It must not keep the caller's streams open.
void fx_answer_modes(struct fx_exec *x, int asked)
{
	char *argv[] = {"sandboxrun", FX_MODES_COMMAND, "", NULL}, *envp[] = {NULL};
	int self = getpid(), pid = asked ? vfork() : -1;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		end_with_parent(self);
		if (null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2 && dup2(x->listener, 3) == 3 &&
		    syscall(SYS_close_range, 4, ~0u, 0) == 0)
			execve("/proc/self/exe", argv, envp);
		_exit(125);
	}
	close(x->listener); // without an answer the kernel refuses it
	x->listener = -1;
}
