// Finds process 1 of a sandbox, and what container.seal has given it, for client.c.
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
#include "reader.h"
#include "short.h"

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

// find_init starts from the pid in the sandbox's directory, which is not trusted: that process itself has to
// say that it is process 1 of this sandbox. r is what it holds for a plain exec.
static int find_init(const struct fx_request *q, char *const *env, struct fx_launch *la, struct reader *r, int *dir, int *root)
{
	const char *id = q->id, *name;
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
	if (pidfd < 0)
		return -1;
	la->sealed = (struct fx_text){r->p, (size_t)(r->end - r->p)};
	if (number(r) != FX_SEALED_MAGIC || (la->store_dev = number(r)) != st.st_dev || (la->store_ino = number(r)) != st.st_ino)
		return -1;
	name = text(r);
	if (strcmp(name, id) != 0 && (!q->ready || strcmp(name, q->ready) != 0))
		return -1;
	const char *launch = bytes(r, &n);
	if (r->bad || n == 0)
		return -1;
	*r = (struct reader){launch, launch + n, 0};
	return pidfd;
}

int fx_pool_dir(char *const *env)
{
	static char path[4096];
	char name[160];
	const char *pool = fx_variable(env, "SANDBOXRUN_POOL");
	if (!pool || !valid_id(pool) || store_path(path, sizeof path, env) < 0)
		return -1;
	snprintf(name, sizeof name, ".pool-%s", pool);
	int store = open_private(AT_FDCWD, path, O_PATH | O_DIRECTORY), dir = open_private(store, name, O_PATH | O_DIRECTORY);
	close(store);
	return dir;
}

int fx_read_launch(struct fx_exec *x, struct fx_launch *la, const struct fx_request *q, char *const *env, int *root)
{
	struct reader r;
	if (!valid_id(q->id) || (x->target = find_init(q, env, la, &r, &x->limits->state, root)) < 0)
		return -1;
	return fx_read_plan(x, la, &r, q, env, *root);
}

int fx_read_complete(struct fx_text *sealed, const struct fx_request *q, char *const *env)
{
	struct fx_request whole = *q;
	struct fx_launch la;
	struct reader r;
	int dir = -1, root = -1;
	whole.ready = NULL;
	int init = find_init(&whole, env, &la, &r, &dir, &root);
	if (init < 0)
		return -1;
	*sealed = la.sealed;
	close(init);
	close(dir);
	close(root);
	return 0;
}
