// The caller's standard input on the short way. What a program does not read stays with the caller: container/stream/input.go says how.
// Here are files, pipes, sockets and the null device; all else, a terminal above all, is for Go.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "feed.h"

#define EAGER 65536 // bytes that a program has read who wants its input
#define MAX_WAIT 32 // milliseconds
#define GONE (POLLERR | POLLHUP | POLLNVAL)

static size_t unread(const struct fx_feed *f)
{
	int n = 0;
	return ioctl(f->to, FIONREAD, &n) < 0 || n < 0 ? 0 : (size_t)n;
}

static void finish(struct fx_feed *f)
{
	close(f->to);
	f->to = -1;
}

int fx_feed_open(struct fx_feed *f, struct fx_exec *x)
{
	struct stat st;
	int p[2], mode = fcntl(0, F_GETFL);
	if (mode < 0 || (mode & O_ACCMODE) == O_WRONLY || (mode & O_PATH) || fstat(0, &st) < 0)
		return -1;
	int null = S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
	f->kind = S_ISREG(st.st_mode) ? FX_FILE : S_ISFIFO(st.st_mode) ? FX_PIPE : S_ISSOCK(st.st_mode) ? FX_SOCKET : FX_NULL;
	if ((f->kind == FX_NULL && !null) || (f->kind == FX_FILE && lseek(0, 0, SEEK_CUR) < 0))
		return -1;
	if (pipe2(p, O_CLOEXEC) < 0 || (x->uid != 0 && fchown(p[0], (uid_t)x->uid, (gid_t)x->gid) < 0) || fcntl(p[1], F_SETFL, O_NONBLOCK) < 0)
		return -1;
	f->page = (size_t)sysconf(_SC_PAGESIZE);
	if (f->page > sizeof f->data)
		return -1;
	fcntl(p[1], F_SETPIPE_SZ, (int)f->page); // where it does not get so small, more is read ahead
	x->stdio[0] = p[0];
	f->to = p[1];
	f->state = FX_WAIT;
	return 0;
}

// take takes from the caller what the program has read of a page that it was shown.
static void take(struct fx_feed *f, size_t n)
{
	char data[4096];
	if (f->kind == FX_FILE)
		lseek(0, (off_t)n, SEEK_CUR);
	while ((f->kind == FX_PIPE || f->kind == FX_SOCKET) && n > 0) {
		struct pollfd p = {0, POLLIN, 0};
		ssize_t r = poll(&p, 1, 0) > 0 ? read(0, data, n < sizeof data ? n : sizeof data) : 0;
		if (r <= 0 && (r == 0 || errno != EINTR))
			return; // somebody else who has the same input was faster
		n -= r > 0 ? (size_t)r : 0;
	}
}

// give_back puts a file's position back over what the program has left: it was moved when more than a page was read.
static void give_back(struct fx_feed *f)
{
	size_t left = f->have - f->done + (unread(f) < f->passed ? unread(f) : f->passed);
	if (f->kind == FX_FILE && f->streaming && left > 0)
		lseek(0, -(off_t)left, SEEK_CUR);
	finish(f);
}

static int put(struct fx_feed *f)
{
	while (f->done < f->have) {
		ssize_t n = write(f->to, f->data + f->done, f->have - f->done);
		if (n > 0)
			f->done += (size_t)n;
		else if (n < 0 && errno == EAGAIN)
			return f->state = FX_WRITE, 0;
		else if (n == 0 || errno != EINTR)
			return give_back(f), -1; // nobody reads it any more
	}
	f->state = f->streaming ? FX_WAIT : FX_SHOWN;
	return 0;
}

// show shows the program what comes next: a page, or, to one that has read a lot, as much as the pipe takes.
static void show(struct fx_feed *f, int *failed)
{
	ssize_t n;
	if (f->kind == FX_PIPE && !f->streaming)
		n = tee(0, f->to, f->page, SPLICE_F_NONBLOCK);
	else if (f->kind == FX_SOCKET && !f->streaming)
		n = recv(0, f->data, f->page, MSG_PEEK | MSG_DONTWAIT);
	else if (f->kind == FX_FILE && !f->streaming)
		n = pread(0, f->data, f->page, lseek(0, 0, SEEK_CUR));
	else
		n = read(0, f->data, sizeof f->data);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0 && !(errno == EPIPE && f->kind == FX_PIPE))
		*failed = errno;
	if (n == 0 && f->kind == FX_FILE && f->streaming) // once our end is closed nobody knows what is left in the pipe
		f->state = FX_DRAIN, f->wait = 1;
	else if (n <= 0)
		give_back(f);
	else if (f->kind == FX_PIPE && !f->streaming)
		f->state = FX_SHOWN, f->have = f->done = (size_t)n;
	else {
		f->have = (size_t)n;
		f->done = 0;
		f->passed += f->streaming ? f->have : 0;
		put(f);
	}
}

static void was_read(struct fx_feed *f, int gone)
{
	size_t left = gone ? unread(f) : 0;
	take(f, left < f->have ? f->have - left : 0);
	f->passed += f->have;
	f->have = f->done = 0;
	f->state = FX_WAIT;
	if (gone)
		finish(f);
	else if (f->passed >= EAGER) {
		f->streaming = 1;
		fcntl(f->to, F_SETPIPE_SZ, EAGER);
	}
}

int fx_feed_wait(struct fx_feed *f, struct pollfd p[2])
{
	p[0] = (struct pollfd){f->to >= 0 && f->state == FX_WAIT ? 0 : -1, POLLIN, 0};
	p[1] = (struct pollfd){f->to, f->state == FX_SHOWN || f->state == FX_WRITE ? POLLOUT : 0, 0};
	return f->to >= 0 && f->state == FX_DRAIN ? f->wait : -1;
}

void fx_feed_move(struct fx_feed *f, const struct pollfd p[2], int *failed)
{
	int gone = p[1].revents & GONE;
	if (f->to < 0)
		return;
	switch (f->state) {
	case FX_SHOWN:
		if (p[1].revents)
			was_read(f, gone);
		return;
	case FX_WRITE:
		if (p[1].revents)
			put(f);
		return;
	case FX_DRAIN:
		f->wait = f->wait * 2 < MAX_WAIT ? f->wait * 2 : MAX_WAIT;
		if (gone || unread(f) == 0)
			give_back(f);
		return;
	case FX_WAIT:
		if (gone)
			give_back(f);
		else if (p[0].revents)
			show(f, failed);
	}
}
