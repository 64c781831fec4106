// A sandbox of the pool that the command runs in, for `sandboxrun run`: container/pool/protocol.go has the protocol. The pool decides
// whether it may be given; whatever it does not answer with a sandbox is for Go.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "short.h"
#include "steps.h"

#define PATIENCE 10 // seconds, for the pool
#define MESSAGE 16384

struct fx_claim fx_claim = {.fd = -1};

// new_id is "run-" and 128 random bits.
static int new_id(char *to, size_t size)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
	unsigned char random[26];
	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -1;
	int n = snprintf(to, size, "run-");
	for (size_t i = 0; i < sizeof random; i++)
		to[n++] = letters[random[i] & 31];
	to[n] = 0;
	return 0;
}

static int reach(char *const *env)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct timeval wait = {.tv_sec = PATIENCE};
	int dir = fx_pool_dir(env), fd = dir < 0 ? -1 : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/socket", dir);
	if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) < 0)) {
		close(fd);
		fd = -1;
	}
	close(dir);
	return fd;
}

static size_t hear(int fd, char *answer)
{
	ssize_t n;
	while ((n = recv(fd, answer, MESSAGE, 0)) < 0 && errno == EINTR)
		;
	return n > 0 && answer[n - 1] == 0 ? (size_t)n : 0;
}

static int say(int fd, const char *message, size_t n) { return send(fd, message, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1; }

int fx_claim_sandbox(struct fx_request *q, char *const *env)
{
	static char message[MESSAGE], answer[MESSAGE];
	struct fx_claim *c = &fx_claim;
	if (new_id(c->id, sizeof c->id) < 0)
		return -1;
	int n = snprintf(message, sizeof message, "run%c%s%c%s%c%c%c%cquiet,early%s%c", 0, c->id, 0, q->policy ? q->policy : "", 0, 0, 0, 0, q->n_env ? ",env" : "", 0);
	int fd = n < 0 || n >= MESSAGE ? -1 : reach(env);
	if (fd < 0)
		return -1;
	size_t got = say(fd, message, (size_t)n) == 0 ? hear(fd, answer) : 0, ok = sizeof "ok", id = strlen(c->id) + 1;
	if (got <= ok + id || memcmp(answer, "ok", ok) != 0 || memcmp(answer + ok, c->id, id) != 0 || say(fd, "once", sizeof "once") < 0) {
		close(fd); // if there is one the pool takes it back
		return -1;
	}
	c->fd = fd;
	c->dir = answer + ok + id;
	q->id = c->id;
	q->cwd = *c->dir ? c->dir : NULL;
	return 0;
}

// The program is not started before: what its policy depends on is compared while it is prepared.
int fx_claim_sure(void)
{
	struct fx_claim *c = &fx_claim;
	char answer[sizeof "sure"];
	ssize_t n = -1;
	if (c->fd < 0 || c->sure)
		return 0;
	while ((n = recv(c->fd, answer, sizeof answer, 0)) < 0 && errno == EINTR)
		;
	c->sure = n == sizeof answer && memcmp(answer, "sure", sizeof answer) == 0;
	errno = ECANCELED;
	return c->sure ? 0 : -1;
}

void fx_drop_claim(void)
{
	close(fx_claim.fd);
	fx_claim.fd = -1;
}

int fx_claim_lost(void)
{
	struct pollfd p = {.fd = fx_claim.fd};
	return fx_claim.fd >= 0 && poll(&p, 1, 0) > 0;
}
