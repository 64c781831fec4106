// Package doctor finds out what this machine can enforce, by doing it. It tries what sandboxes are made of, each thing in a
// process that is thrown away, and makes a sandbox as run does (trial.go). The rows are made of these facts alone (facts.go,
// rows.go, limits.go, id.go), so tests can make machines up. It also writes an AppArmor profile for this binary (apparmor.go).
//
// It is above package container, which must not import it, and imports besides of ours what is below that: cgroup, diagnose,
// fault, idmap, lookup, procfs, trust; and forkexec, rootfs and spec.
package doctor
