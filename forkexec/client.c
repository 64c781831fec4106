// `sandboxrun exec ID CMD ARG...`, the command that is run most, before the Go runtime starts: that start, with all that
// libcontainer brings, takes longer than the whole exec.
//
// Only the plain form is answered here, and only where the sandbox's launch file says all there is to know: no flag, no
// limit that Go has to look after, no path to look out for. In every other case, and whenever anything at all is not as expected, this
// returns before it has done anything, and Go does the same at leisure, with the error messages. Nothing here may decide
// differently from container/exec.go; integration tests run both ways (SANDBOXRUN_PLAIN_EXEC=off turns this one off).
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "client.h"

#define CHUNK 4096 // a pipe that polls as writable takes so much without blocking
#define GROUP (1u << 2) // PIDFD_SIGNAL_PROCESS_GROUP

// loads_plainly says whether a program is an ELF file whose loader, if it has one, is named by an absolute path and is
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

struct relay { int from, to, err; size_t have, done; char data[CHUNK]; };

// move passes on what there is. The end of the stream, and of whoever reads it, closes our end, so that the program
// hears of it as it would without us.
static void relay_move(struct relay *s, short in, short out, int64_t *output_us)
{
	if (s->have == s->done && in) {
		ssize_t n = read(s->from, s->data, sizeof s->data);
		s->have = n > 0 ? (size_t)n : 0;
		s->done = 0;
		*output_us = fx_now_us();
		if (n == 0 || (n < 0 && errno != EINTR))
			close(s->from), s->from = -1;
	} else if (s->have > s->done && out) {
		ssize_t n = write(s->to, s->data + s->done, s->have - s->done);
		if (n > 0)
			s->done += (size_t)n;
		else if (n < 0 && errno != EINTR && errno != EAGAIN) {
			s->err = errno;
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

// lost_output is cli.program.lostOutput: output that the caller did not get is no success.
static int lost_output(struct relay *streams, int status)
{
	static const char *const names[] = {"output", "error"};
	if (close(1) < 0 && !streams[0].err) // some file systems say only then that the disk is full
		streams[0].err = errno;
	for (int i = 0; i < 2; i++) {
		int err = streams[i].err;
		if (!err)
			continue;
		if (err != EPIPE) // of a closed pipe nobody wants to hear
			dprintf(2, "sandboxrun: output_failed: write standard %s: %s\n", names[i], strerrordesc_np(err));
		if (status == 0)
			status = err == EPIPE ? 128 + SIGPIPE : 125;
	}
	return status;
}

// follow passes output and signals on until the program has ended and all of its output has come.
static int follow(struct fx_exec *x, struct relay *streams, int status, int sigfd)
{
	struct fx_status st;
	struct fx_limits *l = x->limits;
	int64_t output_us = 0;
	ssize_t got = -1;
	while (got < 0 || streams[0].from >= 0 || streams[1].from >= 0) {
		int64_t again = got < 0 ? look_after(x, output_us) : 0;
		struct pollfd p[7] = {{got < 0 ? status : -1, POLLIN, 0}, {sigfd, POLLIN, 0}};
		p[6] = (struct pollfd){got < 0 && l->thread && !l->ended_us ? l->wake : -1, POLLIN, 0};
		for (int i = 0; i < 2; i++) {
			struct relay *s = &streams[i];
			int idle = s->have == s->done;
			p[2 + i] = (struct pollfd){idle ? s->from : -1, POLLIN, 0};
			p[4 + i] = (struct pollfd){idle || s->from < 0 ? -1 : s->to, POLLOUT, 0};
		}
		if (poll(p, 7, again > 0 ? (int)((again + 999) / 1000) : -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents)
			got = read(status, &st, sizeof st);
		if (p[1].revents)
			pass_signal(sigfd, x, &output_us);
		for (int i = 0; i < 2; i++)
			relay_move(&streams[i], p[2 + i].revents, p[4 + i].revents, &output_us);
	}
	while (waitid(P_PIDFD, (id_t)x->reaper_pidfd, NULL, WEXITED | __WALL) < 0 && errno == EINTR)
		;
	double seconds = (double)(fx_now_us() - l->started_us) / 1e6;
	if (x->cancelled) { // it had not been executed yet
		got = sizeof st;
		st = (struct fx_status){.wait_status = x->cancelled};
	}
	fx_limits_close(l);
	struct fx_verdict v;
	fx_judge(x, got == sizeof st ? &st : NULL, seconds, &v);
	fx_event_ended(l, got == sizeof st ? &st : NULL, &v, seconds);
	if (v.message[0])
		dprintf(2, "sandboxrun: %s: %s\n", v.outcome, v.message);
	return lost_output(streams, v.status);
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

static int stream(struct fx_exec *x, struct relay *s, int to)
{
	int p[2];
	if (pipe2(p, O_CLOEXEC) < 0 || (x->uid != 0 && fchown(p[1], (uid_t)x->uid, (gid_t)x->gid) < 0))
		return -1;
	*s = (struct relay){.from = p[0], .to = to};
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
static int outputs(struct fx_exec *x, struct relay *streams)
{
	if (stream(x, &streams[0], 1) < 0)
		return -1;
	if (!one_file())
		return stream(x, &streams[1], 2);
	x->stdio[2] = x->stdio[1];
	streams[1] = (struct relay){.from = -1, .to = 2};
	return 0;
}

static void plain_exec(char **argv, char **env)
{
	static struct relay streams[2];
	static struct fx_limits limits;
	struct fx_exec x;
	int root, status[2];
	memset(&x, 0, sizeof x);
	x.limits = &limits;
	x.listener = -1;
	limits.started_us = fx_now_us();
	if (fx_read_launch(&x, argv[0], env, &root) < 0)
		return;
	argv += argv[1] && strcmp(argv[1], "--") == 0 ? 2 : 1;
	if (!argv[0] || !fx_events_plain(&limits, argv[0], x.envp))
		return;
	x.path = find_program(root, argv[0], fx_variable(x.envp, "PATH"));
	x.stdio[0] = fx_open_inside(root, "/dev/null", O_RDONLY); // not the host's: through that mount its owner could change its mode
	close(root);
	x.argv = argv;
	x.waiter = (int)syscall(SYS_pidfd_open, getpid(), 0);
	x.stacks = malloc(FX_STACKS);
	if (!x.path || x.waiter < 0 || !x.stacks || x.stdio[0] < 0 || pipe2(status, O_CLOEXEC) < 0 ||
	    outputs(&x, streams) < 0)
		return;
	x.status = status[1];
	struct signal_state was;
	if (fx_limits_open(&limits) < 0)
		return;
	int sigfd = x.signals = catch_signals(&was);
	fx_start(&x);
	if (x.step != FX_OK) {
		restore_signals(&was);
		if (x.reaper_pidfd >= 0) {
			syscall(SYS_pidfd_send_signal, x.reaper_pidfd, SIGKILL, NULL, 0);
			waitid(P_PIDFD, (id_t)x.reaper_pidfd, NULL, WEXITED | __WALL);
		}
		fx_limits_close(&limits);
		return; // Go tries again, and says what is wrong
	}
	fx_limits_started(&limits);
	fx_event_started(&limits, argv[0]);
	close(status[1]);
	close(x.stdio[1]);
	if (x.stdio[2] != x.stdio[1])
		close(x.stdio[2]);
	_exit(follow(&x, streams, status[0], sigfd));
}

int fx_closed_streams;

__attribute__((constructor)) static void client(int argc, char **argv, char **env)
{
	const char *off = fx_variable(env, "SANDBOXRUN_PLAIN_EXEC");
	for (int fd = 0; fd < 3; fd++) // the Go runtime will open /dev/null there
		fx_closed_streams |= (fcntl(fd, F_GETFD) < 0) << fd;
	if (argc >= 4 && strcmp(argv[1], "exec") == 0 && !fx_closed_streams && (argv[3][0] != '-' || strcmp(argv[3], "--") == 0) &&
	    !(off && strcmp(off, "off") == 0))
		plain_exec(argv + 2, env);
	fx_need_addresses();
}
