// The limit of core files, which keeps the host's core handler from what programs leave when they crash.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "child.h"
#include "forkexec.h"

// fx_core_limit gives all processes of the exec the limit of core files, here, where a launcher with privilege can
// raise it. What matters is that it is 1: with that alone the kernel does not start the handler of kernel.core_pattern,
// which is root outside the sandbox (CVE-2021-3899 and CVE-2025-4598 are of apport's and systemd's handlers). With 0 it
// does; that is only as good where there is no handler.
//
// *index is which of the limits it is, for the error.
int fx_core_limit(const struct fx_exec *x, size_t *index)
{
	for (*index = 0; *index < x->n_rlimits && x->rlimits[*index].resource != RLIMIT_CORE; ++*index)
		;
	if (*index == x->n_rlimits)
		return 0;
	struct rlimit want = {x->rlimits[*index].cur, x->rlimits[*index].max};
	if (syscall(SYS_prlimit64, 0, RLIMIT_CORE, &want, NULL) == 0)
		return 0;
	int saved = errno;
	char first = '|';
	int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, &first, 1) != 1)
		first = '|';
	close(fd);
	errno = saved;
	return first == '|' ? -1 : 0;
}
