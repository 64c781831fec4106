// The last stage of libcontainer's start of process 1, which is otherwise a second start of the Go runtime: five milliseconds of
// processor time. nsexec has made the namespaces; what is left for the configuration that container/create.go makes, and for no
// other, is done here in the order of libcontainer's standard_init_linux.go, with its messages to the launcher. An unknown
// configuration is an error. TestInitConfig holds what a configuration may have.
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONFIG_SIZE (1 << 20)
#define MOST_FILES (1 << 30)
#define PATH_SIZE 4096
#define STATFS_NOSYMFOLLOW 0x2000 // ST_NOSYMFOLLOW of linux/statfs.h
#define MOUNT_NOSYMFOLLOW 256 // MS_NOSYMFOLLOW of linux/mount.h
#define STUB "/proc/self/fd/3"
#define NEW_MOUNT_FLAGS (MS_NOSUID | MS_NOEXEC | MS_NODEV)

static int messages = -1; // to the launcher and back

// fail sends the launcher the reason, with the words of Go's errors.
static void fail(const char *step)
{
	char text[512], why[128];
	snprintf(why, sizeof why, "%s", strerror(errno));
	why[0] = (char)tolower((unsigned char)why[0]);
	int n = snprintf(text, sizeof text, "{\"type\":\"procError\",\"flags\":0,\"arg\":{\"message\":\"%s: %s\"}}", step, why);
	ssize_t unheard = send(messages, text, (size_t)n, MSG_NOSIGNAL);
	_exit(unheard < 0 ? 255 : 1);
}

static void must(const char *step, long result)
{
	if (result < 0)
		fail(step);
}

static void unknown(const char *what)
{
	errno = EINVAL;
	fail(what);
}

static int descriptor(const char *name)
{
	const char *text = getenv(name);
	char *end;
	long n = text ? strtol(text, &end, 10) : -1;
	if (!text || *end || n < 3 || n > MOST_FILES || fcntl((int)n, F_GETFD) < 0)
		unknown(name);
	return (int)n;
}

// read_config reads one JSON object. The launcher leaves the socket open behind it.
static char *read_config(int fd)
{
	char *text = malloc(CONFIG_SIZE);
	size_t have = 0;
	int depth = 0, in_string = 0, escaped = 0;
	if (!text)
		fail("read configuration");
	for (;;) {
		ssize_t n = read(fd, text + have, CONFIG_SIZE - 1 - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n ? errno : ENODATA;
			fail("read configuration");
		}
		for (size_t end = have + (size_t)n; have < end; have++) {
			char c = text[have];
			if (in_string) {
				in_string = escaped || c != '"';
				escaped = !escaped && c == '\\';
				continue;
			}
			in_string = c == '"';
			depth += (c == '{') - (c == '}');
			if (c == '}' && depth == 0) {
				text[have + 1] = 0;
				return text;
			}
		}
	}
}

// has looks for a key with its value. Inside a string the quotes would be escaped.
static int has(const char *config, const char *what) { return strstr(config, what) != NULL; }

static const char *after(const char *config, const char *key)
{
	const char *at = strstr(config, key);
	if (!at)
		unknown(key + 1);
	return at + strlen(key);
}

static void set_hostname(const char *config)
{
	if (!has(config, "\"hostname\":\""))
		return;
	const char *name = after(config, "\"hostname\":\"");
	size_t length = strcspn(name, "\"\\");
	if (name[length] != '"')
		unknown("hostname");
	must("sethostname", sethostname(name, length));
}

static void loopback_up(void)
{
	struct ifreq r = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	must("open a socket for lo", fd);
	must("read the flags of lo", ioctl(fd, SIOCGIFFLAGS, &r));
	r.ifr_flags |= IFF_UP;
	must("set lo up", ioctl(fd, SIOCSIFFLAGS, &r));
	close(fd);
}

// say sends the launcher a message and waits for the answer to it.
static void say(const char *what, const char *answer)
{
	char text[256], want[64];
	int n = snprintf(text, sizeof text, "{\"type\":\"%s\",\"flags\":0}", what);
	if (send(messages, text, (size_t)n, MSG_NOSIGNAL) != n)
		fail(what);
	ssize_t got;
	while ((got = recv(messages, text, sizeof text - 1, 0)) < 0 && errno == EINTR)
		;
	snprintf(want, sizeof want, "{\"type\":\"%s\",", answer);
	if (got <= 0 || strncmp(text, want, strlen(want)) != 0) {
		errno = got < 0 ? errno : EPROTO;
		fail(answer);
	}
}

static void bind_tree(const char *from, const char *to)
{
	must("bind a tree of mounts", mount(from, to, NULL, MS_BIND | MS_REC, NULL));
	must("make a tree of mounts private", mount(NULL, to, NULL, MS_PRIVATE | MS_REC, NULL));
}

// enter_root makes the directory that the launcher has started us in the root, with /proc, the host's /dev and, where the launcher
// has no privilege, the host's root in it.
static void enter_root(int with_host)
{
	char root[PATH_SIZE];
	if (!getcwd(root, sizeof root) || root[0] != '/')
		fail("find the root directory");
	must("make mounts slaves", mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL));
	must("bind the root directory", mount(root, root, NULL, MS_BIND | MS_REC, NULL));
	must("enter the root directory", chdir(root));
	must("mount proc", mount("proc", "proc", "proc", NEW_MOUNT_FLAGS, NULL));
	bind_tree("/dev", "dev");
	if (with_host)
		bind_tree("/", "host");
	say("procHooks", "procHooksDone");
	int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	must("open the old root", old);
	must("pivot_root", syscall(SYS_pivot_root, ".", "."));
	must("enter the old root", fchdir(old));
	must("make the old root a slave", mount(NULL, ".", NULL, MS_SLAVE | MS_REC, NULL));
	must("unmount the old root", umount2(".", MNT_DETACH));
	must("enter the new root", chdir("/"));
	close(old);
}

// make_readonly keeps the flags that a user namespace may not take away. Those of a file system have the numbers of mount(2), but
// for that against symlinks.
static void make_readonly(void)
{
	struct statfs st;
	must("look at the root", statfs("/", &st));
	unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | ((unsigned long)st.f_flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC));
	if (st.f_flags & STATFS_NOSYMFOLLOW)
		flags |= MOUNT_NOSYMFOLLOW;
	must("make the root read-only", mount(NULL, "/", NULL, flags, NULL));
}

// drop leaves process 1 without any capability, and without a way to get one.
static void drop(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		must("drop a capability of the bounding set", prctl(PR_CAPBSET_DROP, cap, 0, 0, 0));
	if (setgroups(0, NULL) < 0 && errno != EPERM) // a user without privilege may not, and has none mapped
		fail("drop groups");
	must("setgid", setgid(0));
	must("setuid", setuid(0));
	must("drop capabilities", syscall(SYS_capset, &head, none));
	must("drop ambient capabilities", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
}

static void become_process_1(void)
{
	const int config_fd = descriptor("_LIBCONTAINER_INITPIPE"), log = descriptor("_LIBCONTAINER_LOGPIPE");
	const int fifo = descriptor("_LIBCONTAINER_FIFOFD");
	// A creator that is killed must not leave this behind, waiting for ever for somebody to open its FIFO. The stub takes it back
	// (stub.c), and the creator waits for that.
	must("ask for a signal at the launcher's end", prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
	const pid_t parent = getppid();
	char *config = read_config(config_fd);
	if (!has(config, "\"args\":[\"" STUB "\",\"pause\"]"))
		unknown("libcontainer's configuration is not sandboxrun's");
	const int passed = atoi(after(config, "\"passed_files_count\":"));
	if (has(config, "\"type\":\"loopback\""))
		loopback_up();
	enter_root(has(config, "\"destination\":\"/host\""));
	make_readonly();
	umask(022);
	set_hostname(config);
	must("set no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	say("procReady", "procRun");
	drop();
	must("ask for a signal at the launcher's end", prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)); // changed ids have cleared it
	if (getppid() != parent)
		kill(getpid(), SIGKILL);
	close(messages); // the launcher reads the end of file as success
	messages = -1;
	close(log);
	char name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", fifo);
	int start = open(name, O_WRONLY | O_CLOEXEC); // waits for the launcher
	if (start < 0 || write(start, "0", 1) != 1)
		_exit(255);
	// What is left open could lead to the host (CVE-2024-21626).
	if (syscall(SYS_close_range, (unsigned)(3 + passed), ~0U, 0) < 0)
		_exit(255);
	for (int n = 1; n < NSIG; n++) // what the launcher and its caller ignore is no business of process 1
		signal(n, SIG_DFL);
	char *argv[] = {(char *)STUB, (char *)"pause", NULL}, *env[] = {NULL};
	execve(STUB, argv, env);
	_exit(255);
}

// The linker puts this around libcontainer's nsexec, which returns in processes that it has nothing to do with, and in process 1.
void __real_nsexec(void) __attribute__((weak));

void __wrap_nsexec(void)
{
	char name[16] = "";
	const char *type = getenv("_LIBCONTAINER_INITTYPE"), *pipe = getenv("_LIBCONTAINER_SYNCPIPE");
	if (__real_nsexec)
		__real_nsexec();
	prctl(PR_GET_NAME, name, 0, 0, 0);
	if (!type || !pipe || strcmp(type, "standard") != 0 || strcmp(name, "runc:[2:INIT]") != 0)
		return;
	messages = descriptor("_LIBCONTAINER_SYNCPIPE");
	become_process_1();
}
