// Package hooks has what happens at fixed moments of a sandbox's life: so far the checks at its start. It says what is to
// be tried and judges what was seen; who looks is package container.
package hooks

import (
	"fmt"
	"slices"
	"strings"
)

// Outcome is what became of a check.
type Outcome string

// Outcomes. A sandbox of which a check is broken is never used. What was not tested is not known to be good.
const (
	Held      Outcome = "held"
	Broken    Outcome = "broken"
	NotTested Outcome = "not_tested"
)

// Result is what one check has found in one sandbox.
type Result struct {
	Name    string  `json:"name"`
	Layer   string  `json:"layer"`
	Result  Outcome `json:"result"`
	Control string  `json:"control,omitempty"` // what was seen outside, or before the layer was there
	Detail  string  `json:"detail,omitempty"`  // what is broken or was not tested, and why
}

// Check is a row of the table of checks.
type Check struct {
	Name     string `json:"name"`
	Layer    string `json:"layer"`              // the wall that it leans on
	Claim    string `json:"claim"`              // what must hold
	Positive string `json:"positive"`           // what must work inside, or the rest shows nothing
	Negative string `json:"negative,omitempty"` // what must fail inside, or must be so
	Control  string `json:"control,omitempty"`  // what must be so outside

	judge func(*Subject, *Facts, *verdict)
}

// Checks is the table: all that is tried at each start, from where a program would run.
func Checks() []Check {
	return slices.Concat(networkChecks(), fileChecks(), idChecks(), processChecks())
}

func networkChecks() []Check {
	return []Check{
		{
			Name: "net_tcp_outside_blocked", Layer: "network namespace",
			Claim:    "a TCP port of the host's loopback is out of reach",
			Positive: "a port of the sandbox's own loopback answers", Negative: "connect to 127.0.0.1, and ::1, is refused or finds no network",
			Control: "the launcher listens there, and reaches itself", judge: judgeTCP,
		},
		{
			Name: "net_udp_outside_blocked", Layer: "network namespace",
			Claim:    "a UDP port of the host's loopback is out of reach",
			Positive: "a datagram can be sent", Negative: "it does not arrive at the launcher",
			Control: "the launcher receives its own", judge: judgeUDP,
		},
		{
			Name: "net_abstract_outside_blocked", Layer: "network namespace",
			Claim:    "an abstract Unix socket of the host is out of reach",
			Positive: "a Unix socket can be made", Negative: "connect is refused",
			Control: "the launcher listens there, and reaches itself", judge: judgeAbstract,
		},
		{
			Name: "forwarded_ports_open", Layer: "relay",
			Claim:    "each forwarded port answers",
			Positive: "connect to it succeeds", judge: judgeForwards,
		},
	}
}

func fileChecks() []Check {
	return []Check{
		{
			Name: "secret_absent", Layer: "mounts",
			Claim:    "no secret of the policy is there under any name that the view could have for it",
			Positive: "what is granted is there", Negative: "the name leads nowhere, or to another file",
			Control: "the secret exists on the host", judge: judgeSecrets,
		},
		{
			Name: "probe_paths_absent", Layer: "mounts",
			Claim:    "the state directory, the caller's home, its runtime directory, the host's password file and the sockets of its engines are not there unless granted",
			Positive: "what is granted is there", Negative: "the name leads nowhere, or to another file",
			Control: "it exists on the host", judge: judgeProbes,
		},
		{
			Name: "deny_unreadable", Layer: "masks",
			Claim:    "what is denied cannot be opened",
			Positive: "something stands at its name: the mask", Negative: "open fails with EACCES, and it is not the host's file",
			Control: "the host's file exists", judge: judgeMasks,
		},
		{
			Name: "proc_hidden", Layer: "masks of /proc",
			Claim:    "the files of /proc that tell of the machine are covered",
			Positive: "the rest of /proc is there", Negative: "an empty device or directory stands there",
			Control: "the host's /proc has them", judge: judgeProc,
		},
		{
			Name: "grants_readable", Layer: "mounts",
			Claim:    "each grant is there: the host's very file or directory",
			Positive: "it has the number of the host's, and can be read where its mode allows that",
			Control:  "it exists on the host", judge: judgeGrants,
		},
		{
			Name: "readonly_not_writable", Layer: "read-only mounts",
			Claim:    "read-only grants, masks, the root and parts of /proc cannot be written",
			Positive: "it is there", Negative: "its mount is read-only; to open it for writing, or to make a nameless file in it, fails",
			Control: "how many the launcher can write outside", judge: judgeReadOnly,
		},
		{
			Name: "workspace_writable", Layer: "mounts",
			Claim:    "the workspace and every other writable grant can be written",
			Positive: "in a directory a nameless file can be made; a file says that it may be written",
			Control:  "the launcher may write it outside", judge: judgeWritable,
		},
		{
			Name: "foreign_files_kept", Layer: "read-only mounts and the program's id",
			Claim:    "what no grant shows cannot be changed: its mode, owner, times, attributes and names",
			Positive: "it is there", Negative: "chmod, chown, utimensat, setxattr, linkat, renameat2 and unlinkat fail, in forms that change nothing",
			Control: "how much of it is the launcher's own", judge: judgeForeign,
		},
	}
}

func idChecks() []Check {
	return []Check{
		{
			Name: "program_id", Layer: "user namespace and idmapped mounts",
			Claim:    "the program's id on the host is the one that was planned, and not root's; what it makes in a grant belongs to whom it should",
			Positive: "a message of the program arrives", Negative: "its uid and gid, which the kernel has added, are those; a nameless file has the right owner on disk",
			Control: "the launcher's own", judge: judgeID,
		},
	}
}

func processChecks() []Check {
	return []Check{
		{
			Name: "no_capability", Layer: "capabilities",
			Claim:    "no capability in any set, and no way back to one",
			Positive: "the sets can be read", Negative: "all five are empty; securebits are locked",
			Control: "the same process had some when it entered its user namespace", judge: judgeCapabilities,
		},
		{
			Name: "no_new_privs", Layer: "no_new_privs",
			Claim:    "no setuid file and no file capability gives anything",
			Positive: "the flag can be read", Negative: "it is 1",
			Control: "the same process had not set it when it entered", judge: judgeNoNewPrivs,
		},
		{
			Name: "seccomp_filter", Layer: "seccomp",
			Claim:    "our filter is loaded",
			Positive: "the mode can be read", Negative: "mode 2, and one filter more than before",
			Control: "the same process without it", judge: judgeSeccomp,
		},
		{
			Name: "refused_calls", Layer: "seccomp",
			Claim:    "the filter refuses what it should",
			Positive: "other calls work", Negative: "each call fails with the filter's errno",
			Control: "without the filter the same process gets another answer", judge: judgeRefused,
		},
		{
			Name: "namespaces_own", Layer: "namespaces",
			Claim:    "every namespace is the sandbox's own, and those of an exec that exec's own",
			Positive: "their numbers can be read", Negative: "they differ from the host's and process 1's",
			Control: "the numbers of the host's and of process 1's", judge: judgeNamespaces,
		},
		{
			Name: "host_processes_hidden", Layer: "PID namespace and /proc",
			Claim:    "no process is there but those of the exec",
			Positive: "/proc lists the exec's own", Negative: "it lists no other; a signal to the launcher finds nobody",
			Control: "the launcher and process 1 exist on the host", judge: judgeProcesses,
		},
		{
			Name: "descriptors", Layer: "close_range",
			Claim:    "descriptors 0, 1 and 2 and no other",
			Positive: "these three are there", Negative: "no other is",
			Control: "the launcher has more", judge: judgeDescriptors,
		},
		{
			Name: "environment", Layer: "environment",
			Claim:    "only variables that the policy names are handed to execve",
			Positive: "those that it sets are", Negative: "a variable of the caller's is not",
			Control: "the caller has it", judge: judgeEnvironment,
		},
		{
			Name: "limits_read_back", Layer: "rlimits, processors and control groups",
			Claim:    "the limits that the kernel holds for a process are as the policy says",
			Positive: "they can be read", Negative: "they are no higher; the process is in the exec's own control groups",
			Control: "the launcher's own limit is higher, or its group another", judge: judgeLimits,
		},
	}
}

// Judge says for each check what the facts mean. It is pure.
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

// verdict collects what became of the single things that a check looks at.
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

// result is the worst of what was found: a check of which a part was not tested was not tested, and says how much was.
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
		r.Result, r.Detail = NotTested, "there is none"
	}
	return r
}

// shorten keeps a message readable: a broken layer is often broken everywhere.
func shorten(list []string) string {
	const most = 3
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], "; "), len(list)-most)
	}
	return strings.Join(list, "; ")
}

// BrokenOf are the results that refuse a start.
func BrokenOf(list []Result) []Result {
	var broken []Result
	for _, r := range list {
		if r.Result == Broken {
			broken = append(broken, r)
		}
	}
	return broken
}
