package spec

import (
	"math"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// policyKeys is the one table of all keys of a policy. The loader, the nearest key in messages, Canonical, the schema
// and the reference come from it.
func policyKeys() []key[Policy] {
	return []key[Policy]{
		versionKey().must(),
		extendsKey(),
		nameKey(),
		wordKey("enforce", "What happens when the machine cannot give a protection that the policy asks for: refuse to run, "+
			"or run with the next best and record what is missing: limits that cannot be held as asked, and, where root grants for writing what cannot be idmapped, a program that is root to the host.", []string{EnforceRequired, EnforceBestEffort},
			func(p *Policy) *string { return &p.Enforce }).byDefault(`"required"`),
		workdirKey().byDefault("the workspace, else /"),
		userKey().byDefault(`"caller"`),
		recordKey("workspace", "The directory that the program works in.", workspaceKeys(),
			func(p *Policy) **rootfs.Workspace { return &p.Files.Workspace },
			func(w *rootfs.Workspace) *string { return &w.From }),
		sectionKey("files", "Which files of the host the program sees. A deny wins over every grant; among grants the more "+
			"specific path wins.", filesKeys()),
		recordsKey("bind", "A host path under a name of its own.", bindKeys(),
			func(p *Policy) *[]rootfs.Bind { return &p.Files.Binds }, func(b *rootfs.Bind) *string { return &b.From }),
		sectionKey("env", "The program's environment. Nothing of the caller's passes that is not named here.", envKeys()),
		sectionKey("network", "Whom the program may talk to.", networkKeys()),
		sectionKey("limits", "What the program may use. A limit that is not given is not set.", limitKeys()),
		sectionKey("processes", "What the program may start.", processKeys()),
		viewsKey("views", "What the execs that ask for a view see besides the rest: the same sandbox, shown differently.",
			viewKeys()),
	}
}

func workspaceKeys() []key[rootfs.Workspace] {
	type ws = rootfs.Workspace
	return []key[ws]{
		workspaceSourceKey(),
		pathKey("path", "Where the workspace is inside.", true, func(w *ws) *string { return &w.Path }).
			byDefault("the directory's own path, /w for a tmpfs"),
		sizeKey("size", "How much a tmpfs holds.", minSpace, func(w *ws) *int64 { return &w.Size }),
		wordKey("lifetime", "Whether all execs share the workspace, or each gets a fresh one and leaves nothing.",
			[]string{"sandbox", "exec"}, func(w *ws) *string { return &w.Lifetime }).byDefault(`"sandbox"`),
	}
}

func filesKeys() []key[Policy] {
	module := func() map[string]any { return map[string]any{"type": "string", "pattern": modulePattern} }
	return []key[Policy]{
		baseKey().byDefault(`"system"`),
		textsKey("interpreters", "list of names or paths", "Language interpreters to show as they are installed, with their "+
			"standard library and site directories. Every other interpreter's site directory is empty.",
			pathSchema, verbatim, func(p *Policy) *[]string { return &p.Interpreters.Show }),
		textsKey("packages", "list of names", "Distributions to show although they are editable or on PYTHONPATH.",
			pathSchema, verbatim, func(p *Policy) *[]string { return &p.Interpreters.Packages }),
		textsKey("hide_modules", "list of names", "Python modules that are hidden under every name, with their caches.",
			module, checkModule, func(p *Policy) *[]string { return &p.Interpreters.HideModules }),
		grantsKey("read", "Files and directories at their own place, read-only.",
			func(p *Policy) *[]rootfs.Grant { return &p.Files.Read }),
		grantsKey("write", "Files and directories at their own place, writable.",
			func(p *Policy) *[]rootfs.Grant { return &p.Files.Write }),
		grantsKey("deny", "Files and directories that are hidden, under every name by which they can be reached. "+
			"Wins over every grant.", func(p *Policy) *[]rootfs.Grant { return &p.Files.Deny }),
		recordsKey("tmpfs", "Empty writable directories in memory.", tmpfsKeys(),
			func(p *Policy) *[]rootfs.Tmpfs { return &p.Files.Tmpfs }, func(t *rootfs.Tmpfs) *string { return &t.From }),
		grantsKey("secrets", "What no grant may hold or lie inside: such a grant refuses the policy, and each secret is "+
			"proven absent inside at every start.", func(p *Policy) *[]rootfs.Grant { return &p.Files.Secrets }),
		wordKey("missing", "What a grant whose host path does not exist is: an error, or left out.",
			[]string{"error", "skip"}, func(p *Policy) *string { return &p.Files.Missing }).byDefault(`"error"`),
	}
}

func tmpfsKeys() []key[rootfs.Tmpfs] {
	return []key[rootfs.Tmpfs]{
		pathKey("path", "Where it is inside.", true, func(t *rootfs.Tmpfs) *string { return &t.Path }).must(),
		sizeKey("size", "How much it holds.", minSpace, func(t *rootfs.Tmpfs) *int64 { return &t.Size }),
		countKey("inodes", "How many files it holds.", 1, math.MaxInt32,
			func(t *rootfs.Tmpfs) *int64 { return &t.Inodes }),
	}
}

func bindKeys() []key[rootfs.Bind] {
	return []key[rootfs.Bind]{
		pathKey("source", "The file or directory on the host.", false,
			func(b *rootfs.Bind) *string { return &b.Source }).must(),
		pathKey("target", "Where it is inside.", true, func(b *rootfs.Bind) *string { return &b.Target }).must(),
		flagKey("writable", "Whether the program may change it.",
			func(b *rootfs.Bind) *bool { return &b.Writable }).byDefault("false"),
	}
}

func viewKeys() []key[View] {
	return []key[View]{
		grantsKey("read", "Files and directories at their own place, read-only.",
			func(v *View) *[]rootfs.Grant { return &v.Read }),
		recordsKey("bind", "A host path under a name of its own.", bindKeys(),
			func(v *View) *[]rootfs.Bind { return &v.Binds }, func(b *rootfs.Bind) *string { return &b.From }),
	}
}

func envKeys() []key[Policy] {
	pattern := func() map[string]any { return map[string]any{"type": "string", "pattern": variablePattern} }
	return []key[Policy]{
		textsKey("allow", "list of names", "Variables taken from the caller: names, or patterns in which \"*\" stands for any "+
			"characters.", pattern, checkVariablePattern, func(p *Policy) *[]string { return &p.Env.Allow }),
		envSetKey(),
		flagKey("redact", "Whether values of *_API_KEY, *_KEY, *_TOKEN and *_SECRET that have 16 characters or more become "+
			"<NAME> in everything that is kept: the output in results and logs and in files of --output-dir, events, and messages. "+
			"What a program writes straight to the caller is as it is.", func(p *Policy) *bool { return &p.Env.Redact }).byDefault("true"),
	}
}

func networkKeys() []key[Policy] {
	service := func() map[string]any { return map[string]any{"type": "string", "pattern": servicePattern} }
	return []key[Policy]{
		modeKey().byDefault(`"isolated"`),
		portsKey(),
		textsKey("services", "list of URLs", "HTTP services that the program uses: each becomes a forwarded port or an "+
			"allowed host. Only http and https, without user name and password.",
			service, checkService,
			func(p *Policy) *[]string { return &p.Network.Services }),
		flagKey("env_urls", "Whether the port of every http(s)://127.0.0.1:PORT or localhost in the passed environment is "+
			"forwarded.", func(p *Policy) *bool { return &p.Network.EnvURLs }).byDefault("true"),
		textsKey("allowed_hosts", "list of hosts", "host[:port], *.suffix[:port], or an IP address, an IPv6 one with a port in "+
			"brackets. Without a port, 443 and 80 are allowed. A suffix does not allow itself.", pathSchema,
			checkHost(netpolicy.ParseHost), func(p *Policy) *[]string { return &p.Network.AllowedHosts }),
		textsKey("allow_private", "list of hosts", "Allowed hosts that may resolve to private, loopback or link-local "+
			"addresses: as in allowed_hosts, without a port.", pathSchema,
			checkHost(netpolicy.ParsePrivateHost), func(p *Policy) *[]string { return &p.Network.AllowPrivate }),
		flagKey("transparent", "Whether allowed hosts also work for programs that ignore proxy variables.",
			func(p *Policy) *bool { return &p.Network.Transparent }).byDefault("true"),
		upstreamKey(),
		textsKey("no_proxy", "list of hosts", "Hosts that upstream_proxy is not asked for, as in NO_PROXY: a name and all below it, .SUFFIX, an "+
			"address, ADDRESS/BITS, each with :PORT for one port; \"*\" for all. Their addresses are judged as without a proxy.", pathSchema,
			func(s string) (string, error) { return s, netpolicy.CheckNoProxy(s) },
			func(p *Policy) *[]string { return &p.Network.NoProxy }),
		flagKey("explain", "Whether the program is told of hosts that are refused: one line on its standard error for each host and exec, which says "+
			"what the policy lacks. Every program that runs in the sandbox at that time is told.",
			func(p *Policy) *bool { return &p.Network.Explain }).byDefault("false"),
	}
}

func limitKeys() []key[Policy] {
	return []key[Policy]{
		durationKey("wall", "Time on the clock; 0 means no limit.",
			func(p *Policy) *time.Duration { return &p.Limits.Wall }),
		durationKey("idle", "Time without any output; 0 means no limit.",
			func(p *Policy) *time.Duration { return &p.Limits.Idle }),
		durationKey("cpu", "CPU time of all processes together; 0 means the default.",
			func(p *Policy) *time.Duration { return &p.Limits.CPU }).byDefault("twice wall"),
		fractionKey("cpus", "CPUs that may be busy at once.", 0.01, 4096,
			func(p *Policy) *float64 { return &p.Limits.CPUs }),
		sizeKey("memory", "Memory that is really used, not address space.", MinMemory,
			func(p *Policy) *int64 { return &p.Limits.Memory }),
		countKey("pids", "Processes and threads of this sandbox; not the user's others.", 1, math.MaxInt32,
			func(p *Policy) *int64 { return &p.Limits.Pids }),
		sizeKey("file", "The largest file that may be written.", 1, func(p *Policy) *int64 { return &p.Limits.File }),
		sizeKey("disk", "What may be written to writable grants.", minSpace, func(p *Policy) *int64 { return &p.Limits.Disk }),
		countKey("nofile", "Open files of one process.", 1, math.MaxInt32,
			func(p *Policy) *int64 { return &p.Limits.Nofile }),
		sizeKey("output", "What is kept of each of stdout and stderr: the beginning and the end.", 1,
			func(p *Policy) *int64 { return &p.Limits.Output }),
	}
}

func processKeys() []key[Policy] {
	return []key[Policy]{
		flagKey("spawn", "Whether the program may start processes. Threads are always allowed.",
			func(p *Policy) *bool { return &p.Processes.Spawn }).byDefault("true"),
		grantsKey("execute", "The only files that may be executed; when empty, every file may be.",
			func(p *Policy) *[]rootfs.Grant { return &p.Processes.Execute }),
		wordKey("guard", "The guard inside the interpreter: an audit hook and a step budget.",
			[]string{"", "python"}, func(p *Policy) *string { return &p.Processes.Guard }).byDefault(`""`),
		countKey("steps", "The guard's step budget; 0 means none.", 0, math.MaxInt64,
			func(p *Policy) *int64 { return &p.Processes.Steps }).byDefault("0"),
	}
}
