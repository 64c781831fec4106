// A system call without libc: without errno, which the children of a start share with the launcher, and without anything
// that the stub could not take along (stub.c, which defines INLINE for itself).
#ifndef RAW_H
#define RAW_H

#include <sys/syscall.h>

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

// sys6 gives the negative error number where the call fails.
INLINE long sys6(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long ret;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
#error "sandboxrun runs on amd64 and arm64"
#endif
}

#endif
