// Lets a program execute the files of a list and no other.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "forkexec.h"
#include "steps.h"

// The kernel's, which older libc headers lack.
#define EXECUTE 1ull      // LANDLOCK_ACCESS_FS_EXECUTE
#define REFER (1ull << 13) // LANDLOCK_ACCESS_FS_REFER, since Linux 5.19: the second version
#define PATH_BENEATH 1
struct rule { uint64_t allowed; int32_t parent; } __attribute__((packed));

static int allow(int rules, const char *path, int flags, uint64_t what)
{
	int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW | flags);
	if (fd < 0)
		return -1;
	struct rule r = {what, fd};
	long done = syscall(SYS_landlock_add_rule, rules, PATH_BENEATH, &r, 0);
	int why = errno;
	close(fd);
	errno = why;
	return (int)done;
}

// Every rule set forbids to rename and link files across directories, unless it says otherwise: so this one allows that everywhere.
int fx_restrict_execution(struct fx_exec *x)
{
	uint64_t handled = EXECUTE | REFER;
	int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
	TRY(FX_EXECUTION, x->n_execute, rules);
	TRY(FX_EXECUTION, x->n_execute, allow(rules, "/", O_DIRECTORY, REFER));
	for (size_t i = 0; i < x->n_execute; i++)
		TRY(FX_EXECUTION, i, allow(rules, x->execute[i], 0, EXECUTE));
	TRY(FX_EXECUTION, x->n_execute, syscall(SYS_landlock_restrict_self, rules, 0));
	close(rules);
	return 0;
}
