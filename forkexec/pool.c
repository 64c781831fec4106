// What the pool that the command runs in does for `sandboxrun run`, `create` and `delete`: container/pool/protocol.go has the protocol. The pool
// decides whether a sandbox may be given; whatever it does not answer as was asked is for Go.
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

// ask sends the pool what is in message, and hears its answer. It gives the connection, or -1 where that does not begin with "ok".
static int ask(char *const *env, const char *message, int n, char *answer, size_t *got)
{
	int fd = n < 0 || n >= MESSAGE ? -1 : reach(env);
	if (fd < 0)
		return -1;
	*got = say(fd, message, (size_t)n) == 0 ? hear(fd, answer) : 0;
	if (*got >= sizeof "ok" && memcmp(answer, "ok", sizeof "ok") == 0)
		return fd;
	close(fd);
	return -1;
}

// claim asks for a sandbox and takes it with a word. It gives the connection, and how long the answer is up to the directory to start in, and in all.
static int claim(char *const *env, const char *message, int n, char *answer, const char *id, const char *word, size_t *dir, size_t *got)
{
	size_t ok = sizeof "ok", size = strlen(id) + 1;
	int fd = ask(env, message, n, answer, got);
	if (fd < 0)
		return -1;
	if (*got <= ok + size || memcmp(answer + ok, id, size) != 0 || say(fd, word, strlen(word) + 1) < 0) {
		close(fd); // if there is one the pool takes it back
		return -1;
	}
	*dir = ok + size;
	return fd;
}

static char message[MESSAGE], answer[MESSAGE];

int fx_claim_sandbox(struct fx_request *q, char *const *env)
{
	struct fx_claim *c = &fx_claim;
	size_t dir, got;
	if (new_id(c->id, sizeof c->id) < 0)
		return -1;
	int early = !q->json && !q->result; // the texts of a result have the id
	int n = snprintf(message, sizeof message, "run%c%s%c%s%c%c%c%cquiet%s%s%c", 0, c->id, 0, q->policy ? q->policy : "", 0, 0, 0, 0, early ? ",early" : "", q->n_env ? ",env" : "", 0);
	if ((c->fd = claim(env, message, n, answer, c->id, "once", &dir, &got)) < 0)
		return -1;
	c->dir = answer + dir;
	c->sure = !early;
	if (early && dir + strlen(c->dir) + 1 < got)
		q->ready = c->dir + strlen(c->dir) + 1;
	q->id = c->id;
	q->cwd = *c->dir ? c->dir : NULL;
	return 0;
}

int fx_claim_created(const struct fx_request *q, char *const *env)
{
	size_t dir, got;
	int n, fd;
	if (q->owner)
		n = snprintf(message, sizeof message, "create%c%s%c%s%c%s%c0%c%cquiet%c", 0, q->id, 0, q->policy ? q->policy : "", 0, q->owner, 0, 0, 0, 0);
	else
		n = snprintf(message, sizeof message, "create%c%s%c%s%ccaller%c%d%c%cquiet%c", 0, q->id, 0, q->policy ? q->policy : "", 0, 0, fx_first_parent, 0, 0, 0);
	fd = claim(env, message, n, answer, q->id, "mine", &dir, &got);
	close(fd);
	return fd < 0 ? -1 : 0;
}

int fx_delete_by_pool(const struct fx_request *q, char *const *env)
{
	size_t got;
	int n = snprintf(message, sizeof message, "delete%c%s%c", 0, q->id, 0);
	int fd = ask(env, message, n, answer, &got);
	close(fd);
	return fd < 0 ? -1 : 0;
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
