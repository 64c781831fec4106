// Loads a program's seccomp filter, one that asks the launcher too.
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "forkexec.h"

// send_listener hands the filter's listener to the launcher, which answers what the filter asks (container/setgroup).
static int send_listener(int fd)
{
	char byte = 0;
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } control;
	struct iovec io = {&byte, 1};
	struct msghdr m;
	memset(&m, 0, sizeof m);
	memset(&control, 0, sizeof control);
	m.msg_iov = &io;
	m.msg_iovlen = 1;
	m.msg_control = control.room;
	m.msg_controllen = sizeof control.room;
	control.h.cmsg_level = SOL_SOCKET;
	control.h.cmsg_type = SCM_RIGHTS;
	control.h.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.h), &fd, sizeof fd);
	return syscall(SYS_sendmsg, FX_LISTENER, &m, MSG_NOSIGNAL) == 1 && close(fd) == 0 && close(FX_LISTENER) == 0 ? 0 : -1;
}

int fx_load_filter(const struct fx_exec *x)
{
	long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, x->listener >= 0 ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0, &x->filter);
	return fd < 0 || x->listener < 0 ? (int)fd : send_listener((int)fd);
}
