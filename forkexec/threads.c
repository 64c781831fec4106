// The Go runtime starts a thread when it wants one. Where it is refused, cgo writes a page about it and aborts, and Go's
// own handler makes status 2 of that, which the caller takes for the program's. It is the launcher that
// has failed, so it prints its own error and exits with its own status. forkexec.go has the linker put this in the way.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define TRIES 20 // as often as cgo itself, and as long: a fifth of a second

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	static const char processes[] = "sandboxrun: limit_reached: start a thread: there may be no more processes\n"
					"hint: more processes must be allowed: ulimit -u, or pids.max of the control group\n";
	static const char addresses[] = "sandboxrun: limit_reached: start a thread: no processes or no address space are left\n"
					"hint: ulimit -v unlimited -d unlimited; or ulimit -u, or pids.max of the control group\n";
	for (int try = 1;; try++) {
		int err = __real_pthread_create(thread, attr, run, arg);
		if (err != EAGAIN)
			return err;
		if (try == TRIES) {
			struct rlimit as, data;
			int limited = getrlimit(RLIMIT_AS, &as) == 0 && getrlimit(RLIMIT_DATA, &data) == 0 &&
				      (as.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY);
			ssize_t unheard = limited ? write(2, addresses, sizeof addresses - 1) : write(2, processes, sizeof processes - 1);
			_exit(unheard < 0 ? 125 : 125);
		}
		struct timespec wait = {0, try * 1000000l};
		nanosleep(&wait, NULL);
	}
}
