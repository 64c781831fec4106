// How launch.c and plan.c read what forkexec.Launch and forkexec.Sealed have written: 64-bit numbers in host order, and texts,
// each a length, the bytes and a zero byte.
#ifndef READER_H
#define READER_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAUNCH (4 << 20)

struct reader { const char *p, *end; int bad; };

static inline uint64_t number(struct reader *r)
{
	uint64_t n = 0;
	if (r->end - r->p < (ptrdiff_t)sizeof n)
		r->bad = 1;
	else {
		memcpy(&n, r->p, sizeof n);
		r->p += sizeof n;
	}
	return n;
}

// bytes gives the next item and its length, which does not count the zero byte behind it.
static inline const char *bytes(struct reader *r, size_t *n)
{
	*n = number(r);
	if (r->bad || *n >= (size_t)(r->end - r->p) || r->p[*n] != 0) {
		r->bad = 1;
		*n = 0;
		return "";
	}
	const char *s = r->p;
	r->p += *n + 1;
	return s;
}

static inline const char *text(struct reader *r)
{
	size_t n;
	return bytes(r, &n);
}

static inline const char *optional(struct reader *r)
{
	const char *s = text(r);
	return *s ? s : NULL;
}

// strings reads a list that ends with NULL.
static inline const char **strings(struct reader *r, size_t *count)
{
	size_t n = number(r);
	*count = 0;
	if (r->bad || n > MAX_LAUNCH / 8)
		return r->bad = 1, NULL;
	const char **list = calloc(n + 1, sizeof *list);
	for (size_t i = 0; list && i < n; i++)
		list[i] = text(r);
	*count = n;
	if (!list)
		r->bad = 1;
	return list;
}

#endif
