// The events of a plain exec, in the form that container/journal describes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "client.h"

#define EVENTS "events.jsonl"
#define OLD_EVENTS "events.old.jsonl"
#define MAX_EVENTS (4 << 20) // then it is for Go to begin a new file
#define MAX_COMMAND 256

#define SECRET 16

// has_secret says whether a text has something in it that may be the value of a key: it is for Go to redact it.
static int has_secret(const char *text, char *const *env)
{
	static const char *const ends[] = {"_KEY", "_TOKEN", "_SECRET"}; // as in package record
	if (strlen(text) < SECRET)
		return 0;
	for (; *env; env++) {
		const char *value = strchr(*env, '=');
		if (!value || strlen(value + 1) < SECRET || !strstr(text, value + 1))
			continue;
		for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
			size_t n = strlen(ends[i]);
			if (value - *env >= (ptrdiff_t)n && strncmp(value - n, ends[i], n) == 0)
				return 1;
		}
	}
	return 0;
}

// fx_events_plain says whether the events of a command can be written here: nothing in its name needs to be escaped or
// redacted.
int fx_events_plain(const struct fx_limits *l, const char *command, char *const *env)
{
	struct stat st;
	size_t n = 0;
	for (const char *c = command; *c; c++, n++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			return 0;
	return n <= MAX_COMMAND && !has_secret(command, env) && (fstatat(l->state, EVENTS, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size < MAX_EVENTS);
}

// append writes one line at once, so that those of parallel execs do not mix.
static void append(const struct fx_limits *l, int flags, const char *event, const char *rest)
{
	char line[1024], when[32], name[32];
	struct timespec now;
	struct tm t;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &t);
	strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &t);
	fx_exec_name(l, name, sizeof name);
	int n = snprintf(line, sizeof line, "{\"time\":\"%s.%09ldZ\",\"event\":\"%s\",\"exec\":\"%s\",%s}\n", when, now.tv_nsec, event, name, rest);
	flags |= O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(l->state, EVENTS, flags, 0600);
	if (fd < 0 && errno == ENOENT) // just now it became the old one, and the next is not there yet
		fd = openat(l->state, OLD_EVENTS, flags, 0600);
	if (fd < 0 && errno == ENOENT)
		return; // the sandbox has been deleted
	if (fd < 0 || write(fd, line, (size_t)n) != n)
		dprintf(2, "sandboxrun: warning: an event of this exec was not kept: write " EVENTS ": %s\n", strerror(errno));
	close(fd);
}

void fx_event_started(const struct fx_limits *l, const char *command)
{
	char rest[MAX_COMMAND + 32];
	snprintf(rest, sizeof rest, "\"command\":\"%s\"", command);
	append(l, O_CREAT, "exec_started", rest);
}

void fx_event_ended(const struct fx_limits *l, const struct fx_status *st, const struct fx_verdict *v, double seconds)
{
	char rest[512];
	int64_t cpu = st ? st->utime_us + st->stime_us : 0, memory = st ? st->maxrss_kib * 1024 : 0;
	const char *quote = v->finding ? "\"" : "";
	if (l->cpu_used_us > cpu)
		cpu = l->cpu_used_us;
	if (l->memory_peak > 0)
		memory = l->memory_peak;
	snprintf(rest, sizeof rest, "\"outcome\":\"%s\",\"finding\":%s%s%s,\"exit_code\":%d,\"wall_ms\":%.3f,\"cpu_ms\":%.3f,\"max_rss_bytes\":%lld",
		 v->outcome, quote, v->finding ? v->finding : "null", quote, v->status, seconds * 1e3, (double)cpu / 1e3, (long long)memory);
	append(l, 0, "exec_ended", rest);
}
