// Makes listening sockets in a sandbox's network namespace, for a process that stays outside. A child enters the
// namespace and makes them in the descriptor table that it shares with the launcher: nothing is sent, and nobody in the
// sandbox has a hand in it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

#define BACKLOG 4096

static int listen_at(const struct fx_addr *a)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(a->port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
	const void *addr = a->v6 ? (const void *)&v6 : &v4;
	socklen_t size = a->v6 ? sizeof v6 : sizeof v4;
	int one = 1;
	memcpy(&v4.sin_addr, a->ip, sizeof v4.sin_addr);
	memcpy(&v6.sin6_addr, a->ip, sizeof v6.sin6_addr);
	int fd = socket(a->v6 ? AF_INET6 : AF_INET, (a->udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (a->v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) < 0)
		goto bad;
	// Neither SO_REUSEPORT nor SO_REUSEADDR: an exec, which is of the same user, could listen there too then, on the same
	// address, a more or a less specific one, and get connections that others make to the relay.
	if (bind(fd, addr, size) < 0)
		goto bad;
	if (a->udp || listen(fd, BACKLOG) == 0)
		return fd;
bad:;
	int saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static int maker(void *arg)
{
	struct fx_listen *l = arg;
	if (syscall(SYS_setns, l->target, CLONE_NEWUSER | CLONE_NEWNET) < 0 || become(0, 0) < 0) {
		l->err = errno;
		return 1;
	}
	for (; l->done < l->n; l->done++)
		if ((l->fds[l->done] = listen_at(&l->addrs[l->done])) < 0 &&
		    !(l->addrs[l->done].optional && (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT))) {
			l->err = errno;
			return 1;
		}
	return 0;
}

void fx_listen(struct fx_listen *l)
{
	if (in_child(maker, l->stacks + FX_STACK, CLONE_FILES, l) < 0)
		l->err = errno;
	if (l->done < l->n && l->err == 0)
		l->err = ESRCH; // it was killed with the sandbox
}
