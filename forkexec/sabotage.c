//go:build sabotage

// Only in builds for tests. SANDBOXRUN_SABOTAGE names the layer that is left out.
#include <stdlib.h>
#include <string.h>
#include "child.h"

static const char *layer = "";

// Before client.c, which is a constructor too.
__attribute__((constructor(102))) static void read_layer(void)
{
	const char *name = getenv("SANDBOXRUN_SABOTAGE");
	if (name)
		layer = name;
}

int fx_without(const char *name) { return strcmp(layer, name) == 0; }
