// The answer of an exec of which there is nothing to say but that its program has exited by itself. All texts are Go's: a
// sandbox brings them as templates (container/short.go). Whatever else has come of an exec Go judges, from struct fx_short, in
// the same process: this file only has to know what is not its own.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "answer.h"

void fx_keep(struct fx_kept *k, const char *p, size_t n)
{
	size_t head = k->limit - k->len < n ? k->limit - k->len : n, ring = k->limit - k->limit / 2;
	memcpy(k->data + k->len, p, head);
	k->len += head;
	for (p += head, n -= head; n > 0;) {
		size_t part = n < ring - k->next ? n : ring - k->next;
		memcpy(k->data + k->limit / 2 + k->next, p, part);
		k->next = (k->next + part) % ring;
		p += part;
		n -= part;
	}
}

// rune is how many bytes the UTF-8 character has that begins here, or 0 where there is none.
static size_t rune(const unsigned char *p, size_t n)
{
	size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
	if (len == 0 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return len;
}

static size_t escape(char *to, unsigned char c)
{
	static const char hex[] = "0123456789abcdef", shorts[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
	const char *is = c ? strchr(shorts, c) : NULL;
	to[0] = '\\';
	if (is) {
		to[1] = names[is - shorts];
		return 2;
	}
	memcpy(to + 1, "u00", 3);
	to[4] = hex[c >> 4];
	to[5] = hex[c & 15];
	return 6;
}

// fx_json_text writes a text as encoding/json does between quotes, without the escapes for HTML. It gives the length, six times
// that of the text at most, or -1 where the text is not UTF-8.
int64_t fx_json_text(char *to, const char *from, size_t n)
{
	char *start = to;
	const unsigned char *p = (const unsigned char *)from;
	for (size_t len; n > 0; p += len, n -= len) {
		len = rune(p, n);
		if (len == 0)
			return -1;
		if (len == 1 && (*p < ' ' || *p == '"' || *p == '\\'))
			to += escape(to, *p);
		else if (len == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] | 1) == 0xa9) // the line separators of JavaScript
			to += sprintf(to, "\\u202%x", p[2] & 15);
		else {
			memcpy(to, p, len);
			to += len;
		}
	}
	return to - start;
}

// thousandths writes microseconds as milliseconds, as Go writes such a number.
static int thousandths(char *to, int64_t us)
{
	int n = sprintf(to, "%lld.%03lld", (long long)us / 1000, (long long)us % 1000);
	while (to[n - 1] == '0')
		n--;
	return to[n - 1] == '.' ? n - 1 : n;
}

// seconds writes a length of time as time.Duration.Seconds and encoding/json do: with as few digits as tell it from others.
static int seconds(char *to, int64_t us)
{
	double s = (double)(us / 1000000) + (double)(us % 1000000 * 1000) / 1e9;
	int n = 0;
	for (int precision = 15; precision <= 17; precision++) {
		n = sprintf(to, "%.*g", precision, s);
		if (strtod(to, NULL) == s)
			break;
	}
	return strchr(to, 'e') ? -1 : n;
}

// value writes what stands in one hole. It gives the length, or -1 where it is not to be written here.
static int64_t value(const struct fx_values *v, int hole, char *to)
{
	const struct fx_short *s = v->s;
	const struct fx_limits *l = s->limits;
	const struct fx_status *st = &s->status;
	switch (hole) {
	case FX_HOLE_TIME:
		return sprintf(to, "%s", v->time);
	case FX_HOLE_COMMAND:
		return sprintf(to, "%s", v->command);
	case FX_HOLE_EXEC:
		return fx_exec_name(l, to, FX_VALUE);
	case FX_HOLE_FINDING:
		return snprintf(to, FX_VALUE, "%s", v->finding);
	case FX_HOLE_STATUS:
		return sprintf(to, "%d", WEXITSTATUS(st->wait_status));
	case FX_HOLE_STDOUT:
	case FX_HOLE_STDERR:
		return fx_json_text(to, s->kept[hole == FX_HOLE_STDERR].data, s->kept[hole == FX_HOLE_STDERR].len);
	case FX_HOLE_STDOUT_BYTES:
	case FX_HOLE_STDERR_BYTES:
		return sprintf(to, "%lld", (long long)s->total[hole == FX_HOLE_STDERR_BYTES]);
	case FX_HOLE_WALL:
		return thousandths(to, s->wall_us);
	case FX_HOLE_CPU:
		return thousandths(to, fx_used_cpu(l, st->utime_us + st->stime_us));
	case FX_HOLE_RSS:
		return sprintf(to, "%lld", (long long)fx_used_memory(l, st->maxrss_kib * 1024, st->faults, s->launcher));
	case FX_HOLE_WRITTEN:
		return sprintf(to, "%lld", (long long)st->written_blocks * 512);
	case FX_HOLE_TASKS:
		return sprintf(to, "%u", st->tasks);
	case FX_HOLE_WALL_LIMIT:
		return seconds(to, l->wall_us);
	case FX_HOLE_CPU_LIMIT:
		return seconds(to, l->cpu_us);
	}
	return -1;
}

// fx_fill fills in a template, and ends it with a newline. What it gives is the caller's to free; NULL where it cannot.
char *fx_fill(const struct fx_text *t, const struct fx_values *v, size_t *size)
{
	char *to = NULL, *p;
	size_t most = t->n + 1 + FX_HOLES * FX_VALUE + (v->s ? 6 * (v->s->kept[0].len + v->s->kept[1].len) : 0);
	if (t->n == 0 || !(to = p = malloc(most)))
		return NULL;
	for (size_t i = 0; i < t->n; i++) {
		if (t->p[i] != FX_HOLE) {
			*p++ = t->p[i];
			continue;
		}
		int64_t n = ++i < t->n ? value(v, t->p[i], p) : -1;
		if (n < 0) {
			free(to);
			return NULL;
		}
		p += n;
	}
	*p++ = '\n';
	*size = (size_t)(p - to);
	return to;
}

// nothing_special reports whether a program has exited by itself, and no limit may have had a part in it. It is false too often rather
// than too seldom; container.Result.judge decides.
static int nothing_special(const struct fx_short *s, const struct fx_launch *la)
{
	const struct fx_limits *l = s->limits;
	const struct fx_status *st = &s->status;
	if (!s->reported || s->cancelled || !WIFEXITED(st->wait_status) || WEXITSTATUS(st->wait_status) == 128 + SIGXFSZ)
		return 0; // so a shell reports that its command wanted too large a file
	if (l->why != FX_BY_ITSELF || l->oom_kills > 0 || s->relay_gone || s->note_failed || s->input_failed)
		return 0;
	if (l->pids > 0 && (l->pids_events != 0 || l->tasks_peak >= l->pids || st->left + 1 >= l->pids))
		return 0;
	for (int i = 0; i < 2; i++)
		if (s->failed[i] || (s->kept[i].data && s->total[i] != (int64_t)s->kept[i].len))
			return 0;
	for (size_t i = 0; i < la->n_absent; i++)
		if (la->absent[i].writable && !fx_nothing_at(la->absent[i].grant, la->absent[i].below))
			return 0;
	return 1;
}

// write_all writes all, also where somebody else who has the same file has made it non-blocking. It gives an errno.
static int write_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t w = write(fd, p, n);
		if (w < 0 && errno == EAGAIN) {
			struct pollfd wait = {fd, POLLOUT, 0};
			poll(&wait, 1, -1);
		} else if (w < 0 && errno != EINTR)
			return errno;
		else if (w > 0) {
			p += w;
			n -= (size_t)w;
		}
	}
	return 0;
}

void fx_answer(struct fx_short *s, const struct fx_launch *la, const struct fx_request *q)
{
	int status = WEXITSTATUS(s->status.wait_status);
	struct fx_values v = {.s = s, .finding = status ? la->failed : la->fine};
	size_t n = 0;
	char *result = NULL;
	if (!nothing_special(s, la) || fx_claim_lost())
		return;
	if (q->json || q->result)
		result = fx_fill(&la->results[(s->merged ? FX_MERGED : 0) | (la->timed ? FX_TIMEOUT : 0)], &v, &n);
	if ((q->json || q->result) && !result)
		return; // the output is no text
	if (fx_event_ended(s, la, &v) < 0)
		return;
	s->noted = 1;
	if (q->result) {
		s->result_given = 1;
		if ((s->result_failed = write_all(s->result_file, result, n)) != 0 || (s->result_failed = fx_commit_result(s, q)) != 0)
			return;
	}
	if (q->json) {
		s->printed = 1;
		if ((s->print_failed = write_all(1, result, n)) != 0)
			return;
	}
	if (close(1) < 0) { // some file systems say only then that the disk is full
		s->failed[0] = errno;
		return;
	}
	_exit(status);
}
