package policy

import (
	"math"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// policyKeys is the only table of the keys of a policy. The loader, the nearest key in messages, Canonical, the schema and the
// reference are made from it.
func policyKeys() []key[Policy] {
	return []key[Policy]{
		versionKey().must(),
		extendsKey(),
		nameKey(),
		wordKey("enforce", "What sandboxrun does if this machine cannot give a protection that the policy asks for. required: "+
			"it refuses to run. best_effort: it runs with less, prints a warning, and lists the difference under weaker in state and record. "+
			"That concerns limits, the handler of crashes, and the user id of root's programs: if a writable grant of root cannot be idmapped, "+
			"the program is root to the host, without capabilities. A step that every sandbox needs is never left out.", []string{EnforceRequired, EnforceBestEffort},
			func(p *Policy) *string { return &p.Enforce }).byDefault(`"required"`),
		workdirKey().byDefault("the workspace; without a workspace, /"),
		userKey().byDefault(`"caller"`),
		recordKey("workspace", "The directory in which the program works.", workspaceKeys(),
			func(p *Policy) **rootfs.Workspace { return &p.Files.Workspace },
			func(w *rootfs.Workspace) *string { return &w.From }),
		sectionKey("files", "Which files of the host the program sees. A deny wins over every grant. Among grants the more "+
			"specific path wins.", filesKeys()),
		recordsKey("bind", "A file or directory of the host at another path inside.", bindKeys(),
			func(p *Policy) *[]rootfs.Bind { return &p.Files.Binds }, func(b *rootfs.Bind) *string { return &b.From }),
		sectionKey("env", "The program's environment. A variable of the caller reaches the program only if this table names it.", envKeys()),
		sectionKey("network", "Which hosts and ports the program can reach.", networkKeys()),
		sectionKey("limits", "How much the program may use. A limit that is not given is not set.", limitKeys()),
		sectionKey("processes", "Which programs the program may start.", processKeys()),
		viewsKey("views", "What an exec of the same sandbox sees besides, read-only, or does not see, where it asks for the view: exec --view NAME. "+
			"No other exec has anything of it.", viewKeys()),
	}
}

func workspaceKeys() []key[rootfs.Workspace] {
	type ws = rootfs.Workspace
	return []key[ws]{
		workspaceSourceKey(),
		pathKey("path", "The path of the workspace inside.", true, func(w *ws) *string { return &w.Path }).
			byDefault("the directory's path on the host; /w for \"tmpfs\" and \"disk\""),
		pathKey("parent", "The directory on the host in which sandboxrun makes what is on disk: a workspace of source = \"disk\", and copies of binds. "+
			"No program may be able to write there.", false, func(w *ws) *string { return &w.Parent }).byDefault("/var/tmp"),
		sizeKey("size", "The size of a tmpfs.", minSpace, func(w *ws) *int64 { return &w.Size }),
		wordKey("lifetime", "sandbox: all execs share the workspace. exec, only with a tmpfs: each exec gets a new one, which is removed with the exec.",
			[]string{"sandbox", "exec"}, func(w *ws) *string { return &w.Lifetime }).byDefault(`"sandbox"`),
	}
}

func filesKeys() []key[Policy] {
	module := func() map[string]any { return map[string]any{"type": "string", "pattern": modulePattern} }
	return []key[Policy]{
		baseKey().byDefault(`"system"`),
		interpretersKey(),
		textsKey("packages", "list of names", "Python distributions that the program sees even if they are editable or on PYTHONPATH. An interpreter of "+
			"files.interpreters has to have them.",
			pathSchema, verbatim, func(p *Policy) *[]string { return &p.Interpreters.Packages }),
		textsKey("hide_modules", "list of names", "Python modules, packages and namespace packages, by their dotted names, that do not exist for the program: "+
			"`import` and `find_spec` do not find them, and no directory lists them. Their byte code in caches, and the metadata of distributions that provide "+
			"nothing else, are hidden with them. They are looked for, without running an interpreter, where the policy shows standard libraries and site "+
			"directories, and at the top of each grant. Where the program may write, and where this machine cannot mount an overlay, they are empty "+
			"instead of absent, with a warning.",
			module, checkModule, func(p *Policy) *[]string { return &p.Interpreters.HideModules }),
		grantsKey("read", "Files and directories that the program can read, at their paths on the host.",
			func(p *Policy) *[]rootfs.Grant { return &p.Files.Read }),
		grantsKey("write", "Files and directories that the program can read and write, at their paths on the host.",
			func(p *Policy) *[]rootfs.Grant { return &p.Files.Write }),
		deniesKey(),
		recordsKey("tmpfs", "Empty writable directories in memory.", tmpfsKeys(),
			func(p *Policy) *[]rootfs.Tmpfs { return &p.Files.Tmpfs }, func(t *rootfs.Tmpfs) *string { return &t.From }),
		recordKey("home", "The program's home directory, which is in memory.", tmpfsKeys()[1:],
			func(p *Policy) **rootfs.Tmpfs { return &p.Files.Home }, func(t *rootfs.Tmpfs) *string { return &t.From }),
		grantsKey("secrets", "Files and directories that no grant may show. A grant that has a secret in it, or lies in one, is an error. "+
			"Each start checks that the program cannot see a secret.", func(p *Policy) *[]rootfs.Grant { return &p.Files.Secrets }),
		wordKey("missing", "What happens to a grant whose path does not exist on the host. error: the policy is refused. skip: the grant is left out.",
			[]string{"error", "skip"}, func(p *Policy) *string { return &p.Files.Missing }).byDefault(`"error"`),
	}
}

func tmpfsKeys() []key[rootfs.Tmpfs] {
	return []key[rootfs.Tmpfs]{
		pathKey("path", "The path inside.", true, func(t *rootfs.Tmpfs) *string { return &t.Path }).must(),
		sizeKey("size", "The size of the directory's files together.", minSpace, func(t *rootfs.Tmpfs) *int64 { return &t.Size }),
		countKey("inodes", "The number of files and directories in it.", 1, math.MaxInt32,
			func(t *rootfs.Tmpfs) *int64 { return &t.Inodes }),
		wordKey("lifetime", "sandbox: all execs share it. exec: each exec gets a new one, which is removed with the exec.",
			[]string{"sandbox", "exec"}, func(t *rootfs.Tmpfs) *string { return &t.Lifetime }).byDefault(`"sandbox"`),
	}
}

func bindKeys() []key[rootfs.Bind] {
	return []key[rootfs.Bind]{
		pathKey("source", "The file or directory on the host.", false,
			func(b *rootfs.Bind) *string { return &b.Source }).must(),
		pathKey("target", "The path inside.", true, func(b *rootfs.Bind) *string { return &b.Target }).must(),
		flagKey("writable", "Whether the program can write it.",
			func(b *rootfs.Bind) *bool { return &b.Writable }).byDefault("false"),
		flagKey("copy", "Whether the program gets a private copy that it can write. It is made on disk with the sandbox and removed with it; links that leave it, special files "+
			"and what is denied are left out. collect, get and export hand it back.", func(b *rootfs.Bind) *bool { return &b.Copy }).byDefault("false"),
	}
}

func viewKeys() []key[View] {
	return []key[View]{
		grantsKey("read", "Files and directories that the program can read, at their paths on the host.",
			func(v *View) *[]rootfs.Grant { return &v.Read }),
		recordsKey("bind", "A file or directory of the host at another path inside.", bindKeys()[:2], // never writable
			func(v *View) *[]rootfs.Bind { return &v.Binds }, func(b *rootfs.Bind) *string { return &b.From }),
		grantsKey("deny", "Files and directories that are hidden, under every path that leads to them.",
			func(v *View) *[]rootfs.Grant { return &v.Deny }),
	}
}

func envKeys() []key[Policy] {
	pattern := func() map[string]any { return map[string]any{"type": "string", "pattern": variablePattern} }
	return []key[Policy]{
		textsKey("allow", "list of names", "Variables that the program gets from the caller: names, or patterns in which \"*\" stands for any "+
			"characters.", pattern, checkVariablePattern, func(p *Policy) *[]string { return &p.Env.Allow }),
		textsKey("deny", "list of names", "Variables of the caller that the program does not get, although allow names them: names or patterns. Variables of set and "+
			"--env are no variables of the caller, and stay.", pattern, checkVariablePattern, func(p *Policy) *[]string { return &p.Env.Deny }),
		envSetKey(),
		flagKey("redact", "Whether sandboxrun replaces the values of the variables *_API_KEY, *_KEY, *_TOKEN and *_SECRET by <NAME>. It does so for values "+
			"of 16 characters or more, of the program's variables and of those of the caller that do not pass, in stored output: results, logs, files of --output-dir, events and messages. "+
			"Output that goes straight to the caller is unchanged.", func(p *Policy) *bool { return &p.Env.Redact }).byDefault("true"),
	}
}

func networkKeys() []key[Policy] {
	service := func() map[string]any { return map[string]any{"type": "string", "pattern": servicePattern} }
	return []key[Policy]{
		modeKey().byDefault(`"isolated"`),
		portsKey(),
		textsKey("services", "list of URLs", "HTTP services that the program uses, as http or https URLs without user name and password. A URL of the host's loopback becomes a "+
			"forwarded port, any other URL an allowed host.",
			service, checkService,
			func(p *Policy) *[]string { return &p.Network.Services }),
		flagKey("env_urls", "Whether the port of every URL http(s)://127.0.0.1:PORT or http(s)://localhost:PORT in the program's environment is "+
			"forwarded.", func(p *Policy) *bool { return &p.Network.EnvURLs }).byDefault("true"),
		textsKey("allowed_hosts", "list of hosts", "Hosts that the program can reach: host[:port], *.suffix[:port], or an IP address; brackets stand around an IPv6 address with "+
			"a port. Without a port, 443 and 80 are allowed. *.example.org does not allow example.org.", pathSchema,
			checkHost(netpolicy.ParseHost), func(p *Policy) *[]string { return &p.Network.AllowedHosts }),
		textsKey("allow_private", "list of hosts", "Allowed hosts that may resolve to private, loopback or link-local "+
			"addresses. They are written as in allowed_hosts, without a port.", pathSchema,
			checkHost(netpolicy.ParsePrivateHost), func(p *Policy) *[]string { return &p.Network.AllowPrivate }),
		flagKey("transparent", "Whether programs that ignore proxy variables reach allowed hosts too.",
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
		durationKey("wall", "Time from the start of an exec to its end; 0 means no limit.",
			func(p *Policy) *time.Duration { return &p.Limits.Wall }),
		durationKey("idle", "Time without output; 0 means no limit.",
			func(p *Policy) *time.Duration { return &p.Limits.Idle }),
		durationKey("cpu", "Processor time of all processes of an exec together; 0 means the default.",
			func(p *Policy) *time.Duration { return &p.Limits.CPU }).byDefault("twice wall"),
		fractionKey("cpus", "Number of processors that the program may keep busy.", 0.01, 4096,
			func(p *Policy) *float64 { return &p.Limits.CPUs }),
		sizeKey("memory", "Memory that the program uses, not its address space.", minMemory,
			func(p *Policy) *int64 { return &p.Limits.Memory }),
		countKey("pids", "Number of processes and threads of this sandbox. The user's other processes do not count.", 1, math.MaxInt32,
			func(p *Policy) *int64 { return &p.Limits.Pids }),
		sizeKey("file", "Size of the largest file that the program may write.", 1, func(p *Policy) *int64 { return &p.Limits.File }),
		sizeKey("disk", "Disk space that the program may use in writable grants.", minSpace, func(p *Policy) *int64 { return &p.Limits.Disk }),
		countKey("nofile", "Number of open files of one process.", 1, math.MaxInt32,
			func(p *Policy) *int64 { return &p.Limits.Nofile }),
		sizeKey("output", "How much of stdout, and of stderr, a result keeps: the first and the last half of this size.", 1,
			func(p *Policy) *int64 { return &p.Limits.Output }),
	}
}

func processKeys() []key[Policy] {
	return []key[Policy]{
		flagKey("spawn", "Whether the program may start processes. false: fork, vfork, clone of a process and every execve fail with EPERM; threads work. "+
			"The program itself is executed as always, also a script with its interpreter, but a script that begins with #!/usr/bin/env needs a second execve and fails.",
			func(p *Policy) *bool { return &p.Processes.Spawn }).byDefault("true"),
		flagKey("native", "Whether the program may load native code from files that it can write. false: what it can write is mounted noexec, and it has no memfd_create, so the "+
			"kernel refuses to execute such a file and to map it as code: dlopen, ctypes and extension modules work only from what is installed. Code in anonymous "+
			"memory, as of a just-in-time compiler, is not refused: docs/security.md.",
			func(p *Policy) *bool { return &p.Processes.Native }).byDefault("true"),
		flagKey("userns", "Whether the program may make user namespaces, and in them namespaces and mounts of its own: for programs that bring a sandbox, as bubblewrap and Chromium do. "+
			"It gets no capability outside of them, and can undo no mask, deny or read-only mount. But it reaches kernel code that is closed otherwise, so the sandbox is listed "+
			"as weaker: docs/security.md. Not with spawn = false, native = false, execute, guard or user = \"root\".",
			func(p *Policy) *bool { return &p.Processes.Userns }).byDefault("false"),
		flagKey("proc", "Whether the program has a /proc, which shows the processes of its own exec and what the kernel says of the machine. false: /proc is an empty directory that nothing "+
			"can be made in. Then some programs fail, or do something else: docs/security.md. Not with userns = true, nor with a grant that shows a procfs.",
			func(p *Policy) *bool { return &p.Processes.Proc }).byDefault("true"),
		grantsKey("execute", "The only files that the program may execute, by their paths inside; if empty, every file. The interpreters that these files "+
			"name after #! and their ELF loaders are allowed too. The program must not be able to change any of these files. What it can write is mounted noexec, "+
			"and memfd_create makes only files that cannot be executed. Loading a library is no execution, and an ELF loader or an interpreter runs other programs "+
			"that it can read: docs/security.md. It needs Linux 5.19 with Landlock; otherwise the policy is refused.",
			func(p *Policy) *[]rootfs.Grant { return &p.Processes.Execute }),
		wordKey("guard", "python: a guard in the interpreter refuses network, processes, signals, ctypes, cffi and native extensions outside the interpreter's own directories, "+
			"and counts steps. Only a Python of 3.8 or later can be started. It is a second layer: docs/security.md says what passes it.",
			[]string{"", "python"}, func(p *Policy) *string { return &p.Processes.Guard }).byDefault(`""`),
		countKey("steps", "How many steps the program may take; 0 means no limit. A step is a line of Python that begins to run, in any thread, also of an imported module, or "+
			"a jump back within a line. The guard ends the program before the next step: outcome steps_exceeded, status 121. It needs guard = \"python\".", 0, math.MaxInt64,
			func(p *Policy) *int64 { return &p.Processes.Steps }).byDefault("0"),
	}
}
