// libcontainer executes /proc/self/exe again to start process 1, and nobody in a sandbox may get hold of a file that can be written and that
// root, or another sandbox, executes later (CVE-2019-5736). So it first copies the whole file into a sealed memfd, where the launcher has not
// the privilege for a read-only overlay: for a Go program that is a quarter of a start. It leaves that out where /proc/self/exe is such a
// memfd. Here it becomes one, of half a kilobyte: a program without code, whose interpreter is our binary. The kernel loads that as it
// would load ld.so, at the addresses for which it is linked, and starts it with the same arguments.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "short.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x10
#endif
#define BASE 0x40000000ul // above all of our binary; the kernel puts the heap (brk) behind it
#define MOST_SEGMENTS 8
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct small {
	ElfW(Ehdr) head;
	ElfW(Phdr) segments[MOST_SEGMENTS];
	struct fx_self self; // ends with the path, which is the interpreter's
};

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static const ElfW(Phdr) *own_segments(void) { return (const void *)((const char *)&__ehdr_start + __ehdr_start.e_phoff); }

const struct fx_self *fx_self(void)
{
	const struct small *s = (const void *)BASE;
	return getauxval(AT_PHDR) == (unsigned long)s->segments ? &s->self : NULL;
}

static ElfW(Phdr) segment(unsigned type, size_t from, size_t size, size_t align)
{
	return (ElfW(Phdr)){.p_type = type, .p_flags = PF_R, .p_offset = from, .p_vaddr = BASE + from, .p_filesz = size, .p_memsz = size, .p_align = align};
}

// describe fills in the program; 0: it cannot be made. The C library finds its thread-local data and what it has to protect by the segments
// that the kernel tells it of, which are those of the program and not of its interpreter.
static size_t describe(struct small *s)
{
	const ElfW(Ehdr) *own = &__ehdr_start;
	unsigned n = 2;
	if (own->e_type != ET_EXEC)
		return 0;
	ssize_t length = readlink("/proc/self/exe", s->self.path, sizeof s->self.path - 1);
	struct stat is, there;
	if (length <= 0 || stat("/proc/self/exe", &is) < 0 || stat(s->self.path, &there) < 0 || is.st_dev != there.st_dev || is.st_ino != there.st_ino)
		return 0; // it was removed, or replaced
	s->self.dev = is.st_dev;
	s->self.ino = is.st_ino;
	prctl(PR_GET_NAME, s->self.name, 0, 0, 0);
	const size_t path = offsetof(struct small, self.path), size = path + (size_t)length + 1;
	for (unsigned i = 0; i < own->e_phnum; i++) {
		const ElfW(Phdr) *p = own_segments() + i;
		if (p->p_type == PT_INTERP || (p->p_type == PT_LOAD && p->p_vaddr + p->p_memsz > BASE))
			return 0;
		if (p->p_type != PT_TLS && p->p_type != PT_GNU_STACK && p->p_type != PT_GNU_RELRO)
			continue;
		if (n == MOST_SEGMENTS)
			return 0;
		s->segments[n++] = *p;
	}
	s->segments[0] = segment(PT_INTERP, path, (size_t)length + 1, 1);
	s->segments[1] = segment(PT_LOAD, 0, size, 0x10000); // no page is larger
	s->head = *own;
	s->head.e_entry = BASE;
	s->head.e_phoff = offsetof(struct small, segments);
	s->head.e_phnum = (ElfW(Half))n;
	s->head.e_shoff = 0;
	s->head.e_shnum = s->head.e_shstrndx = 0;
	return size;
}

static int sealed(const struct small *s, size_t size)
{
	struct rlimit most;
	if (getrlimit(RLIMIT_FSIZE, &most) < 0 || most.rlim_cur < size)
		return -1; // the write would end this process
	int fd = (int)syscall(SYS_memfd_create, "exe:sandboxrun", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (fd < 0) // before Linux 6.3 every memfd can be executed, and the flag is unknown
		fd = (int)syscall(SYS_memfd_create, "exe:sandboxrun", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (write(fd, s, size) == (ssize_t)size && fchmod(fd, 0555) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		return fd;
	close(fd);
	return -1;
}

// fx_become_small comes before everything else that a process does, because after it all of that is done again. What cannot be done is left
// out: then libcontainer makes its copy.
void fx_become_small(void)
{
	const struct fx_self *self = fx_self();
	if (self)
		prctl(PR_SET_NAME, self->name, 0, 0, 0); // the kernel has called it after the memfd
	if (self || fx_argc < 2 || (strcmp(fx_argv[1], "run") != 0 && strcmp(fx_argv[1], "create") != 0) || geteuid() == 0 || getauxval(AT_SECURE))
		return;
	if (fx_variable(environ, "SANDBOXRUN_POOL")) // there process 1 runs already
		return;
	struct small s;
	memset(&s, 0, sizeof s);
	size_t size = describe(&s);
	int fd = size > 0 ? sealed(&s, size) : -1;
	if (fd < 0)
		return;
	syscall(SYS_execveat, fd, "", fx_argv, environ, AT_EMPTY_PATH);
	close(fd);
}
