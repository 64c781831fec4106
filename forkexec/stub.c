// The stub is the smallest process that can be process 1 of a PID namespace: it reaps, and ends with its owner. It is
// not run where it stands: stub.go copies this section into a little ELF file of its own (a sealed memfd), so that a
// sandbox's process 1 and each exec's reaper cost a few pages instead of a whole Go program, and nothing of the
// launcher's memory is in them.
//
// Everything here therefore lives in one section, touches nothing outside it (no string literal, no global, no libc)
// and is compiled without anything that makes the compiler do so behind our back. A stub that broke this rule could
// not run at all, and every test would fail.
//
// Roles, by the first letter of argv[1]:
//   p  pause: process 1 of a sandbox. fd 3 is the stub itself, fd 4 the sandbox's lock file, which stays locked while
//      this process lives, fd 5 a socket to the creator. With each byte that comes from it come descriptors: fd 6, a memfd that holds
//      the sandbox's state (sealed.go), and fd 7, if there is an owner, a pidfd of it. FX_COMPLETE means that the sandbox is complete,
//      any other byte that it is kept ready for a later owner, end of file that the creator died first. When it is complete the
//      socket is closed, by which the creator knows that this process no longer depends on it. The rest is closed.
//   r  reaper: process 1 of an exec. Its first child is the program. fd 0, if open, is a pidfd of the process that waits for the
//      result, fd 1 the pipe to which the result goes, fd 2 the exec's procfs, which may be covered at /proc. Its end ends every
//      process of the exec. SIGTERM makes it kill them all, and report what they have used.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <poll.h>
#include <time.h>
#include "forkexec.h"

#define PLAIN target("general-regs-only"), \
	optimize("O2", "no-stack-protector", "no-jump-tables", "no-tree-loop-distribute-patterns")
#define STUB __attribute__((section("fx_stub"), used, PLAIN))
#define INLINE static inline __attribute__((always_inline, PLAIN))

#include "raw.h"

#define SYS(n, a, b, c, d) sys6((n), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

INLINE long micros(long sec, long usec) { return sec * 1000000 + usec; }

// How many processes and threads this PID namespace has had, less this one: the last number that it gave out, which
// is the fifth field of /proc/loadavg. 0 if unknown.
INLINE unsigned stub_tasks(void)
{
	volatile char path[] = {'l', 'o', 'a', 'd', 'a', 'v', 'g', 0};
	char text[128];
	long fd = SYS(SYS_openat, 2, path, 02000000 /* O_CLOEXEC */, 0);
	if (fd < 0)
		return 0;
	long n = SYS(SYS_read, fd, text, sizeof text, 0);
	unsigned last = 0;
	for (long i = 0; i < n; i++) {
		if (text[i] == ' ' || text[i] == '/')
			last = 0;
		else if (text[i] >= '0' && text[i] <= '9')
			last = last * 10 + (unsigned)(text[i] - '0');
	}
	return last > 0 ? last - 1 : 0;
}

// How many processes are left in this PID namespace, besides this one. All are children of this one, or of one that is.
INLINE long stub_left(void)
{
	if (sys6(SYS_waitid, 0 /* P_ALL */, 0, 0, WNOHANG | WEXITED | WNOWAIT | 0x40000000 /* __WALL */, 0, 0) == -10 /* ECHILD */)
		return 0;
	volatile char path[] = {'.', 0};
	char buf[4096] __attribute__((aligned(8)));
	long fd = SYS(SYS_openat, 2, path, 02000000 | 0200000 /* O_CLOEXEC | O_DIRECTORY */, 0), n, left = -1;
	if (fd < 0)
		return 0;
	while ((n = SYS(SYS_getdents64, fd, buf, sizeof buf, 0)) > 0)
		for (long at = 0; at < n; at += *(unsigned short *)(buf + at + 16))
			left += buf[at + 19] >= '1' && buf[at + 19] <= '9'; // the first byte of the name
	return left < 0 ? 0 : left;
}

INLINE void stub_report(int status)
{
	struct rusage all;
	struct fx_status s;
	s.wait_status = status;
	s.tasks = stub_tasks();
	s.left = stub_left();
	if (SYS(SYS_getrusage, RUSAGE_CHILDREN, &all, 0, 0) < 0)
		s.utime_us = s.stime_us = s.maxrss_kib = s.written_blocks = s.faults = 0;
	else {
		s.utime_us = micros(all.ru_utime.tv_sec, all.ru_utime.tv_usec);
		s.stime_us = micros(all.ru_stime.tv_sec, all.ru_stime.tv_usec);
		s.maxrss_kib = all.ru_maxrss;
		s.written_blocks = all.ru_oublock;
		s.faults = all.ru_minflt;
	}
	SYS(SYS_write, 1, &s, sizeof s, 0);
}

#define REAP_AT_ONCE 64
#define IS_STOPPED(status) (((status) & 0x7f) == 0x7f)

// Waits for children for as long as the owner lives. main is the child whose end ends this process, or 0. A program may
// make orphans faster than they can be waited for, so the others are looked at in between. It may also have made this
// process its tracer (PTRACE_TRACEME), which then hears of each of its stops: that is not its end.
INLINE int stub_loop(long owner, long sigfd, int main)
{
	struct pollfd p[2];
	p[0].fd = (int)sigfd;
	p[1].fd = (int)owner; // a negative number is passed over by poll
	p[0].events = p[1].events = POLLIN;
	for (;;) {
		int status;
		long pid = 1;
		struct timespec none = {0, 0};
		for (int n = 0; n < REAP_AT_ONCE && pid > 0; n++) {
			pid = SYS(SYS_wait4, -1, &status, WNOHANG, 0);
			if (pid > 0 && pid == main && !IS_STOPPED(status)) {
				stub_report(status);
				return 0;
			}
		}
		p[0].revents = p[1].revents = 0;
		SYS(SYS_ppoll, p, 2, pid > 0 ? &none : 0, 0);
		if (p[1].revents)
			return 1;
		if (p[0].revents) {
			unsigned info[32]; // one struct signalfd_siginfo; it begins with the signal's number
			SYS(SYS_read, sigfd, info, sizeof info, 0);
			if (info[0] == SIGTERM)
				SYS(SYS_kill, -1, SIGKILL, 0, 0);
		}
	}
}

INLINE int stub_is_open(int fd) { return SYS(SYS_fcntl, fd, 1 /* F_GETFD */, 0, 0) >= 0; }

// Waits until the creator says that the sandbox is complete.
INLINE int stub_await(void)
{
	for (;;) {
		char word = 0;
		long control[(sizeof(struct cmsghdr) + 2 * sizeof(int)) / sizeof(long) + 1];
		struct iovec part = {&word, 1};
		struct msghdr m;
		m.msg_name = 0, m.msg_namelen = 0, m.msg_iov = &part, m.msg_iovlen = 1, m.msg_flags = 0;
		m.msg_control = control, m.msg_controllen = sizeof control;
		long n = SYS(SYS_recvmsg, 5, &m, 0, 0);
		if (n == -4 /* EINTR */)
			continue;
		if (n != 1)
			return 0;
		struct cmsghdr *c = (struct cmsghdr *)control;
		unsigned long size = m.msg_controllen >= sizeof *c ? c->cmsg_len - sizeof *c : 0;
		for (unsigned long i = 0; i < size / sizeof(int); i++) // they have come below 3, where nothing is open
			SYS(SYS_dup3, ((int *)(c + 1))[i], FX_SEALED_FD + (long)i, 0, 0);
		SYS(SYS_close_range, 0, 3, 0, 0);
		if (word == FX_COMPLETE)
			return 1;
	}
}

INLINE int stub_main(long *sp)
{
	char **argv = (char **)(sp + 1);
	volatile char name[] = {'s', 'a', 'n', 'd', 'b', 'o', 'x', 'r', 'u', 'n', 0};
	unsigned long all = ~0ul;
	int pause = sp[0] > 1 && argv[1][0] == 'p';

	SYS(SYS_prctl, 15 /* PR_SET_NAME */, name, 0, 0);
	SYS(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, 8);
	if (pause) {
		SYS(SYS_prctl, 1 /* PR_SET_PDEATHSIG */, 0, 0, 0); // see init.c
		SYS(SYS_close_range, 0, 3, 0, 0);
		if (!stub_await())
			return 1;
		SYS(SYS_close, 5, 0, 0, 0);
		SYS(SYS_close_range, 8, ~0u, 0, 0);
	} else {
		SYS(SYS_close_range, 3, ~0u, 0, 0);
		// Neither the caller's session, whose processor time (autogroup) and signals it would share, nor the program's.
		// Only here, where the program runs already: a new session waits its turn on a busy machine.
		SYS(SYS_setsid, 0, 0, 0, 0);
	}
	unsigned long heard = 1ul << (SIGCHLD - 1);
	if (!pause)
		heard |= 1ul << (SIGTERM - 1);
	long sigfd = SYS(SYS_signalfd4, -1, &heard, 8, 02000000);
	if (sigfd < 0)
		return 1;
	long owner = pause ? 7 : 0;
	return stub_loop(stub_is_open((int)owner) ? owner : -1, sigfd, pause ? 0 : 2);
}

STUB void fx_stub_run(long *sp)
{
	int code = stub_main(sp);
	for (;;)
		SYS(SYS_exit_group, code, 0, 0, 0);
}

// The entry point: the kernel gives no return address and the arguments on the stack.
STUB __attribute__((naked)) void fx_stub_start(void)
{
#if defined(__x86_64__)
	__asm__("xor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall fx_stub_run");
#else
	__asm__("mov x29, #0\n\tmov x0, sp\n\tbl fx_stub_run");
#endif
}

extern const char __start_fx_stub[], __stop_fx_stub[];

const void *fx_stub_code(void) { return __start_fx_stub; }
unsigned long fx_stub_size(void) { return (unsigned long)(__stop_fx_stub - __start_fx_stub); }
unsigned long fx_stub_entry(void) { return (unsigned long)((const char *)fx_stub_start - __start_fx_stub); }
