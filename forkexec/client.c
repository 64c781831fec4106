// `sandboxrun exec ID CMD ARG...`, the command that is run most, before the Go runtime starts: that start, with all that
// libcontainer brings, takes longer than the whole exec.
//
// Only the plain form is answered here, and only where the sandbox's launch file says all there is to know: no flag, no
// time limit, no path to look out for. In every other case, and whenever anything at all is not as expected, this
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "forkexec.h"

#define MAX_LAUNCH (1 << 20)
#define CHUNK 4096 // a pipe that polls as writable takes so much without blocking
#define GROUP (1u << 2) // PIDFD_SIGNAL_PROCESS_GROUP

struct reader { const char *p, *end; int bad; };

static uint64_t number(struct reader *r)
{
	uint64_t n = 0;
	if (r->end - r->p < (ptrdiff_t)sizeof n)
		r->bad = 1;
	else {
		memcpy(&n, r->p, sizeof n);
		r->p += sizeof n;
	}
	return n;
}

// bytes gives the next item and its length, which does not count the zero byte behind it.
static const char *bytes(struct reader *r, size_t *n)
{
	*n = number(r);
	if (r->bad || *n >= (size_t)(r->end - r->p) || r->p[*n] != 0) {
		r->bad = 1;
		*n = 0;
		return "";
	}
	const char *s = r->p;
	r->p += *n + 1;
	return s;
}

static const char *text(struct reader *r)
{
	size_t n;
	return bytes(r, &n);
}

static const char *optional(struct reader *r)
{
	const char *s = text(r);
	return *s ? s : NULL;
}

// strings reads a list that ends with NULL.
static const char **strings(struct reader *r, size_t *count)
{
	size_t n = number(r);
	if (r->bad || n > MAX_LAUNCH / 8)
		return r->bad = 1, NULL;
	const char **list = calloc(n + 1, sizeof *list);
	for (size_t i = 0; list && i < n; i++)
		list[i] = text(r);
	*count = n;
	if (!list)
		r->bad = 1;
	return list;
}

static const char *variable(char *const *env, const char *name)
{
	size_t n = strlen(name);
	for (; *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

// As container.StorePath. The buffer's size bounds everything that is put together in it.
static int store_path(char *buf, size_t size, char *const *env)
{
	const char *dir = variable(env, "SANDBOXRUN_ROOT"), *run = variable(env, "XDG_RUNTIME_DIR");
	struct stat st;
	int n;
	if (dir && *dir)
		n = snprintf(buf, size, "%s", dir);
	else if (geteuid() == 0)
		n = snprintf(buf, size, "/run/sandboxrun");
	else if (run && *run && lstat(run, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid())
		n = snprintf(buf, size, "%s/sandboxrun", run);
	else
		n = snprintf(buf, size, "/tmp/sandboxrun-%u", geteuid());
	return n > 0 && (size_t)n < size ? 0 : -1;
}

static int valid_id(const char *id)
{
	size_t n = strlen(id);
	if (n == 0 || n > 128 || strchr("_.-", id[0]))
		return 0;
	for (; *id; id++)
		if (!((*id >= 'a' && *id <= 'z') || (*id >= 'A' && *id <= 'Z') || (*id >= '0' && *id <= '9') || strchr("_.-", *id)))
			return 0;
	return 1;
}

// open_private opens what must be the caller's own and nobody else's to write, and no link.
static int open_private(int dir, const char *name, int flags)
{
	struct stat st;
	int fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022))
		return -1;
	return fd;
}

static const char *read_launch(const char *id, char *const *env, size_t *size)
{
	static char path[4096];
	struct stat st;
	int store, dir, fd;
	if (store_path(path, sizeof path, env) < 0 || (store = open_private(AT_FDCWD, path, O_PATH | O_DIRECTORY)) < 0 ||
	    (dir = open_private(store, id, O_PATH | O_DIRECTORY)) < 0 || (fd = open_private(dir, "launch", O_RDONLY)) < 0)
		return NULL;
	if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > MAX_LAUNCH)
		return NULL;
	char *data = malloc((size_t)st.st_size);
	if (!data || read(fd, data, (size_t)st.st_size) != st.st_size)
		return NULL;
	close(fd);
	close(dir);
	close(store);
	*size = (size_t)st.st_size;
	return data;
}

// open_init opens the sandbox's process 1, and its root, and makes sure that its pid has not been given away.
static int open_init(int pid, uint64_t start, int *root)
{
	char name[64], stat[1024];
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return -1;
	snprintf(name, sizeof name, "/proc/%d", pid);
	int proc = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = openat(proc, "stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, stat, sizeof stat - 1);
	if (n <= 0)
		return -1;
	stat[n] = 0;
	char *p = strrchr(stat, ')'); // the name before it may hold anything
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	struct pollfd ended = {pidfd, POLLIN, 0};
	if (!p || strtoull(p + 1, NULL, 10) != start || poll(&ended, 1, 0) != 0)
		return -1;
	*root = openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	close(fd);
	close(proc);
	return *root < 0 ? -1 : pidfd;
}

static int open_inside(int root, const char *name, uint64_t flags)
{
	struct { uint64_t flags, mode, resolve; } how = {flags | O_CLOEXEC, 0, 0x10 | 0x02}; // IN_ROOT, NO_MAGICLINKS
	return (int)syscall(SYS_openat2, root, name, &how, sizeof how);
}

// loads_plainly says whether a program is an ELF file whose loader, if it has one, is named by an absolute path and is
// there. Scripts and everything odd are left to Go.
static int loads_plainly(int root, const char *name)
{
	static char head[4096];
	char interp[256];
	int fd = open_inside(root, name, O_RDONLY | O_NONBLOCK);
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
		int loader = ok ? open_inside(root, interp, O_PATH) : -1;
		ok = loader >= 0;
		close(loader);
	}
	close(fd);
	return ok;
}

static int executable(int root, const char *name)
{
	struct stat st;
	int fd = open_inside(root, name, O_PATH);
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

// matches is spec.matches for one star at most; *odd tells that there are more.
static int matches(const char *pattern, const char *name, size_t n, int *odd)
{
	const char *star = strchr(pattern, '*');
	if (!star)
		return strlen(pattern) == n && memcmp(pattern, name, n) == 0;
	size_t before = (size_t)(star - pattern), after = strlen(star + 1);
	*odd |= strchr(star + 1, '*') != NULL;
	return n >= before + after && memcmp(pattern, name, before) == 0 && memcmp(star + 1, name + n - after, after) == 0;
}

static size_t name_length(const char *kv) { return (size_t)(strchrnul(kv, '=') - kv); }

static void put(const char **env, size_t *n, const char *kv)
{
	size_t len = name_length(kv);
	for (size_t i = 0; i < *n; i++)
		if (strncmp(env[i], kv, len + 1) == 0) {
			env[i] = kv;
			return;
		}
	env[(*n)++] = kv;
}

// environment is spec.Exec.Environ: what every program has, then what the policy takes from the caller, then what it sets.
static const char **environment(struct reader *r, char *const *caller)
{
	size_t n_base, n_allow, n_set, n_caller = 0, n = 0;
	const char **base = strings(r, &n_base), **allow = strings(r, &n_allow), **set = strings(r, &n_set);
	while (caller[n_caller])
		n_caller++;
	const char **env = r->bad ? NULL : calloc(n_base + n_caller + n_set + 1, sizeof *env);
	if (!env)
		return NULL;
	int odd = 0;
	for (size_t i = 0; i < n_base; i++)
		put(env, &n, base[i]);
	for (size_t i = 0; i < n_caller; i++)
		for (size_t a = 0; a < n_allow; a++)
			if (strchr(caller[i], '=') && matches(allow[a], caller[i], name_length(caller[i]), &odd)) {
				put(env, &n, caller[i]);
				break;
			}
	for (size_t i = 0; i < n_set; i++)
		put(env, &n, set[i]);
	return odd ? NULL : env;
}

static int make_stub(const char *elf, size_t n)
{
	int fd = memfd_create("sandboxrun", MFD_CLOEXEC | MFD_ALLOW_SEALING | 0x10 /* MFD_EXEC */);
	if (fd < 0)
		fd = memfd_create("sandboxrun", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || write(fd, elf, n) != (ssize_t)n || fchmod(fd, 0555) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -1;
	return fd;
}

// read_exec turns the launch file into an exec. What is not there stays as the caller has set it.
static int read_exec(struct fx_exec *x, struct reader *r, char *const *env, int *root)
{
	if (number(r) != FX_LAUNCH_MAGIC)
		return -1;
	int pid = (int)number(r);
	uint64_t start = number(r);
	x->namespaces = (int)number(r);
	x->drop_groups = (int)number(r);
	x->uid = (int)number(r);
	x->gid = (int)number(r);
	x->umask = (unsigned)number(r);
	x->uid_map = text(r);
	x->gid_map = text(r);
	x->dir = text(r);
	x->n_mounts = number(r);
	if (r->bad || x->n_mounts > MAX_LAUNCH / 8)
		return -1;
	struct fx_mount *m = calloc(x->n_mounts + 1, sizeof *m);
	for (size_t i = 0; m && i < x->n_mounts; i++) {
		m[i].flags = number(r);
		m[i].source = optional(r);
		m[i].target = text(r);
		m[i].fstype = optional(r);
		m[i].data = optional(r);
	}
	x->mounts = m;
	x->envp = (char *const *)environment(r, env);
	size_t n_filter, n_stub;
	const char *filter = bytes(r, &n_filter), *stub = bytes(r, &n_stub);
	if (r->bad || !m || !x->envp || n_filter == 0 || n_filter % sizeof(struct sock_filter))
		return -1;
	x->filter.len = (unsigned short)(n_filter / sizeof(struct sock_filter));
	x->filter.filter = malloc(n_filter);
	if (!x->filter.filter)
		return -1;
	memcpy(x->filter.filter, filter, n_filter);
	x->stub = make_stub(stub, n_stub);
	x->target = open_init(pid, start, root);
	return x->stub < 0 || x->target < 0 ? -1 : 0;
}

struct relay { int from, to; size_t have, done; char data[CHUNK]; };

// move passes on what there is. The end of the stream, and of whoever reads it, closes our end, so that the program
// hears of it as it would without us.
static void relay_move(struct relay *s, short in, short out)
{
	if (s->have == s->done && in) {
		ssize_t n = read(s->from, s->data, sizeof s->data);
		s->have = n > 0 ? (size_t)n : 0;
		s->done = 0;
		if (n == 0 || (n < 0 && errno != EINTR))
			close(s->from), s->from = -1;
	} else if (s->have > s->done && out) {
		ssize_t n = write(s->to, s->data + s->done, s->have - s->done);
		if (n > 0)
			s->done += (size_t)n;
		else if (n < 0 && errno != EINTR && errno != EAGAIN)
			close(s->from), s->from = -1, s->have = s->done = 0;
	}
}

static void pass_signal(int sigfd, int program)
{
	struct signalfd_siginfo info;
	if (read(sigfd, &info, sizeof info) != sizeof info)
		return;
	int sig = (int)info.ssi_signo, group = sig == SIGINT || sig == SIGQUIT;
	if (syscall(SYS_pidfd_send_signal, program, sig, NULL, group ? GROUP : 0) < 0 && errno == EINVAL)
		syscall(SYS_pidfd_send_signal, program, sig, NULL, 0);
}

// follow passes output and signals on until the program has ended and all of its output has come.
static int follow(struct fx_exec *x, struct relay *streams, int status, int sigfd)
{
	struct fx_status st;
	ssize_t got = -1;
	while (got < 0 || streams[0].from >= 0 || streams[1].from >= 0) {
		struct pollfd p[6] = {{got < 0 ? status : -1, POLLIN, 0}, {sigfd, POLLIN, 0}};
		for (int i = 0; i < 2; i++) {
			struct relay *s = &streams[i];
			int idle = s->have == s->done;
			p[2 + i] = (struct pollfd){idle ? s->from : -1, POLLIN, 0};
			p[4 + i] = (struct pollfd){idle || s->from < 0 ? -1 : s->to, POLLOUT, 0};
		}
		if (poll(p, 6, -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents)
			got = read(status, &st, sizeof st);
		if (p[1].revents)
			pass_signal(sigfd, x->program_pidfd);
		for (int i = 0; i < 2; i++)
			relay_move(&streams[i], p[2 + i].revents, p[4 + i].revents);
	}
	while (waitid(P_PIDFD, (id_t)x->reaper_pidfd, NULL, WEXITED | __WALL) < 0 && errno == EINTR)
		;
	if (got != sizeof st) {
		dprintf(2, "sandboxrun: sandbox_lost: the sandbox ended under the program\n");
		return 125;
	}
	return WIFSIGNALED(st.wait_status) ? 128 + WTERMSIG(st.wait_status) : WEXITSTATUS(st.wait_status);
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
	static const int list[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT};
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
	return signalfd(-1, &set, SFD_CLOEXEC);
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

static void plain_exec(char **argv, char **env)
{
	static struct relay streams[2];
	struct fx_exec x;
	size_t size;
	int root, status[2];
	memset(&x, 0, sizeof x);

	const char *data = read_launch(argv[0], env, &size);
	struct reader r = {data, data + (data ? size : 0), 0};
	if (!data || read_exec(&x, &r, env, &root) < 0)
		return;
	argv += argv[1] && strcmp(argv[1], "--") == 0 ? 2 : 1;
	if (!argv[0])
		return;
	x.path = find_program(root, argv[0], variable(x.envp, "PATH"));
	close(root);
	x.argv = argv;
	x.waiter = (int)syscall(SYS_pidfd_open, getpid(), 0);
	x.stacks = malloc(FX_STACKS);
	x.stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (!x.path || x.waiter < 0 || !x.stacks || x.stdio[0] < 0 || pipe2(status, O_CLOEXEC) < 0 ||
	    stream(&x, &streams[0], 1) < 0 || stream(&x, &streams[1], 2) < 0)
		return;
	x.status = status[1];
	struct signal_state was;
	int sigfd = catch_signals(&was);
	fx_start(&x);
	if (x.step != FX_OK) {
		restore_signals(&was);
		if (x.reaper_pidfd >= 0) {
			syscall(SYS_pidfd_send_signal, x.reaper_pidfd, SIGKILL, NULL, 0);
			waitid(P_PIDFD, (id_t)x.reaper_pidfd, NULL, WEXITED | __WALL);
		}
		return; // Go tries again, and says what is wrong
	}
	close(status[1]);
	close(x.stdio[1]);
	close(x.stdio[2]);
	_exit(follow(&x, streams, status[0], sigfd));
}

static int std_streams_are_open(void)
{
	return fcntl(0, F_GETFD) >= 0 && fcntl(1, F_GETFD) >= 0 && fcntl(2, F_GETFD) >= 0;
}

__attribute__((constructor)) static void client(int argc, char **argv, char **env)
{
	const char *off = variable(env, "SANDBOXRUN_PLAIN_EXEC");
	if (argc < 4 || strcmp(argv[1], "exec") != 0 || !valid_id(argv[2]) || !std_streams_are_open() ||
	    (off && strcmp(off, "off") == 0))
		return;
	plain_exec(argv + 2, env);
}
