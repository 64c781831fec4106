// The events of an exec on the short way, in the form that container/journal describes: by its templates.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "answer.h"

#define EVENTS "events.jsonl"
#define OLD_EVENTS "events.old.jsonl"
#define MAX_EVENTS (4 << 20) // then it is for Go to begin a new file

int fx_has_secret(const struct fx_launch *la, char *const *env, const char *text)
{
	for (; *env; env++) {
		const char *value = strchr(*env, '=');
		if (!value || strlen(value + 1) < la->secret_length || (text && !strstr(text, value + 1)))
			continue;
		for (size_t i = 0; i < la->n_secrets; i++) {
			size_t n = strlen(la->secrets[i]);
			if (value - *env >= (ptrdiff_t)n && strncmp(value - n, la->secrets[i], n) == 0)
				return 1;
		}
	}
	return 0;
}

// fx_events_plain reports whether the events of a command can be written here: nothing in its name needs to be escaped or
// redacted.
int fx_events_plain(const struct fx_limits *l, const struct fx_launch *la, const char *command, char *const *env)
{
	struct stat st;
	size_t n = 0;
	for (const char *c = command; *c; c++, n++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			return 0;
	return n <= FX_COMMAND && !fx_has_secret(la, env, command) &&
	       (fstatat(l->state, EVENTS, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size < MAX_EVENTS);
}

// append writes one line at once, so that those of parallel execs do not mix.
static int append(const struct fx_limits *l, int flags, const struct fx_text *template, struct fx_values *v)
{
	char when[64];
	struct timespec now;
	struct tm t;
	size_t size;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &t);
	size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &t);
	snprintf(when + n, sizeof when - n, ".%09ldZ", now.tv_nsec);
	v->time = when;
	char *line = fx_fill(template, v, &size);
	if (!line)
		return EINVAL;
	flags |= O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(l->state, EVENTS, flags, 0600), failed = 0;
	if (fd < 0 && errno == ENOENT) // just now it became the old one, and the next is not there yet
		fd = openat(l->state, OLD_EVENTS, flags, 0600);
	if (fd < 0 && errno != ENOENT) // else the sandbox has been deleted
		failed = errno;
	if (fd >= 0) {
		ssize_t w = write(fd, line, size);
		failed = w < 0 ? errno : (size_t)w < size ? ENOSPC : 0;
		close(fd);
	}
	free(line);
	return failed;
}

void fx_event_started(struct fx_short *s, const struct fx_launch *la, const char *command)
{
	struct fx_values v = {.s = s, .command = command};
	s->note_failed = append(s->limits, O_CREAT, &la->started, &v);
}

int fx_event_ended(struct fx_short *s, const struct fx_launch *la, struct fx_values *v)
{
	return append(s->limits, 0, &la->ended, v) ? -1 : 0; // Go tries again, and reports it
}
