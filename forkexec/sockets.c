// The memory of sockets: what has been sent and not been received yet. The kernel reports it for each socket, to a netlink socket
// that was made in the sandbox's network namespace; so the sockets of all execs of the sandbox count for each of them.
#define _GNU_SOURCE
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "limits.h"

#define MOST_IN_ONE (2 * 212992) // the largest buffer that a program can set: twice net.core.wmem_max, as the kernel counts
#define UNLISTED 16              // sockets that hold nothing and are in no list, as every program has some
#define EVERY (20 * MS)
#define NOT_SOCKETS (1u << 6 | 1u << 3 | 1u << 12) // TIME_WAIT, SYN_RECV, NEW_SYN_RECV: these are no whole sockets

enum { RECEIVED, RECEIVE_BUFFER, SENT, SEND_BUFFER, FORWARD, QUEUED, OPTIONS, BACKLOG, N_MEMORY };

struct sums { int64_t bytes, sockets; };

static void add_memory(const struct nlattr *a, size_t length, int type, struct sums *s)
{
	for (; length >= sizeof *a && a->nla_len >= sizeof *a && a->nla_len <= length;) {
		if ((a->nla_type & NLA_TYPE_MASK) == type && a->nla_len >= sizeof *a + (QUEUED + 1) * sizeof(uint32_t)) {
			uint32_t m[N_MEMORY] = {0};
			memcpy(m, a + 1, least(sizeof m, a->nla_len - sizeof *a));
			s->bytes += (int64_t)m[RECEIVED] + most(m[SENT], m[QUEUED]) + m[FORWARD] + m[OPTIONS] + m[BACKLOG];
		}
		size_t step = NLA_ALIGN(a->nla_len);
		if (step >= length)
			return;
		length -= step;
		a = (const struct nlattr *)((const char *)a + step);
	}
}

// dump asks for all sockets of one kind. It fails where the kernel cannot list them.
static int dump(int fd, const void *request, size_t size, size_t head, int type, struct sums *s)
{
	char buf[32768] __attribute__((aligned(8)));
	if (send(fd, request, size, 0) != (ssize_t)size)
		return -1;
	for (;;) {
		ssize_t n = recv(fd, buf, sizeof buf, 0);
		if (n <= 0)
			return -1;
		struct nlmsghdr *h = (struct nlmsghdr *)buf;
		for (unsigned left = (unsigned)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (h->nlmsg_type == NLMSG_ERROR)
				return -1;
			if (h->nlmsg_len < NLMSG_LENGTH(head))
				continue;
			s->sockets++;
			add_memory((const struct nlattr *)((char *)NLMSG_DATA(h) + NLMSG_ALIGN(head)), h->nlmsg_len - NLMSG_SPACE(head), type, s);
		}
	}
}

static int dump_unix(int fd, struct sums *s)
{
	struct { struct nlmsghdr h; struct unix_diag_req r; } q = {
		{sizeof q, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0},
		{.sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_show = UDIAG_SHOW_MEMINFO},
	};
	return dump(fd, &q, sizeof q, sizeof(struct unix_diag_msg), UNIX_DIAG_MEMINFO, s);
}

static int dump_inet(int fd, int family, int protocol, struct sums *s)
{
	struct { struct nlmsghdr h; struct inet_diag_req_v2 r; } q = {
		{sizeof q, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0},
		{.sdiag_family = (uint8_t)family, .sdiag_protocol = (uint8_t)protocol, .idiag_states = ~NOT_SOCKETS,
		 .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1)},
	};
	return dump(fd, &q, sizeof q, sizeof(struct inet_diag_msg), INET_DIAG_SKMEMINFO, s);
}

// pages adds up, over the protocols, the machine's pages in buffers: what counts where sockets cannot be listed.
static int64_t pages(const char *text)
{
	int64_t sum = 0;
	for (const char *p = text; (p = strstr(p, " mem ")); p++)
		sum += strtoll(p + 5, NULL, 10);
	return sum * sysconf(_SC_PAGESIZE);
}

// A socket that was closed while what it had sent was still unread is in no list, and lives on. So does one that listed
// nowhere for other reasons; more of these than any program has count as if they were full.
int64_t fx_sockets(struct fx_limits *l)
{
	char text[2048];
	int64_t now = fx_now_us();
	if (l->sockets < 0 || now < l->sockets_us)
		return l->in_sockets;
	l->sockets_us = now + EVERY;
	if (fx_read_at(l->proc, "1/net/sockstat", text, sizeof text) <= 0)
		return l->in_sockets;
	int64_t used = strncmp(text, "sockets: used ", 14) == 0 ? strtoll(text + 14, NULL, 10) : 0, machine = pages(text);
	if (!l->pages_at)
		l->pages_at = most(1, machine);
	if (used <= 1) // the one that asks
		return l->in_sockets = 0;
	struct sums s = {0, 0};
	int failed = dump_unix(l->sockets, &s) < 0;
	static const int families[] = {AF_INET, AF_INET6}, protocols[] = {IPPROTO_TCP, IPPROTO_UDP};
	for (int i = 0; i < 4; i++)
		failed |= dump_inet(l->sockets, families[i / 2], protocols[i % 2], &s) < 0;
	if (failed)
		s.bytes += most(0, machine - l->pages_at);
	s.bytes += most(0, used - s.sockets - UNLISTED) * MOST_IN_ONE;
	l->in_sockets = s.bytes;
	l->sockets_us = fx_now_us() + most(EVERY, 10 * (fx_now_us() - now));
	return l->in_sockets;
}
