package container

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Descriptors that process 1 finds open; stub.c says what for. libcontainer numbers them from 3.
const pauseStub = "/proc/self/fd/3"

// filterFile holds the compiled seccomp filter, in the sandbox's directory.
const filterFile = "seccomp.bpf"

// Create builds a sandbox and leaves it ready for Exec. It ends with its owner; nil means that only Delete ends it.
// Whatever fails, nothing is left behind.
func (s *Store) Create(id string, plan *spec.Plan, owner *Owner) (_ *Sandbox, err error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	lock, err := s.reserve(id)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // process 1 has it open too
	sb := &Sandbox{store: s, state: &State{
		Version: stateVersion, ID: id, Created: time.Now().UTC(), Owner: owner, Plan: plan,
	}}
	defer func() {
		if err != nil {
			sb.discard()
		}
	}()
	dir, err := s.root.OpenRoot(id)
	if err != nil {
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	defer dir.Close()
	if err := WriteBundle(dir, plan, false); err != nil {
		return nil, err
	}
	filter, err := forkexec.CompileSeccomp(plan.Spec.Linux.Seccomp, runtime.GOARCH)
	if err != nil {
		return nil, fail("sandbox_unavailable", "", "create sandbox: %w", err)
	}
	if err := writeNew(dir, filterFile, string(forkexec.EncodeFilter(filter)), 0o400); err != nil {
		return nil, err
	}
	if err := sb.start(lock); err != nil {
		return nil, err
	}
	return sb, nil
}

// start has libcontainer build the sandbox around process 1, and lets that go once the state is on disk.
func (sb *Sandbox) start(lock *os.File) error {
	ready, release, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	defer ready.Close()
	defer release.Close()
	pass, err := pauseFiles(sb.state.Owner, lock, ready)
	if err != nil {
		return err
	}
	if o := sb.state.Owner; o != nil {
		defer pass[len(pass)-1].Close()
	}
	bundle := filepath.Join(sb.store.path, sb.state.ID)
	config, err := libcontainerConfig(cgroupName(sb.store.path, sb.state.ID), bundle, sb.state.Plan.Spec)
	if err != nil {
		return err
	}
	c, err := libcontainer.Create(filepath.Join(bundle, "runc"), sb.state.ID, config)
	if err != nil {
		return fail("sandbox_unavailable", "", "create sandbox: %w", err)
	}
	config.Cgroups.SkipDevices = false // see libcontainerConfig
	err = c.Run(&libcontainer.Process{
		Init: true, Args: []string{pauseStub, "pause"}, Cwd: "/", ExtraFiles: pass,
		Capabilities: &configs.Capabilities{}, LogLevel: "2",
	})
	if err != nil {
		return startError(err)
	}
	return sb.register(c, release)
}

// pauseFiles are the descriptors of process 1 from 3 on; stub.c says what each is.
func pauseFiles(owner *Owner, lock, ready *os.File) ([]*os.File, error) {
	stub, err := forkexec.Stub()
	if err != nil {
		return nil, err
	}
	pass := []*os.File{stub, lock, ready}
	if owner == nil {
		return pass, nil
	}
	pidfd, err := openOwner(owner)
	if err != nil {
		return nil, err
	}
	return append(pass, pidfd), nil
}

// register writes the state and tells process 1 that the sandbox is complete. Until then it ends when we do.
func (sb *Sandbox) register(c *libcontainer.Container, release *os.File) error {
	st, err := c.State()
	if err != nil {
		return fmt.Errorf("create sandbox: read state: %w", err)
	}
	sb.state.PID, sb.state.StartTime = st.InitProcessPid, st.InitProcessStartTime
	for _, path := range st.CgroupPaths {
		sb.state.Cgroups = append(sb.state.Cgroups, path)
	}
	slices.Sort(sb.state.Cgroups)
	sb.child = true
	if err := sb.attach(); err != nil {
		return fail("sandbox_unavailable", "", "create sandbox: %w", err)
	}
	if err := sb.store.save(sb.state); err != nil {
		return err
	}
	if _, err := release.Write([]byte{1}); err != nil {
		return fail("sandbox_unavailable", "", "create sandbox: process 1 has ended: %w", err)
	}
	return nil
}

// libcontainerConfig turns the Plan's OCI configuration into libcontainer's, with our process 1 in place of the program:
// that is never started by libcontainer.
func libcontainerConfig(cgroup, bundle string, s *specs.Spec) (*configs.Config, error) {
	own := *s
	own.Root = &specs.Root{Path: filepath.Join(bundle, s.Root.Path), Readonly: s.Root.Readonly}
	own.Process = &specs.Process{Cwd: "/", Capabilities: &specs.LinuxCapabilities{}, NoNewPrivileges: true}
	own.Mounts = slices.Clone(s.Mounts)
	for i := range own.Mounts {
		if own.Mounts[i].Type == "bind" {
			own.Mounts[i].Source = absolute(bundle, own.Mounts[i].Source)
		}
	}
	linux := *s.Linux
	linux.Seccomp = nil // each exec loads it, compiled beforehand
	own.Linux = &linux
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{
		CgroupName: cgroup, Spec: &own, RootlessEUID: os.Geteuid() != 0, RootlessCgroups: true,
		NoNewKeyring: true, // each exec joins one
	})
	if err != nil {
		return nil, fail("sandbox_unavailable", "", "create sandbox: %w", err)
	}
	// A machine without cgroups can still have sandboxes. libcontainer insists on a devices cgroup unless this is set,
	// and then refuses to start: so it is set while the cgroups are looked up only. No program can make a device node
	// (it has no capability), so that cgroup is not what protects devices.
	config.Cgroups.SkipDevices = true
	return config, nil
}

// startError explains a failed start.
func startError(err error) error {
	if step := Diagnose(); step != nil {
		return step
	}
	return fail("sandbox_unavailable", "sandboxrun --debug says more", "create sandbox: %w", err)
}
