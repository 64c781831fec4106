//go:build sabotage

// Only in builds for tests. SANDBOXRUN_SABOTAGE names the layers that are left out, with commas between them.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "child.h"

static const char *layers = "";

// Before client.c, which is a constructor too.
__attribute__((constructor(102))) static void read_layers(void)
{
	const char *names = getenv("SANDBOXRUN_SABOTAGE");
	if (names)
		layers = names;
}

int fx_without(const char *name)
{
	size_t n = strlen(name);
	for (const char *p = layers; *p; p += *p == ',') {
		size_t len = strcspn(p, ",");
		if (len == n && memcmp(p, name, n) == 0)
			return 1;
		p += len;
	}
	return 0;
}
