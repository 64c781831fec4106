package spec

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
	"github.com/sandboxrun/sandboxrun/spec/seccomp"
)

// Names in a bundle, beside config.json. Relative sources of mounts are relative to the bundle.
const (
	RootDir      = "rootfs"
	MaskFile     = "masks/file"
	MaskDir      = "masks/dir"
	EmptyFile    = "masks/empty" // masks that can be opened
	EmptyDir     = "masks/nothing"
	GeneratedDir = "generated"
)

// GeneratedFile is the path in the bundle of the content of the i-th mount of a view.
func GeneratedFile(i int) string { return fmt.Sprintf("%s/%d", GeneratedDir, i) }

// ociVersion is the oldest version of the specification that has all features of the configuration, because crun 1.8 refuses a
// version newer than its own.
const ociVersion = "1.0.2"

// filter is the profile of system calls for the programs of a plan.
func filter(p *Plan, h *Host) *specs.LinuxSeccomp {
	s := seccomp.Profile(h.Arch, h.Kernel.Major, h.Kernel.Minor)
	if p.Exec.Affinity > 0 {
		seccomp.RefuseAffinity(s)
	}
	switch {
	case p.Exec.NoNative:
		seccomp.RefuseMemoryFiles(s)
	case len(p.Exec.Execute) > 0:
		seccomp.RefuseMemory(s)
	}
	if p.Exec.NoSpawn {
		seccomp.RefuseSpawn(s)
	}
	if p.Exec.NoProc {
		seccomp.RefuseMountLists(s)
	}
	if p.Exec.Userns {
		seccomp.AllowNamespaces(s)
	}
	if p.Exec.ShownUID == 0 {
		seccomp.PassOverOwners(s)
	}
	return s
}

// OCI renders the Plan as an OCI runtime configuration, for people, records and other runtimes. The launcher itself does not read it.
// The program is not in it: the command that uses it fills in process.args.
func (p *Plan) OCI() *specs.Spec {
	return &specs.Spec{
		Version:  ociVersion,
		Hostname: Hostname,
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
		Mounts: append(systemMounts(p), viewMounts(p)...),
		Linux: &specs.Linux{
			Namespaces:    namespaces(p),
			UIDMappings:   p.IDs.UIDs,
			GIDMappings:   p.IDs.GIDs,
			MaskedPaths:   p.Exec.Hide,
			ReadonlyPaths: p.Exec.Readonly,
			Seccomp:       p.Filter,
			Resources:     resources(p.Exec.Limits),
		},
	}
}

// Portable is the configuration for another runtime, and the number of mounts that it lacks, because other runtimes cannot mount on
// a symlink. The targets of a deny's symlinks are masked all the same.
func (p *Plan) Portable() (oci *specs.Spec, lacks int) {
	oci, links := p.OCI(), map[string]bool{}
	for _, m := range p.View.Mounts {
		links[m.Target] = m.Link
	}
	all := len(oci.Mounts)
	oci.Mounts = slices.DeleteFunc(oci.Mounts, func(m specs.Mount) bool { return links[m.Destination] })
	return oci, all - len(oci.Mounts)
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

func namespaces(p *Plan) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.UserNamespace},
		{Type: specs.MountNamespace},
		{Type: specs.PIDNamespace},
		{Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace},
		{Type: specs.CgroupNamespace},
	}
	if p.OwnNetwork() {
		list = append(list, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return list
}

// TerminalOptions are the options of an exec's devpts. One exec gets at most 64 pseudo-terminals, because the kernel has a few
// thousand for all users together.
func TerminalOptions() []string {
	return []string{"newinstance", "ptmxmode=0666", "mode=0620", "max=64"}
}

// ShmOptions are what the file system of /dev/shm reads: its files count as memory.
func (p *Plan) ShmOptions() []string {
	return []string{"mode=1777", fmt.Sprintf("size=%d", tmpfsSize(p.Exec.Limits.Memory)), "nr_inodes=65536"}
}

// TmpfsOptions are what the file system of a view's tmpfs reads.
func (p *Plan) TmpfsOptions(m rootfs.Mount) []string {
	options := []string{fmt.Sprintf("mode=%#o", m.Mode), fmt.Sprintf("size=%d", m.Size), fmt.Sprintf("nr_inodes=%d", m.Inodes)}
	if m.Owned {
		options = append(options, fmt.Sprintf("uid=%d", p.Exec.UID), fmt.Sprintf("gid=%d", p.Exec.GID))
	}
	return options
}

// systemMounts are the mounts of every sandbox.
func systemMounts(p *Plan) []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{
			"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "ro",
		}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: append(
			[]string{"nosuid", "noexec"}, TerminalOptions()...,
		)},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: append([]string{"nosuid", "noexec", "nodev"}, p.ShmOptions()...)},
	}
}

func viewMounts(p *Plan) []specs.Mount {
	list := make([]specs.Mount, 0, len(p.View.Mounts))
	for i, m := range p.View.Mounts {
		mount := specs.Mount{Destination: m.Target, Type: "bind", Source: m.Source}
		switch {
		case m.Kind == rootfs.MountTmpfs:
			mount.Type, mount.Source = "tmpfs", "tmpfs"
			mount.Options = append(append([]string{"nosuid", "nodev"}, flagsOf(m)...), p.TmpfsOptions(m)...)
		case m.Kind == rootfs.MountMask:
			mount.Source = MaskOf(m)
		case m.Source == "":
			mount.Source = GeneratedFile(i)
		}
		if mount.Type == "bind" {
			mount.Options = bindOptions(m.Dir, flagsOf(m)...)
		}
		if m.Idmapped {
			mount.UIDMappings, mount.GIDMappings = p.IDs.GrantUIDs, p.IDs.GrantGIDs
		}
		list = append(list, mount)
	}
	for _, g := range p.View.Gone { // other runtimes cannot hide a name: there it is empty
		if g.Link { // where it leads is hidden too
			continue
		}
		m := rootfs.Mount{Kind: rootfs.MountMask, Target: g.Inside, Dir: g.Dir, Empty: true}
		list = append(list, specs.Mount{Destination: m.Target, Type: "bind", Source: MaskOf(m), Options: bindOptions(m.Dir, flagsOf(m)...)})
	}
	return list
}

// MaskOf is what a mask is a bind of.
func MaskOf(m rootfs.Mount) string {
	switch {
	case m.Empty && m.Dir:
		return EmptyDir
	case m.Empty:
		return EmptyFile
	case m.Dir:
		return MaskDir
	}
	return MaskFile
}

// flagsOf are the options of a mount beside nosuid and nodev, which all have.
func flagsOf(m rootfs.Mount) (flags []string) {
	if ReadOnly(m) {
		flags = append(flags, "ro")
	}
	if NoExec(m) {
		flags = append(flags, "noexec")
	}
	return flags
}

// ReadOnly reports whether nothing can be written through a mount.
func ReadOnly(m rootfs.Mount) bool {
	if m.Kind == rootfs.MountTmpfs {
		return !writableTmpfs(m)
	}
	return m.Kind == rootfs.MountMask || !m.Writable
}

// NoExec reports whether no file of a mount is executed or mapped as code.
func NoExec(m rootfs.Mount) bool { return m.NoExec || m.Kind == rootfs.MountMask }

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
