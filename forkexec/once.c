// Loads the filter that lets exactly one execve pass: the launcher's own.
//
// A seccomp filter has no memory, so it cannot count. It sees all six argument registers of a call, and execve takes three. So the
// launcher draws a key of 192 random bits, the filter passes only an execve that has the key in the other three, and the kernel
// clears every register when it starts the program. The program never has the key: it was in the launcher's memory, which execve
// has left, and no program without CAP_SYS_ADMIN of the machine can read a filter.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "forkexec.h"

#define WORDS (sizeof(((struct fx_exec *)0)->key) / 4) // of 32 bits, as a filter reads them
#define FIRST_UNUSED 3 // argument of execve

// word_at is where a filter finds the i-th 32-bit word of the unused arguments.
static uint32_t word_at(size_t i)
{
	return (uint32_t)(offsetof(struct seccomp_data, args) + FIRST_UNUSED * sizeof(uint64_t) + i * sizeof(uint32_t));
}

static struct sock_filter load(uint32_t at) { return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at); }

static struct sock_filter equal(uint32_t value, size_t yes, size_t no)
{
	return (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, (uint8_t)yes, (uint8_t)no);
}

static struct sock_filter answer(uint32_t with) { return (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, with); }

// Other architectures' calls end the process by the sandbox's own filter, which is loaded too; the strictest answer counts.
int fx_load_once(struct fx_exec *x)
{
	if (syscall(SYS_getrandom, x->key, sizeof x->key, 0) != sizeof x->key) {
		errno = EIO;
		return -1;
	}
	const uint32_t *word = (const uint32_t *)x->key;
	struct sock_filter f[4 + 2 * WORDS + 2];
	size_t n = 0;
	f[n++] = load(offsetof(struct seccomp_data, nr));
	f[n++] = equal(SYS_execveat, 2 + 2 * WORDS + 1, 0);
	f[n++] = equal(SYS_execve, 1, 0);
	f[n++] = answer(SECCOMP_RET_ALLOW);
	for (size_t i = 0; i < WORDS; i++) {
		f[n++] = load(word_at(i));
		f[n] = equal(word[i], 0, 2 * (WORDS - i) - 1);
		n++;
	}
	f[n++] = answer(SECCOMP_RET_ALLOW);
	f[n++] = answer(SECCOMP_RET_ERRNO | EPERM);
	struct sock_fprog p = {(unsigned short)n, f};
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p);
}
