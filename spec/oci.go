package spec

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
	"github.com/sandboxrun/sandboxrun/spec/seccomp"
)

// Names in a bundle, beside config.json. Relative sources of mounts are relative to the bundle.
const (
	RootDir      = "rootfs"
	MaskFile     = "masks/file"
	MaskDir      = "masks/dir"
	GeneratedDir = "generated"
)

// GeneratedFile is the path in the bundle of the content of the i-th mount of a view.
func GeneratedFile(i int) string { return fmt.Sprintf("%s/%d", GeneratedDir, i) }

// ociVersion is the oldest version of the specification that has all features of the configuration, because crun 1.8 refuses a
// version newer than its own.
const ociVersion = "1.0.2"

// ociSpec is the Plan as an OCI runtime configuration, without the program: the command that uses it fills in
// process.args.
func ociSpec(p *Plan, h *Host, id identity) *specs.Spec {
	s := &specs.Spec{
		Version:  ociVersion,
		Hostname: hostname,
		Root:     &specs.Root{Path: RootDir, Readonly: true},
		Process: &specs.Process{
			User:            specs.User{UID: uint32(p.Exec.UID), GID: uint32(p.Exec.GID)},
			Args:            []string{"/bin/sh"},
			Env:             p.Exec.Environ(nil, nil),
			Cwd:             p.Exec.Dir,
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			Rlimits:         rlimits(&p.Exec),
		},
		Mounts: append(systemMounts(p.Exec.Limits.Memory), viewMounts(p.View, p.Exec, id)...),
		Linux: &specs.Linux{
			Namespaces:    namespaces(p.Network),
			UIDMappings:   id.maps[0],
			GIDMappings:   id.maps[1],
			MaskedPaths:   p.Exec.Hide,
			ReadonlyPaths: p.Exec.Readonly,
			Seccomp:       seccomp.Profile(h.Arch, h.Kernel.Major, h.Kernel.Minor),
			Resources:     resources(p.Exec.Limits),
		},
	}
	if p.Exec.Affinity > 0 {
		seccomp.RefuseAffinity(s.Linux.Seccomp)
	}
	if len(p.Exec.Execute) > 0 {
		seccomp.RefuseMemory(s.Linux.Seccomp)
	}
	if p.Exec.NoSpawn {
		seccomp.RefuseSpawn(s.Linux.Seccomp)
	}
	if p.Exec.ShownUID == 0 {
		seccomp.PassOverOwners(s.Linux.Seccomp)
	}
	return s
}

// Portable is the configuration for another runtime, and the number of mounts that it lacks, because other runtimes cannot mount on
// a symlink. The targets of a deny's symlinks are masked all the same.
func (p *Plan) Portable() (s *specs.Spec, lacks int) {
	oci, links := *p.Spec, map[string]bool{}
	for _, m := range p.View.Mounts {
		links[m.Target] = m.Link
	}
	oci.Mounts = slices.DeleteFunc(slices.Clone(oci.Mounts), func(m specs.Mount) bool { return links[m.Destination] })
	return &oci, len(p.Spec.Mounts) - len(oci.Mounts)
}

// resources are the limits that a cgroup enforces, for another runtime.
func resources(l policy.Limits) *specs.LinuxResources {
	const period = 100_000 // microseconds, the kernel's default
	r := &specs.LinuxResources{}
	if l.Memory > 0 {
		r.Memory = &specs.LinuxMemory{Limit: &l.Memory, Swap: &l.Memory}
	}
	if l.Pids > 0 {
		r.Pids = &specs.LinuxPids{Limit: &l.Pids}
	}
	if l.CPUs > 0 {
		p, quota := uint64(period), int64(l.CPUs*period)
		r.CPU = &specs.LinuxCPU{Period: &p, Quota: &quota}
	}
	if l.Memory <= 0 && l.Pids <= 0 && l.CPUs <= 0 {
		return nil
	}
	return r
}

func rlimits(e *Exec) []specs.POSIXRlimit {
	list := []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: e.CoreLimit(), Hard: e.CoreLimit()}}
	add := func(name string, n int64) {
		if n > 0 {
			list = append(list, specs.POSIXRlimit{Type: name, Soft: uint64(n), Hard: uint64(n)})
		}
	}
	add("RLIMIT_FSIZE", e.Limits.File)
	add("RLIMIT_NOFILE", e.Limits.Nofile)
	return list
}

func namespaces(mode string) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.UserNamespace},
		{Type: specs.MountNamespace},
		{Type: specs.PIDNamespace},
		{Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace},
		{Type: specs.CgroupNamespace},
	}
	if mode != netpolicy.Host {
		list = append(list, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return list
}

// TerminalOptions are the options of an exec's devpts. One exec gets at most 64 pseudo-terminals, because the kernel has a few
// thousand for all users together.
func TerminalOptions() []string {
	return []string{"newinstance", "ptmxmode=0666", "mode=0620", "max=64"}
}

// systemMounts are the mounts of every sandbox.
func systemMounts(memory int64) []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{
			"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "ro",
		}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: append(
			[]string{"nosuid", "noexec"}, TerminalOptions()...,
		)},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{
			"nosuid", "noexec", "nodev", "mode=1777", fmt.Sprintf("size=%d", tmpfsSize(memory)), "nr_inodes=65536",
		}},
	}
}

func viewMounts(v *rootfs.View, e Exec, id identity) []specs.Mount {
	list := make([]specs.Mount, 0, len(v.Mounts))
	for i, m := range v.Mounts {
		mount := ViewMount(i, m, e)
		if m.Idmapped {
			mount.UIDMappings, mount.GIDMappings = id.grants[0], id.grants[1]
		}
		list = append(list, mount)
	}
	return list
}

// ViewMount is the i-th mount of a view as an OCI mount. A relative source is relative to the bundle.
func ViewMount(i int, m rootfs.Mount, e Exec) specs.Mount {
	switch m.Kind {
	case rootfs.MountTmpfs:
		return specs.Mount{Destination: m.Target, Type: "tmpfs", Source: "tmpfs", Options: tmpfsOptions(m, e)}
	case rootfs.MountMask:
		source := MaskFile
		if m.Dir {
			source = MaskDir
		}
		return specs.Mount{Destination: m.Target, Type: "bind", Source: source, Options: bindOptions(m.Dir, "ro", "noexec")}
	}
	source := m.Source
	if source == "" {
		source = GeneratedFile(i)
	}
	var more []string
	if !m.Writable {
		more = append(more, "ro")
	}
	if m.NoExec {
		more = append(more, "noexec")
	}
	return specs.Mount{Destination: m.Target, Type: "bind", Source: source, Options: bindOptions(m.Dir, more...)}
}

// bindOptions protect a bind. Those of a directory cover the file systems mounted below it as well, and only ever add
// flags, so that those which the kernel has locked (a nosuid /tmp, opencontainers/runc#1229) stay. A file has nothing
// below it, and crun 1.8 fails on recursive options there.
func bindOptions(dir bool, more ...string) []string {
	flags := append([]string{"nosuid", "nodev"}, more...)
	if !dir {
		return append([]string{"bind", "rprivate"}, flags...)
	}
	for i := range flags {
		flags[i] = "r" + flags[i]
	}
	return append([]string{"rbind", "rprivate"}, flags...)
}

func tmpfsOptions(m rootfs.Mount, e Exec) []string {
	options := []string{
		"nosuid", "nodev", fmt.Sprintf("mode=%#o", m.Mode), fmt.Sprintf("size=%d", m.Size),
		fmt.Sprintf("nr_inodes=%d", m.Inodes),
	}
	if m.NoExec {
		options = append(options, "noexec") // so that no loader maps code that the program has written
	}
	if !writableTmpfs(m) {
		options = append(options, "ro")
	}
	if m.Owned {
		options = append(options, fmt.Sprintf("uid=%d", e.UID), fmt.Sprintf("gid=%d", e.GID))
	}
	return options
}
