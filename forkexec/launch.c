// Reads what container.seal has given process 1 of a sandbox, for client.c, and makes an exec of it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "client.h"

#define MAX_LAUNCH (4 << 20)

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

const char *fx_variable(char *const *env, const char *name)
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
	const char *dir = fx_variable(env, "SANDBOXRUN_ROOT"), *run = fx_variable(env, "XDG_RUNTIME_DIR");
	struct stat st;
	int n;
	if (dir && *dir)
		n = snprintf(buf, size, "%s", dir);
	else if (geteuid() == 0 && access("/run", W_OK) == 0)
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

// own_child is container.ownChild: no program in a sandbox can be process 1 of one, since its user namespace is further down.
static int own_child(int proc)
{
	struct stat parent, own;
	int ns = openat(proc, "ns/user", O_RDONLY | O_CLOEXEC);
	int fd = ns < 0 ? -1 : ioctl(ns, NS_GET_PARENT);
	int ok = fd >= 0 && fstat(fd, &parent) == 0 && stat("/proc/self/ns/user", &own) == 0 && parent.st_dev == own.st_dev &&
		 parent.st_ino == own.st_ino;
	close(fd);
	close(ns);
	return ok;
}

// open_sealed is ReadSealed: what process 1 holds of its sandbox, which nobody can have changed.
static int open_sealed(int proc, struct reader *r)
{
	char name[16];
	struct stat st;
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	snprintf(name, sizeof name, "fd/%d", FX_SEALED_FD);
	int fd = own_child(proc) ? openat(proc, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
	int has = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
	if (has < 0 || (has & seals) != seals || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > FX_SEALED_MAX)
		return -1;
	const char *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (data == MAP_FAILED)
		return -1;
	*r = (struct reader){data, data + st.st_size, 0};
	return 0;
}

// open_init opens the sandbox's process 1, and its root, and makes sure that its pid has not been given away.
static int open_init(int pid, uint64_t start, int *root, struct reader *sealed)
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
	int ok = *root >= 0 && open_sealed(proc, sealed) == 0;
	close(fd);
	close(proc);
	return ok ? pidfd : -1;
}

// find_init follows what the sandbox's directory says of its process 1, and believes nothing of it: that process itself has to
// say that it is process 1 of this sandbox. r is what it holds for a plain exec.
static int find_init(const char *id, char *const *env, struct reader *r, int *dir, int *root)
{
	static char path[4096];
	struct stat st;
	uint64_t where[2];
	size_t n;
	int store, fd;
	if (store_path(path, sizeof path, env) < 0 || (store = open_private(AT_FDCWD, path, O_PATH | O_DIRECTORY)) < 0 ||
	    (*dir = open_private(store, id, O_PATH | O_DIRECTORY)) < 0 ||
	    (fd = open_private(*dir, "init", O_RDONLY | O_NONBLOCK | O_NOCTTY)) < 0)
		return -1;
	int ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && read(fd, where, sizeof where) == sizeof where &&
		 fstat(store, &st) == 0;
	close(fd);
	close(store);
	int pidfd = ok ? open_init((int)where[0], where[1], root, r) : -1;
	if (pidfd < 0 || number(r) != FX_SEALED_MAGIC || number(r) != st.st_dev || number(r) != st.st_ino || strcmp(text(r), id) != 0)
		return -1;
	const char *launch = bytes(r, &n);
	if (r->bad || n == 0)
		return -1;
	*r = (struct reader){launch, launch + n, 0};
	return pidfd;
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

int fx_open_inside(int root, const char *name, uint64_t flags)
{
	if (!(flags & O_PATH)) // whatever a program has put there, it neither blocks nor becomes our controlling terminal
		flags |= O_NOCTTY | O_NONBLOCK;
	struct { uint64_t flags, mode, resolve; } how = {flags | O_CLOEXEC, 0, 0x10 | 0x02}; // IN_ROOT, NO_MAGICLINKS
	return (int)syscall(SYS_openat2, root, name, &how, sizeof how);
}

// masked says whether all masks are where they were put: the kernel drops one when somebody outside replaces what is
// under it.
static int masked(struct reader *r, int root)
{
	for (uint64_t n = number(r); n > 0 && !r->bad; n--) {
		const char *path = text(r);
		uint64_t dev = number(r), ino = number(r);
		struct stat st;
		int fd = fx_open_inside(root, path, O_PATH | O_NOFOLLOW);
		int same = fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
		close(fd);
		if (r->bad || !same)
			return 0;
	}
	return !r->bad;
}

// granted says whether the writable directories that the sandbox shows are those of the host: container/granted.go.
static int granted(struct reader *r)
{
	for (uint64_t n = number(r); n > 0 && !r->bad; n--) {
		const char *path = text(r);
		uint64_t dev = number(r), ino = number(r);
		struct stat st;
		if (r->bad || lstat(path, &st) < 0 || st.st_dev != dev || st.st_ino != ino)
			return 0;
	}
	return !r->bad;
}

static int read_limits(struct fx_exec *x, struct reader *r)
{
	struct fx_limits *l = x->limits;
	int64_t *const first[] = {&l->wall_us, &l->idle_us, &l->cpu_us, &l->memory, &l->pids, &l->sandbox_pids};
	for (size_t i = 0; i < sizeof first / sizeof *first; i++)
		*first[i] = (int64_t)number(r);
	l->watched = (unsigned)number(r);
	l->nproc = number(r);
	l->cpus = (unsigned)number(r);
	l->tmpfs = strings(r, &l->n_tmpfs);
	l->n_cgroups = number(r);
	if (r->bad || l->n_cgroups > FX_CGROUPS)
		return -1;
	for (size_t i = 0; i < l->n_cgroups; i++) {
		l->cgroups[i].parent = text(r);
		l->cgroups[i].unified = (int)number(r);
		l->cgroups[i].controllers = (unsigned)number(r);
	}
	x->n_rlimits = number(r);
	if (r->bad || x->n_rlimits > MAX_LAUNCH / 8)
		return -1;
	struct fx_rlimit *limits = calloc(x->n_rlimits + 1, sizeof *limits);
	for (size_t i = 0; limits && i < x->n_rlimits; i++) {
		limits[i].resource = (int)number(r);
		limits[i].cur = number(r);
		limits[i].max = number(r);
	}
	x->rlimits = limits;
	static unsigned long mask[FX_CPUS / (8 * sizeof(long))];
	size_t n;
	const char *cpus = bytes(r, &n);
	if (n == sizeof mask)
		x->cpus = memcpy(mask, cpus, n);
	return r->bad || !limits || (n && !x->cpus) ? -1 : 0;
}

// read_exec turns it into an exec. What is not there stays as the caller has set it.
static int read_exec(struct fx_exec *x, struct reader *r, char *const *env, int root)
{
	if (number(r) != FX_LAUNCH_MAGIC)
		return -1;
	x->namespaces = (int)number(r);
	x->drop_groups = (int)number(r);
	x->uid = (int)number(r);
	x->gid = (int)number(r);
	x->umask = (unsigned)number(r);
	x->uid_map = text(r);
	x->gid_map = text(r);
	x->dir = text(r);
	if (!masked(r, root) || !granted(r))
		return -1;
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
	if (read_limits(x, r) < 0)
		return -1;
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
	return x->stub < 0 ? -1 : 0;
}

int fx_read_launch(struct fx_exec *x, const char *id, char *const *env, int *root)
{
	struct reader r;
	if (!valid_id(id) || (x->target = find_init(id, env, &r, &x->limits->state, root)) < 0)
		return -1;
	return read_exec(x, &r, env, *root);
}
