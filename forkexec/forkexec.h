// One exec in a sandbox, as the C side sees it. forkexec.go fills these in; every pointer is to C memory.
#ifndef FORKEXEC_H
#define FORKEXEC_H

#include <stddef.h>
#include <stdint.h>
#include <linux/filter.h>

struct fx_mount { // the arguments of one mount(2)
	const char *source, *target, *fstype, *data;
	unsigned long flags;
};

struct fx_rlimit {
	int resource;
	uint64_t cur, max;
};

// Which step failed, for the error message. forkexec.go has the names.
enum fx_step {
	FX_OK, FX_SPAWN, FX_GROUPS, FX_JOIN, FX_BECOME, FX_NAMESPACES, FX_MOUNT, FX_IDS, FX_USERNS, FX_MAP, FX_SESSION,
	FX_TTY, FX_STDIO, FX_RLIMIT, FX_PRIVILEGE, FX_DIR, FX_SECCOMP, FX_EXECVE, FX_REAPER,
};

struct fx_exec {
	int target;             // pidfd of the sandbox's process 1
	int namespaces;         // CLONE_NEW* flags of what is joined
	int drop_groups;        // the caller may, so must, drop its supplementary groups
	const struct fx_mount *mounts;
	size_t n_mounts;
	int uid, gid;           // numbers of the program in the sandbox's user namespace
	const char *uid_map, *gid_map;
	const char *path;
	char *const *argv;
	char *const *envp;
	const char *dir;
	int stdio[3];
	int ctty;               // stdio[0] becomes the controlling terminal
	unsigned umask;
	const struct fx_rlimit *rlimits;
	size_t n_rlimits;
	struct sock_fprog filter;
	int stub;               // the stub's memfd
	int waiter;             // a pidfd whose end ends the exec, or -1
	int status;             // where the reaper writes struct fx_status
	char *stacks;           // FX_STACKS bytes

	// Results. The children share our memory until they exec, so that no pipe is needed to hear of their failures.
	volatile int step, err;
	volatile size_t index;  // which mount or limit
	volatile int reaper_pidfd, program_pidfd;
	volatile int helpers[2]; // pids of the two processes that led there, to be reaped by us
};

#define FX_STACK (16 * 1024) // signals are blocked and nothing here is deep
#define FX_STACKS (4 * FX_STACK)

struct fx_status { // what the reaper reports, in host byte order
	int32_t wait_status;
	uint32_t tasks;
	int64_t utime_us, stime_us, maxrss_kib, written_blocks;
};

void fx_start(struct fx_exec *x);

#define FX_LAUNCH_MAGIC 0x31786273u // "sbx1": the form of the launch file; see launch.go and client.c

// One step of building a sandbox's view.
enum fx_op_kind { FX_OP_MKDIR, FX_OP_SYMLINK, FX_OP_FILE, FX_OP_MOUNT, FX_OP_BIND, FX_OP_ATTR, FX_OP_MOVE, FX_OP_ROOT };

struct fx_op {
	int kind;
	int fd;                 // FX_OP_MOVE: a detached tree of mounts
	const char *source, *target, *fstype, *data;
	size_t size;            // FX_OP_FILE: of data
	unsigned long flags;    // mode, mount flags or MOUNT_ATTR_* to be set
};

struct fx_build {
	int target, namespaces; // as in fx_exec
	const struct fx_op *ops;
	size_t n_ops;
	char *stacks;
	volatile int step, err;
	volatile size_t index;
};

void fx_build(struct fx_build *b);

// The kernel's, which older libc headers lack.
struct fx_mount_attr { uint64_t attr_set, attr_clr, propagation, userns_fd; };
#define FX_MOVE_MOUNT_F_EMPTY_PATH 4

enum fx_probe_step {
	FX_PROBE_OK, FX_PROBE_USERNS, FX_PROBE_MAP, FX_PROBE_NAMESPACES, FX_PROBE_MOUNT, FX_PROBE_NETWORK, FX_PROBE_PROC,
};

int fx_probe(int uid, int gid, char *stacks, int *err);

const void *fx_stub_code(void);
unsigned long fx_stub_size(void);
unsigned long fx_stub_entry(void);

#endif
