// Package hooks has the checks at each start of a sandbox: the table of them, the facts that each needs, and the judgement of
// these facts. It makes no system call on a sandbox itself: package container collects the facts, from inside the sandbox and
// from outside. So each judgement can be tested with facts that no real sandbox has. Package hooks imports no other package
// of this repository.
//
// A check has up to three parts. The positive part must work inside, or else nothing was tested. The negative part must fail
// inside. The control shows outside that it was the sandbox that made the negative part fail.
package hooks

import (
	"fmt"
	"slices"
	"strings"
)

// Outcome is the outcome of a check.
type Outcome string

// Outcomes. A broken check refuses the sandbox. A check that was not tested shows nothing, neither good nor bad.
const (
	Held      Outcome = "held"
	Broken    Outcome = "broken"
	NotTested Outcome = "not_tested"
)

// Result is the result of one check in one sandbox.
type Result struct {
	Name    string  `json:"name"`
	Layer   string  `json:"layer"`
	Result  Outcome `json:"result"`
	Control string  `json:"control,omitempty"` // what the control showed: outside, or before the layer was there
	Detail  string  `json:"detail,omitempty"`  // which parts are broken or were not tested, and why
}

// Check is a row of the table of checks.
type Check struct {
	Name     string `json:"name"`
	Layer    string `json:"layer"`              // the mechanism that it tests
	Claim    string `json:"claim"`              // the property that must hold
	Positive string `json:"positive"`           // what must work inside; otherwise the negative part shows nothing
	Negative string `json:"negative,omitempty"` // what must fail inside, or must be true there
	Control  string `json:"control,omitempty"`  // what must be true outside

	judge func(*Subject, *Facts, *verdict)
}

// Checks is the table of the checks at each start. They run where a program would run.
func Checks() []Check {
	return slices.Concat(networkChecks(), fileChecks(), procChecks(), idChecks(), processChecks())
}

func networkChecks() []Check {
	return []Check{
		{
			Name: "net_tcp_outside_blocked", Layer: "network namespace",
			Claim:    "the program cannot reach a TCP port of the host's loopback",
			Positive: "a port of the sandbox's own loopback answers", Negative: "connect to 127.0.0.1 and to ::1 is refused or finds no network",
			Control: "the launcher listens there, and reaches itself", judge: judgeTCP,
		},
		{
			Name: "net_udp_outside_blocked", Layer: "network namespace",
			Claim:    "the program cannot reach a UDP port of the host's loopback",
			Positive: "the program can send a datagram", Negative: "the datagram does not arrive at the launcher",
			Control: "the launcher receives its own datagram", judge: judgeUDP,
		},
		{
			Name: "net_abstract_outside_blocked", Layer: "network namespace",
			Claim:    "the program cannot reach an abstract Unix socket of the host",
			Positive: "the program can make a Unix socket", Negative: "connect is refused",
			Control: "the launcher listens there, and reaches itself", judge: judgeAbstract,
		},
		{
			Name: "forwarded_ports_open", Layer: "relay",
			Claim:    "each forwarded port accepts connections",
			Positive: "connect to it succeeds", judge: judgeForwards,
		},
	}
}

func fileChecks() []Check {
	return []Check{
		{
			Name: "secret_absent", Layer: "mounts",
			Claim:    "the view has no secret of the policy, under any name that it could have for it",
			Positive: "the grants exist inside", Negative: "the path leads nowhere, or to another file",
			Control: "the secret exists on the host", judge: judgeSecrets,
		},
		{
			Name: "probe_paths_absent", Layer: "mounts",
			Claim:    "unless granted, the view has none of these: the state directory, the caller's home, its runtime directory, the host's password file, the sockets of container engines",
			Positive: "the grants exist inside", Negative: "the path leads nowhere, or to another file",
			Control: "it exists on the host", judge: judgeProbes,
		},
		{
			Name: "deny_unreadable", Layer: "masks",
			Claim:    "the program cannot read a denied file",
			Positive: "a mask exists at its path", Negative: "open fails with EACCES, or nothing is in it if it is denied as empty, and the file there is not the host's; with processes.userns it cannot be unmounted in a namespace of the program's own",
			Control: "the host's file exists", judge: judgeMasks,
		},
		{
			Name: "modules_absent", Layer: "overlays",
			Claim:    "a hidden module does not exist for the program",
			Positive: "the directory around it is in the view", Negative: "lstat fails with ENOENT",
			Control: "the host's file exists", judge: judgeGone,
		},
		{
			Name: "grants_readable", Layer: "mounts",
			Claim:    "each grant is in the view, and is the host's own file or directory",
			Positive: "its inode is the host's, and the program can read it if its mode allows that; its mount is noexec if the policy says so",
			Control:  "it exists on the host", judge: judgeGrants,
		},
		{
			Name: "readonly_not_writable", Layer: "read-only mounts",
			Claim:    "the program cannot write read-only grants, masks, the root and parts of /proc",
			Positive: "the path exists", Negative: "its mount is read-only; opening it for writing, or making a nameless file in it, fails; with processes.userns it cannot be mounted anew as writable",
			Control: "how many of them the launcher can write outside", judge: judgeReadOnly,
		},
		{
			Name: "workspace_writable", Layer: "mounts",
			Claim:    "the program can write the workspace and every other writable grant",
			Positive: "the program can make a nameless file in a directory; access(2) says that it may write a file",
			Control:  "the launcher may write the grant outside", judge: judgeWritable,
		},
		{
			Name: "foreign_files_kept", Layer: "read-only mounts and the program's id",
			Claim:    "the program cannot change the mode, owner, times, attributes or names of files that no grant shows",
			Positive: "the file exists", Negative: "chmod, chown, utimensat, setxattr, linkat, renameat2 and unlinkat fail, in forms that change nothing",
			Control: "how many of these files belong to the launcher", judge: judgeForeign,
		},
	}
}

func procChecks() []Check {
	return []Check{
		{
			Name: "proc_hidden", Layer: "masks of /proc",
			Claim:    "the files of /proc that describe the machine are masked",
			Positive: "the rest of /proc exists", Negative: "each of them is an empty device or directory, or does not exist with processes.proc = false; with processes.userns it cannot be unmounted in a namespace of the program's own",
			Control: "the host's /proc has these files", judge: judgeProc,
		},
		{
			Name: "proc_absent", Layer: "cover of /proc",
			Claim:    "with processes.proc = false the program sees no /proc",
			Positive: "the exec has a procfs: a descriptor from before the cover lists its processes", Negative: "/proc is an empty directory on a read-only mount that is no procfs; lstat of /proc/self fails with ENOENT, making a directory there with EROFS",
			Control: "the host's /proc is a procfs", judge: judgeNoProc,
		},
	}
}

func idChecks() []Check {
	return []Check{
		{
			Name: "program_id", Layer: "user namespace and idmapped mounts",
			Claim:    "the program's id on the host is the planned one, and not root's; a file that it makes in a grant has the planned owner",
			Positive: "a message of the program arrives at the launcher", Negative: "the kernel adds these ids to the message; a nameless file has the planned owner on disk",
			Control: "the launcher's own ids", judge: judgeID,
		},
	}
}

func processChecks() []Check {
	return []Check{
		{
			Name: "no_capability", Layer: "capabilities",
			Claim:    "the program has no capability in any set, and cannot regain one",
			Positive: "the capability sets can be read", Negative: "all five sets are empty; securebits are locked",
			Control: "the same process had capabilities when it entered its user namespace", judge: judgeCapabilities,
		},
		{
			Name: "no_new_privs", Layer: "no_new_privs",
			Claim:    "no setuid file and no file capability gives the program a privilege",
			Positive: "the flag can be read", Negative: "the flag is 1",
			Control: "the flag was not set when the same process entered its user namespace", judge: judgeNoNewPrivs,
		},
		{
			Name: "seccomp_filter", Layer: "seccomp",
			Claim:    "the seccomp filter is loaded",
			Positive: "the seccomp mode can be read", Negative: "the mode is 2, with one filter more than before",
			Control: "the same process without the filter", judge: judgeSeccomp,
		},
		{
			Name: "refused_calls", Layer: "seccomp",
			Claim:    "the filter refuses calls of the list",
			Positive: "other calls work", Negative: "each call fails with the filter's errno",
			Control: "without the filter the same process gets another result", judge: judgeRefused,
		},
		{
			Name: "namespaces_own", Layer: "namespaces",
			Claim:    "every namespace belongs to the sandbox, or to the exec alone",
			Positive: "the inodes of the namespaces can be read", Negative: "they differ from the host's, and those of the exec from process 1's",
			Control: "the inodes of the namespaces of the host and of process 1", judge: judgeNamespaces,
		},
		{
			Name: "host_processes_hidden", Layer: "PID namespace and /proc",
			Claim:    "the program sees only the processes of its exec",
			Positive: "its /proc, which processes.proc = false only covers, lists the processes of the exec", Negative: "it lists no other process; a signal to the launcher's pid finds no process",
			Control: "the launcher and process 1 exist on the host", judge: judgeProcesses,
		},
		{
			Name: "descriptors", Layer: "close_range",
			Claim:    "the program has descriptors 0, 1 and 2 and no other",
			Positive: "these three are open", Negative: "no other is open",
			Control: "the launcher has more descriptors", judge: judgeDescriptors,
		},
		{
			Name: "environment", Layer: "environment",
			Claim:    "execve gets only variables that the policy names",
			Positive: "it gets the variables that the policy sets", Negative: "it does not get a variable that the caller has and the policy does not name",
			Control: "the caller has that variable", judge: judgeEnvironment,
		},
		{
			Name: "limits_read_back", Layer: "rlimits, processors and cgroups",
			Claim:    "the limits that the kernel enforces for a process are those of the policy",
			Positive: "the limits can be read", Negative: "none is higher than in the policy; the process is in the exec's own cgroups",
			Control: "the launcher's own limit is higher, or it is in another cgroup", judge: judgeLimits,
		},
	}
}

// Judge computes the result of each check from the facts. It is a pure function.
func Judge(s *Subject, f *Facts) []Result {
	table := Checks()
	list := make([]Result, 0, len(table))
	for _, c := range table {
		var v verdict
		c.judge(s, f, &v)
		list = append(list, v.result(c))
	}
	return list
}

// verdict counts the parts of one check: those that held, those that are broken, and those that were not tested.
type verdict struct {
	held     int
	broken   []string
	untested []string
	control  string
}

func (v *verdict) hold() { v.held++ }

func (v *verdict) fail(format string, args ...any) {
	v.broken = append(v.broken, fmt.Sprintf(format, args...))
}

func (v *verdict) lack(format string, args ...any) {
	v.untested = append(v.untested, fmt.Sprintf(format, args...))
}

// result is the worst outcome of the parts: if one part was not tested, the check is not tested. Its detail says how many
// parts held.
func (v *verdict) result(c Check) Result {
	r := Result{Name: c.Name, Layer: c.Layer, Result: Held, Control: v.control}
	switch {
	case len(v.broken) > 0:
		r.Result, r.Detail = Broken, shorten(v.broken)
	case len(v.untested) > 0 && v.held > 0:
		r.Result, r.Detail = NotTested, fmt.Sprintf("%d held; not tested: %s", v.held, shorten(v.untested))
	case len(v.untested) > 0:
		r.Result, r.Detail = NotTested, shorten(v.untested)
	case v.held == 0:
		r.Result, r.Detail = NotTested, "there is nothing to check"
	}
	return r
}

// shorten names only the first few parts, because a broken layer often breaks every part.
func shorten(list []string) string {
	const most = 3
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], "; "), len(list)-most)
	}
	return strings.Join(list, "; ")
}

// BrokenOf returns the results that refuse a start.
func BrokenOf(list []Result) []Result {
	var broken []Result
	for _, r := range list {
		if r.Result == Broken {
			broken = append(broken, r)
		}
	}
	return broken
}
