// Package procfs reads what the kernel writes about processes: /proc/PID/stat and /proc/PID/status. It parses and
// decides nothing. Mounts are rootfs/hostfs's, which it imports, and spec, for the version of a kernel.
package procfs
