// Ctrl-Z: stopping and continuing every process of an exec, from outside of its PID namespace. SIGTSTP would do nothing:
// the program leads a session of its own, and the kernel does not stop a process group whose session has no parent to
// continue it.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "forkexec.h"

#define PASSES 200 // of a millisecond each

static ino_t pid_namespace(int pid)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

// fx_pid_of is the number of the process that a pidfd refers to, or -1.
int fx_pid_of(int pidfd)
{
	char path[64], line[256];
	int pid = -1;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f) && sscanf(line, "Pid: %d", &pid) != 1)
		;
	if (f)
		fclose(f);
	return pid;
}

// runs reports whether a process is neither stopped nor dead.
static int runs(int pid)
{
	char path[64], line[512];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
	close(fd);
	if (n <= 0)
		return 0;
	line[n] = 0;
	const char *end = strrchr(line, ')'); // a command's name may hold anything
	return end && end[1] && !strchr("TtZXx", end[2]);
}

// signal_member sends a signal to a process if it still is in the namespace.
static int signal_member(int pid, ino_t ns, int sig)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int sent = pidfd >= 0 && pid_namespace(pid) == ns && syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) == 0;
	close(pidfd);
	return sent;
}

// stop_running stops those that run, and says how many there were; what it stops is remembered.
static int stop_running(struct fx_stopped *s, ino_t ns, int reaper)
{
	int n = 0;
	DIR *proc = opendir("/proc");
	for (struct dirent *e; proc && (e = readdir(proc));) {
		int pid = atoi(e->d_name);
		if (pid <= 0 || pid == reaper || pid_namespace(pid) != ns || !runs(pid) || !signal_member(pid, ns, SIGSTOP))
			continue;
		n++;
		if (s->n == 0 || s->pid[s->n - 1] != pid) {
			if (s->n < FX_STOPPED)
				s->pid[s->n++] = pid;
			else
				s->more = 1;
		}
	}
	if (proc)
		closedir(proc);
	return n;
}

// fx_stop stops every process of an exec but its reaper. It goes on until none runs: one may have forked meanwhile.
void fx_stop(struct fx_stopped *s, int reaper_pidfd)
{
	const struct timespec moment = {0, 1000000};
	s->n = s->more = 0;
	int reaper = fx_pid_of(reaper_pidfd);
	s->ns = reaper > 0 ? pid_namespace(reaper) : 0;
	s->reaper = reaper;
	for (int i = 0; s->ns && i < PASSES && stop_running(s, (ino_t)s->ns, reaper) > 0; i++)
		nanosleep(&moment, NULL);
}

// fx_continue continues what fx_stop has stopped. What a shell inside had stopped before stays so.
void fx_continue(const struct fx_stopped *s)
{
	for (int i = 0; i < s->n; i++)
		signal_member(s->pid[i], (ino_t)s->ns, SIGCONT);
	DIR *proc = s->more ? opendir("/proc") : NULL;
	for (struct dirent *e; proc && (e = readdir(proc));) {
		int pid = atoi(e->d_name);
		if (pid > 0 && pid != s->reaper && pid_namespace(pid) == (ino_t)s->ns)
			signal_member(pid, (ino_t)s->ns, SIGCONT);
	}
	if (proc)
		closedir(proc);
}

// fx_stop_self stops this process as the terminal's Ctrl-Z would, and returns when it has been continued; at once where
// nobody could continue it. With group the rest of its process group is stopped too: in raw mode the terminal has not.
void fx_stop_self(int group)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, dfl = {.sa_handler = SIG_DFL}, was;
	sigset_t set, mask;
	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	sigaction(SIGTSTP, &ignore, &was);
	if (group)
		kill(0, SIGTSTP);
	sigaction(SIGTSTP, &dfl, NULL);
	pthread_sigmask(SIG_UNBLOCK, &set, &mask);
	raise(SIGTSTP);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	sigaction(SIGTSTP, &was, NULL);
}
