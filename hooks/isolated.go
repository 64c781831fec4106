package hooks

import "slices"

// always are the checks that every isolated sandbox needs. The other checks need a policy with forwards, secrets, denies or
// limits.
func always() []string {
	return []string{
		"net_tcp_outside_blocked", "net_udp_outside_blocked", "net_abstract_outside_blocked", "probe_paths_absent", "proc_hidden",
		"readonly_not_writable", "no_capability", "no_new_privs", "seccomp_filter", "refused_calls", "namespaces_own",
		"host_processes_hidden", "descriptors", "environment",
	}
}

// Isolated reports whether the checks at a sandbox's start have shown it to be isolated: each check that every sandbox needs
// was held, and no check was broken. A sandbox on the host's network is not isolated, nor is one without checks.
func Isolated(results []Result) bool {
	held := map[string]bool{}
	for _, r := range results {
		if r.Result == Broken {
			return false
		}
		held[r.Name] = r.Result == Held
	}
	return !slices.ContainsFunc(always(), func(name string) bool { return !held[name] })
}
