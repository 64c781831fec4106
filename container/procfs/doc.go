// Package procfs reads what the kernel writes about processes and mounts: /proc/PID/stat, /proc/PID/status and
// /proc/PID/mountinfo. It parses and decides nothing. It imports of ours only spec, for the type Place, and
// rootfs, which reads mountinfo too.
package procfs
