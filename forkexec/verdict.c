// What became of a plain exec, as container/result.go and cli/exec.go would say it.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "client.h"

// say_bytes writes a size as a policy would have it: "256M".
static const char *say_bytes(int64_t n, char *buf, size_t size)
{
	static const char unit[] = "KMGT";
	int u = -1;
	while (u < 3 && n > 0 && n % 1024 == 0) {
		n /= 1024;
		u++;
	}
	if (u < 0)
		snprintf(buf, size, "%lld bytes", (long long)n);
	else
		snprintf(buf, size, "%lld%c", (long long)n, unit[u]);
	return buf;
}

static int ended_by(const struct fx_limits *l, const struct fx_status *st)
{
	int why = l->why, killed = !st || (WIFSIGNALED(st->wait_status) && WTERMSIG(st->wait_status) == SIGKILL);
	if (!killed)
		why = FX_BY_ITSELF; // just before
	if (l->oom_kills > 0)
		return FX_MEMORY_USED;
	if (st && WIFSIGNALED(st->wait_status) && WTERMSIG(st->wait_status) == SIGXCPU && l->cpu_us > 0) {
		int64_t used = st->utime_us + st->stime_us;
		if ((used > l->cpu_used_us ? used : l->cpu_used_us) >= l->cpu_us)
			return FX_CPU_TIME; // the kernel was quicker
	}
	return why;
}

#define SAY(...) snprintf(v->message, sizeof v->message, __VA_ARGS__)

static struct fx_verdict *set(struct fx_verdict *v, const char *outcome, const char *finding, int status)
{
	v->outcome = outcome;
	v->finding = finding;
	v->status = status;
	return v;
}

// was_ended is for an exec that we have ended; it says whether it is one.
static int was_ended(struct fx_verdict *v, const struct fx_limits *l, int why, double seconds)
{
	char size[32];
	switch (why) {
	case FX_WALL:
		set(v, "timeout", "WALL_CLOCK_EXCEEDED", 124);
		return SAY("the program was ended after %.1f s", seconds), 1;
	case FX_IDLE:
		set(v, "idle_timeout", "WALL_CLOCK_EXCEEDED", 124);
		return SAY("the program was ended: it wrote nothing for %.6g s", (double)l->idle_us / 1e6), 1;
	case FX_CPU_TIME:
		set(v, "cpu_exceeded", "CPU_TIME_EXCEEDED", 128 + SIGXCPU);
		return SAY("the program was ended: it used more than %.6g s of processor time", (double)l->cpu_us / 1e6), 1;
	case FX_MEMORY_USED:
		set(v, "memory_exceeded", "MEMORY_EXCEEDED", 128 + SIGKILL);
		return SAY("the program was ended: it used more than %s of memory", say_bytes(l->memory, size, sizeof size)), 1;
	case FX_TASKS:
		set(v, "pids_exceeded", "PIDS_EXCEEDED", 128 + SIGKILL);
		return SAY("the program was ended: it had more than %lld processes", (long long)l->pids), 1;
	}
	return 0;
}

static int64_t file_limit(const struct fx_exec *x)
{
	for (size_t i = 0; i < x->n_rlimits; i++)
		if (x->rlimits[i].resource == RLIMIT_FSIZE)
			return (int64_t)x->rlimits[i].cur;
	return 0;
}

// reached is container.reached.
static int reached(const struct fx_limits *l, const struct fx_status *st)
{
	if (l->pids <= 1 || l->tasks_peak == 0)
		return 0;
	return st->left + 1 >= l->pids || (st->wait_status != 0 && l->tasks_peak >= l->pids);
}

void fx_judge(const struct fx_exec *x, const struct fx_status *st, double seconds, struct fx_verdict *v)
{
	const struct fx_limits *l = x->limits;
	char size[32];
	v->message[0] = 0;
	if (was_ended(v, l, ended_by(l, st), seconds))
		return;
	if (!st) {
		set(v, "sandbox_lost", "SANDBOX_UNAVAILABLE", 125);
		SAY("the sandbox ended under the program");
		return;
	}
	int signaled = WIFSIGNALED(st->wait_status);
	int status = signaled ? 128 + WTERMSIG(st->wait_status) : WEXITSTATUS(st->wait_status);
	set(v, signaled ? "signaled" : "exited", status ? "PROGRAM_FAILED" : NULL, status);
	if (file_limit(x) > 0 && status == 128 + SIGXFSZ) {
		set(v, "file_exceeded", "FILE_SIZE_EXCEEDED", status);
		SAY("the program wanted a file of more than %s", say_bytes(file_limit(x), size, sizeof size));
	} else if (l->pids > 0 && (l->pids_events > 0 || reached(l, st))) {
		set(v, "pids_exceeded", "PIDS_EXCEEDED", status);
		SAY("the program wanted more than %lld processes", (long long)l->pids);
	}
}
