// What the command line of an exec asks for, where it is plain: as cli/exec.go and the library read it.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "short.h"

#define MAX_ENV 256

enum option { JSON, STDIN, TIMEOUT, CWD, RESULT, ENV, E, POLICY, OWNER };

enum command { EXEC = 1, RUN = 2, BOTH = 3, CREATE = 4, DELETE = 8 };

static const struct { const char *name; enum option is; int takes; enum command of; } options[] = {
	{"json", JSON, 0, BOTH}, {"stdin", STDIN, 0, EXEC}, {"i", STDIN, 0, EXEC}, {"timeout", TIMEOUT, 1, BOTH}, {"cwd", CWD, 1, EXEC},
	{"C", CWD, 1, EXEC}, {"result", RESULT, 1, BOTH}, {"env", ENV, 1, BOTH}, {"e", E, 1, BOTH}, {"policy", POLICY, 1, RUN | CREATE}, {"p", POLICY, 1, RUN | CREATE},
	{"owner", OWNER, 1, CREATE},
};

static int digits(const char **p, int most, int64_t *n)
{
	int have = 0;
	for (*n = 0; **p >= '0' && **p <= '9' && have <= most; have++)
		*n = *n * 10 + *(*p)++ - '0';
	return have > 0 && have <= most;
}

// duration reads spec.ParseDuration's usual forms: "90", "1.5", "1.5s", "200ms", "2m". 0 is for Go.
static int64_t duration(const char *p)
{
	static const struct { const char *name; int64_t us; } units[] = {{"", 1000000}, {"s", 1000000}, {"ms", 1000}, {"m", 60000000}};
	int64_t n, thousandths = 0;
	if (!digits(&p, 6, &n))
		return 0;
	if (*p == '.') {
		const char *from = ++p;
		if (!digits(&p, 3, &thousandths))
			return 0;
		for (ptrdiff_t have = p - from; have < 3; have++)
			thousandths *= 10;
	}
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (strcmp(p, units[i].name) == 0)
			return n * units[i].us + thousandths * (units[i].us / 1000);
	return 0;
}

// variable is what --env sets: NAME=VALUE, or the caller's.
static const char *variable(const char *text, char *const *env)
{
	size_t n = strlen(text);
	if (n == 0 || text[0] == '=' || strchr(text, '='))
		return n == 0 || text[0] == '=' ? NULL : text;
	for (; *env; env++)
		if (strncmp(*env, text, n) == 0 && (*env)[n] == '=')
			return *env;
	return NULL;
}

static int set(struct fx_request *q, unsigned *given, enum option is, const char *value, char *const *env)
{
	if (is != ENV && is != E && (*given & 1u << is)) // what is given twice the library decides
		return -1;
	*given |= 1u << is;
	switch (is) {
	case JSON:
		q->json = 1;
		return 0;
	case STDIN:
		q->input = 1;
		return 0;
	case TIMEOUT:
		q->timeout_us = duration(value);
		return q->timeout_us > 0 ? 0 : -1;
	case CWD:
		q->cwd = value;
		return *value ? 0 : -1;
	case RESULT:
		q->result = value;
		return *value ? 0 : -1;
	case POLICY:
		q->policy = value;
		return *value ? 0 : -1;
	case OWNER:
		q->owner = strcmp(value, "none") == 0 ? "" : value;
		return *value && strspn(q->owner, "0123456789") == strlen(q->owner) ? 0 : -1;
	case ENV:
	case E:
		if (q->n_env == MAX_ENV || !(q->env[q->n_env] = variable(value, env)))
			return -1;
		q->n_env++;
		return (*given & (1u << ENV | 1u << E)) == (1u << ENV | 1u << E) ? -1 : 0; // one kind goes before the other
	}
	return -1;
}

// take reads one option. It gives what comes behind it, or NULL.
static char **take(struct fx_request *q, enum command of, unsigned *given, char **arg, char *const *env)
{
	const char *name = arg[0] + 1 + (arg[0][1] == '-'), *value = strchr(name, '=');
	size_t n = value ? (size_t)(value - name) : strlen(name);
	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		if (!(options[i].of & of) || strlen(options[i].name) != n || strncmp(options[i].name, name, n) != 0)
			continue;
		if (!options[i].takes)
			return value || set(q, given, options[i].is, "", env) < 0 ? NULL : arg + 1;
		value = value ? value + 1 : *++arg;
		return !value || set(q, given, options[i].is, value, env) < 0 ? NULL : arg + 1;
	}
	return NULL;
}

static int is_option(const char *arg) { return arg && arg[0] == '-' && arg[1] && strcmp(arg, "--") != 0; }

// program reads what follows the options.
static int program(struct fx_request *q, char **args)
{
	if (!args || !*args || is_option(*args))
		return -1;
	args += strcmp(*args, "--") == 0;
	q->argv = args;
	for (; *args; args++)
		if (!args[1] && strcmp(*args, "--generate-bash-completion") == 0)
			return -1;
	return q->argv[0] ? 0 : -1;
}

int fx_read_request(struct fx_request *q, char **args, char *const *env)
{
	unsigned before = 0, after = 0;
	memset(q, 0, sizeof *q);
	q->env = calloc(MAX_ENV, sizeof *q->env);
	while (q->env && args && is_option(*args))
		args = take(q, EXEC, &before, args, env);
	if (!q->env || !args || !*args || strcmp(*args, "--") == 0)
		return -1;
	q->id = *args++;
	while (!before && args && is_option(*args))
		args = take(q, EXEC, &after, args, env);
	return program(q, args);
}

int fx_read_run(struct fx_request *q, char **args, char *const *env)
{
	unsigned given = 0;
	memset(q, 0, sizeof *q);
	q->env = calloc(MAX_ENV, sizeof *q->env);
	while (q->env && args && is_option(*args))
		args = take(q, RUN, &given, args, env);
	q->input = !q->json;
	return q->env ? program(q, args) : -1;
}

// one_id reads options and the id behind them, with which the command line ends.
static int one_id(struct fx_request *q, enum command of, char **args)
{
	unsigned given = 0;
	memset(q, 0, sizeof *q);
	while (args && is_option(*args))
		args = take(q, of, &given, args, NULL);
	if (!args || !args[0] || args[1] || strcmp(args[0], "--") == 0)
		return -1;
	q->id = args[0];
	return 0;
}

int fx_read_create(struct fx_request *q, char **args) { return one_id(q, CREATE, args); }

int fx_read_delete(struct fx_request *q, char **args) { return one_id(q, DELETE, args); }
