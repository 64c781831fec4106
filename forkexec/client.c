// `sandboxrun exec`, the command that is run most, and `run`, `create` and `delete` in a pool, before the Go runtime starts: that
// start, with all that libcontainer brings, takes longer than the whole exec.
//
//	command line -- request.c --> what it asks for            | anything that is not quite plain:
//	process 1    -- launch.c, plan.c --> how to start it      | nothing has been done yet, and Go does
//	                                                          | all of it, with the messages
//	fx_start, follow                                          | it could not be started: the same
//	answer.c     -- exited, and nothing else to say --> exit  | else: fx_short, and Go goes on from there
//
// Here nothing is judged, and no text for the user is written. Go reports how an exec ended, in this same process, wherever it is more
// than an exit status. Integration tests run every exec both ways (SANDBOXRUN_PLAIN_EXEC=off turns this one off).
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "feed.h"
#include "short.h"
#include "steps.h"

#define CHUNK 4096 // a pipe that polls as writable takes so much without blocking
#define GROUP (1u << 2) // PIDFD_SIGNAL_PROCESS_GROUP

// loads_plainly reports whether a program is an ELF file whose loader, if it has one, is named by an absolute path and is
// there. Scripts and everything odd are left to Go.
static int loads_plainly(int root, const char *name)
{
	static char head[4096];
	char interp[256];
	int fd = fx_open_inside(root, name, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : pread(fd, head, sizeof head, 0);
	Elf64_Ehdr *e = (Elf64_Ehdr *)head;
	int ok = n >= (ssize_t)sizeof *e && memcmp(head, ELFMAG "\2\1", 6) == 0 && e->e_phentsize == sizeof(Elf64_Phdr) &&
		 e->e_phoff < sizeof head && e->e_phoff + e->e_phnum * sizeof(Elf64_Phdr) <= (size_t)n;
	for (int i = 0; ok && i < e->e_phnum; i++) {
		Elf64_Phdr *p = (Elf64_Phdr *)(head + e->e_phoff) + i;
		if (p->p_type != PT_INTERP)
			continue;
		ok = p->p_filesz > 1 && p->p_filesz < sizeof interp &&
		     pread(fd, interp, p->p_filesz, (off_t)p->p_offset) == (ssize_t)p->p_filesz && interp[0] == '/' &&
		     interp[p->p_filesz - 1] == 0;
		int loader = ok ? fx_open_inside(root, interp, O_PATH) : -1;
		ok = loader >= 0;
		close(loader);
	}
	close(fd);
	return ok;
}

static int executable(int root, const char *name)
{
	struct stat st;
	int fd = fx_open_inside(root, name, O_PATH);
	int ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111);
	close(fd);
	return ok;
}

// find_program is container.findProgram where that finds something; else it says nothing.
static const char *find_program(int root, const char *name, const char *path)
{
	static char full[4096];
	if (name[0] == '/')
		return executable(root, name) && loads_plainly(root, name) ? name : NULL;
	if (!*name || strchr(name, '/') || !path)
		return NULL;
	for (const char *p = path, *end; ; p = end + 1) {
		end = strchrnul(p, ':');
		if (*p == '/' && snprintf(full, sizeof full, "%.*s/%s", (int)(end - p), p, name) < (int)sizeof full &&
		    executable(root, full))
			return loads_plainly(root, full) ? full : NULL;
		if (!*end)
			return NULL;
	}
}

// One of the program's streams: on its way to a descriptor of the caller's, or kept.
struct relay { int from, to, *err; int64_t *total; struct fx_kept *kept; size_t have, done; char data[CHUNK]; };

static void relay_keep(struct relay *s)
{
	static char block[65536];
	ssize_t n = read(s->from, block, sizeof block);
	if (n > 0) {
		*s->total += n;
		fx_keep(s->kept, block, (size_t)n);
	} else if (n == 0 || errno != EINTR)
		close(s->from), s->from = -1;
}

// move passes on what there is. The end of the stream, and of its reader, closes our end, so that the program
// hears of it as it would without us.
static void relay_move(struct relay *s, short in, short out, int64_t *output_us)
{
	if (in)
		*output_us = fx_now_us();
	if (in && s->kept->data)
		relay_keep(s);
	else if (s->have == s->done && in) {
		ssize_t n = read(s->from, s->data, sizeof s->data);
		s->have = n > 0 ? (size_t)n : 0;
		s->done = 0;
		*s->total += (int64_t)s->have;
		if (n == 0 || (n < 0 && errno != EINTR))
			close(s->from), s->from = -1;
	} else if (s->have > s->done && out) {
		ssize_t n = write(s->to, s->data + s->done, s->have - s->done);
		if (n > 0)
			s->done += (size_t)n;
		else if (n < 0 && errno != EINTR && errno != EAGAIN) {
			*s->err = errno;
			close(s->from), s->from = -1, s->have = s->done = 0;
		}
	}
}

// suspend stops the exec and then us, until somebody continues us.
static void suspend(int reaper)
{
	static struct fx_stopped stopped;
	fx_stop(&stopped, reaper);
	fx_stop_self(0);
	fx_continue(&stopped);
}

static void pass_signal(int sigfd, const struct fx_exec *x, int64_t *output_us)
{
	struct signalfd_siginfo info;
	if (read(sigfd, &info, sizeof info) != sizeof info)
		return;
	int sig = (int)info.ssi_signo, group = sig == SIGINT || sig == SIGQUIT;
	if (sig == SIGTSTP) {
		suspend(x->reaper_pidfd);
		*output_us = fx_now_us(); // it was not idle of its own
		return;
	}
	if (syscall(SYS_pidfd_send_signal, x->program_pidfd, sig, NULL, group ? GROUP : 0) < 0 && errno == EINVAL)
		syscall(SYS_pidfd_send_signal, x->program_pidfd, sig, NULL, 0);
}

// look_after ends the exec when it has exceeded a limit, and says when to look again.
static int64_t look_after(struct fx_exec *x, int64_t output_us)
{
	struct fx_limits *l = x->limits;
	int64_t again = fx_limits_check(l, output_us);
	if (l->why == FX_BY_ITSELF)
		return again;
	// The supervisor ends all of them and still reports. Where it does not come to it, the kernel does, by its end.
	int late = fx_now_us() - l->ended_us >= FX_GRACE;
	syscall(SYS_pidfd_send_signal, x->reaper_pidfd, late ? SIGKILL : SIGTERM, NULL, 0);
	return again;
}

// wait_for_all reaps the supervisor. Where the supervisor has not reported, the kernel's figures of it are used: it has waited for
// the others.
static void wait_for_all(const struct fx_exec *x, struct fx_short *e)
{
	struct rusage used;
	memset(&used, 0, sizeof used);
	while (syscall(SYS_waitid, P_PIDFD, x->reaper_pidfd, NULL, WEXITED | __WALL, &used) < 0 && errno == EINTR)
		;
	if (!e->reported)
		e->status = (struct fx_status){
			.utime_us = used.ru_utime.tv_sec * 1000000ll + used.ru_utime.tv_usec, .stime_us = used.ru_stime.tv_sec * 1000000ll + used.ru_stime.tv_usec,
			.maxrss_kib = used.ru_maxrss, .written_blocks = used.ru_oublock, .faults = used.ru_minflt,
		};
}

// follow passes output and signals on until the program has ended and all of its output has come.
static void follow(struct fx_exec *x, struct fx_short *e, struct relay *streams, struct fx_feed *feed, int status, int sigfd)
{
	struct fx_limits *l = x->limits;
	int64_t output_us = 0;
	ssize_t got = -1;
	while (got < 0 || streams[0].from >= 0 || streams[1].from >= 0 || feed->to >= 0) {
		int64_t again = got < 0 ? look_after(x, output_us) : 0;
		struct pollfd p[10] = {{got < 0 ? status : -1, POLLIN, 0}, {sigfd, POLLIN, 0}};
		int wait = fx_feed_wait(feed, p + 7), most = again > 0 ? (int)((again + 999) / 1000) : -1;
		p[6] = (struct pollfd){got < 0 && l->thread && !l->ended_us ? l->wake : -1, POLLIN, 0};
		for (int i = 0; i < 2; i++) {
			struct relay *s = &streams[i];
			int idle = s->have == s->done;
			p[2 + i] = (struct pollfd){idle ? s->from : -1, POLLIN, 0};
			p[4 + i] = (struct pollfd){idle || s->from < 0 ? -1 : s->to, POLLOUT, 0};
		}
		p[9] = (struct pollfd){x->listener, POLLIN, 0};
		if (poll(p, 10, wait < 0 || (most >= 0 && most < wait) ? most : wait) < 0 && errno != EINTR)
			break;
		if (p[0].revents)
			got = read(status, &e->status, sizeof e->status);
		if (p[1].revents)
			pass_signal(sigfd, x, &output_us);
		if (p[9].revents)
			fx_answer_modes(x, p[9].revents & POLLIN);
		for (int i = 0; i < 2; i++)
			relay_move(&streams[i], p[2 + i].revents, p[4 + i].revents, &output_us);
		fx_feed_move(feed, p + 7, &e->input_failed);
	}
	e->reported = got == sizeof e->status;
	e->cancelled = x->cancelled;
	l->once = fx_claim.fd >= 0 && !fx_claim_lost();
	wait_for_all(x, e); // also where the sandbox ends with us: its process 1 cannot end before this one has been reaped
	e->wall_us = fx_now_us() - l->started_us;
	fx_limits_close(l);
	e->ran = 1;
}

struct signal_state { sigset_t mask; struct sigaction pipe, child; };

static void restore_signals(const struct signal_state *was)
{
	sigaction(SIGPIPE, &was->pipe, NULL);
	sigaction(SIGCHLD, &was->child, NULL);
	sigprocmask(SIG_SETMASK, &was->mask, NULL);
}

// catch_signals leaves those alone that the caller wants ignored.
static int catch_signals(struct signal_state *was)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, dfl = {.sa_handler = SIG_DFL};
	static const int list[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP};
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		struct sigaction now;
		if (sigaction(list[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaddset(&set, list[i]);
	}
	sigaction(SIGPIPE, &ignore, &was->pipe);
	sigaction(SIGCHLD, &dfl, &was->child);
	sigprocmask(SIG_SETMASK, &set, &was->mask);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int stream(struct fx_exec *x, struct fx_short *e, struct relay *s, int to)
{
	int p[2], i = to - 1;
	if (pipe2(p, O_CLOEXEC) < 0 || (x->uid != 0 && fchown(p[1], (uid_t)x->uid, (gid_t)x->gid) < 0))
		return -1;
	*s = (struct relay){.from = p[0], .to = to, .err = &e->failed[i], .total = &e->total[i], .kept = &e->kept[i]};
	x->stdio[to] = p[1];
	return 0;
}

// one_file is cli.sameFile.
static int one_file(void)
{
	struct stat a, b;
	int same = fstat(1, &a) == 0 && fstat(2, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino &&
		   (a.st_mode & S_IFMT) == (b.st_mode & S_IFMT) && a.st_rdev == b.st_rdev;
	return same && (S_ISREG(a.st_mode) || S_ISFIFO(a.st_mode) || S_ISCHR(a.st_mode) || S_ISSOCK(a.st_mode)) &&
	       (fcntl(2, F_GETFL) & O_ACCMODE) == (fcntl(1, F_GETFL) & O_ACCMODE);
}

// outputs connects the program's standard output and error: by one pipe where the caller's are one file, so that what
// arrives there has the order in which it was written.
static int outputs(struct fx_exec *x, struct fx_short *e, struct relay *streams)
{
	if (stream(x, e, &streams[0], 1) < 0)
		return -1;
	if (e->kept[0].data || !one_file())
		return stream(x, e, &streams[1], 2);
	e->merged = 1;
	x->stdio[2] = x->stdio[1];
	streams[1] = (struct relay){.from = -1, .to = 2};
	return 0;
}

// keep_output sets addresses aside for as much as is kept. The kernel gives memory only for what comes.
static int keep_output(struct fx_short *e, size_t most)
{
	for (int i = 0; i < 2; i++) {
		void *p = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (most == 0 || p == MAP_FAILED)
			return -1;
		e->kept[i] = (struct fx_kept){.data = p, .limit = most};
	}
	return 0;
}

// relay_gone reports whether the sandbox's relay, if it has one, has ended.
static int relay_gone(const struct fx_limits *l, const struct fx_launch *la)
{
	int lock = la->relay ? openat(l->state, la->relay, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
	int gone = la->relay && (lock < 0 || flock(lock, LOCK_SH | LOCK_NB) == 0);
	close(lock);
	return gone;
}

// prepare makes ready all that can be before the exec has a number. It fails where Go is to do it.
static int prepare(struct fx_exec *x, struct fx_short *e, struct fx_launch *la, const struct fx_request *q, char **env)
{
	int root;
	if (fx_read_launch(x, la, q, env, &root) < 0 || !fx_events_plain(x->limits, la, q->argv[0], x->envp) ||
	    !fx_events_plain(x->limits, la, q->argv[0], env))
		return -1;
	if (q->json || q->result) {
		if (la->results[0].n == 0 || fx_has_secret(la, x->envp, NULL) || fx_has_secret(la, env, NULL) || (q->json && keep_output(e, (size_t)la->output) < 0))
			return -1;
		x->limits->measure = 1;
	}
	e->sealed = la->sealed.p;
	e->sealed_size = la->sealed.n;
	x->path = find_program(root, q->argv[0], fx_variable(x->envp, "PATH"));
	x->stdio[0] = fx_open_inside(root, "/dev/null", O_RDONLY); // not the host's: through that mount its owner could change its mode
	close(root);
	x->argv = q->argv;
	x->waiter = (int)syscall(SYS_pidfd_open, getpid(), 0);
	x->stacks = malloc(FX_STACKS);
	if (!x->path || x->waiter < 0 || !x->stacks || x->stdio[0] < 0)
		return -1;
	return fx_open_result(e, la, q);
}

// hand_over keeps what Go needs to judge. The signals that were caught stay blocked: there is nobody left to pass them on to.
static void hand_over(struct fx_short *e, const struct fx_launch *la, const struct fx_request *q, char **env)
{
	struct fx_text sealed;
	if (q->ready && fx_read_complete(&sealed, q, env) == 0) {
		e->sealed = sealed.p;
		e->sealed_size = sealed.n;
	}
	int *absent = calloc(la->n_absent + 1, sizeof *absent);
	if (!absent)
		_exit(125); // no error could be printed
	for (size_t i = 0; i < la->n_absent; i++)
		absent[i] = la->absent[i].grant;
	e->absent = absent;
	e->n_absent = la->n_absent;
}

struct fx_short fx_short;

// short_exec returns where Go is to do the exec, or, where fx_short.ran is set, to judge it.
static void short_exec(struct fx_request *q, char **env)
{
	static struct relay streams[2];
	static struct fx_limits limits;
	static struct fx_feed feed = {.to = -1};
	struct fx_short *e = &fx_short;
	struct fx_launch la;
	struct fx_exec x;
	int status[2];
	memset(&x, 0, sizeof x);
	memset(&la, 0, sizeof la);
	x.limits = e->limits = &limits;
	x.asks = 1;
	limits.started_us = fx_now_us();
	if (prepare(&x, e, &la, q, env) < 0)
		return;
	struct signal_state was;
	limits.unused = 1; // until it has started: where it does not, Go takes the number
	if (outputs(&x, e, streams) < 0 || (q->input && fx_feed_open(&feed, &x) < 0) || pipe2(status, O_CLOEXEC) < 0 || fx_limits_open(&limits) < 0) {
		fx_discard_result(e);
		return;
	}
	x.status = status[1];
	int sigfd = x.signals = catch_signals(&was);
	fx_start(&x);
	if (x.step != FX_OK || fx_claim_sure() < 0) { // where the pool has ended the sandbox, the program may have been killed before it heard
		restore_signals(&was);
		close(x.listener);
		if (x.reaper_pidfd >= 0) {
			syscall(SYS_pidfd_send_signal, x.reaper_pidfd, SIGKILL, NULL, 0);
			waitid(P_PIDFD, (id_t)x.reaper_pidfd, NULL, WEXITED | __WALL);
		}
		fx_limits_close(&limits);
		fx_discard_result(e);
		return; // Go tries again, and reports the error
	}
	limits.unused = 0;
	e->launcher = limits.measure ? fx_high_water() : fx_own_most();
	fx_limits_started(&limits);
	fx_event_started(e, &la, q->argv[0]);
	e->relay_gone = relay_gone(&limits, &la);
	close(status[1]);
	close(x.stdio[0]);
	close(x.stdio[1]);
	if (x.stdio[2] != x.stdio[1])
		close(x.stdio[2]);
	follow(&x, e, streams, &feed, status[0], sigfd);
	fx_answer(e, &la, q);
	hand_over(e, &la, q, env);
}

int fx_closed_streams;
__attribute__((constructor)) static void client(void)
{
	char **argv = fx_argv, **env = environ;
	const char *off = fx_variable(env, "SANDBOXRUN_PLAIN_EXEC");
	struct fx_request q;
	for (int fd = 0; fd < 3; fd++) // the Go runtime will open /dev/null there
		fx_closed_streams |= (fcntl(fd, F_GETFD) < 0) << fd;
	if (fx_argc >= 3 && !fx_closed_streams && !(off && strcmp(off, "off") == 0)) {
		if (strcmp(argv[1], "exec") == 0 && fx_read_request(&q, argv + 2, env) == 0)
			short_exec(&q, env);
		else if (strcmp(argv[1], "run") == 0 && fx_read_run(&q, argv + 2, env) == 0 && fx_claim_sandbox(&q, env) == 0) {
			short_exec(&q, env);
			if (fx_claim_sure() < 0)
				fx_drop_claim();
		} else if (strcmp(argv[1], "create") == 0 && fx_read_create(&q, argv + 2) == 0 && fx_claim_created(&q, env) == 0)
			_exit(0);
		else if (strcmp(argv[1], "delete") == 0 && fx_read_delete(&q, argv + 2) == 0 && fx_delete_by_pool(&q, env) == 0)
			_exit(0);
	}
	fx_need_addresses();
}
