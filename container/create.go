package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/configs/validate"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/build"
	"github.com/sandboxrun/sandboxrun/container/check"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/guard"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Descriptors that process 1 finds open; stub.c says what for. libcontainer numbers them from 3.
const pauseStub = "/proc/self/fd/3"

// Create builds a sandbox and leaves it ready for Exec. It ends with its owner; without one only Delete ends it.
// Whatever fails, nothing is left behind. Where the plan has a relay, the calling program must be one that answers to
// RelayCommand by Relay.
func (s *Store) Create(id string, plan *spec.Plan, o Options) (_ *Sandbox, err error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	writable, err := trust.KeptFrom(s.path, s.root, plan.View)
	if err != nil {
		return nil, err
	}
	lock, err := s.reserve(id)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // process 1 has it open too
	sb := &Sandbox{store: s, state: newState(id, plan, o.Owner), writable: writable, kept: plan.Kept, view: plan.View, policyPaths: plan.PolicyPaths}
	if !o.Once {
		sb.state.Paths = plan.View.Shown()
	}
	defer func() {
		if err != nil {
			sb.discard(lock)
			err = diagnose.NoNextBest(err, plan.BestEffort)
		}
	}()
	if err := s.reserveID(id, plan); err != nil {
		return nil, err
	}
	dir, err := s.root.OpenRoot(id)
	if err != nil {
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	defer dir.Close()
	if sb.dir, err = dir.Open("."); err != nil {
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	compiled := compileFilters(plan)
	if sb.sealed, err = forkexec.NewSealed(); err != nil {
		return nil, fail(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	defer sb.sealed.Close()
	if err := sb.start(plan, o, compiled, dir, lock); err != nil {
		return nil, err
	}
	if err := sb.noteCreated(); err != nil {
		return nil, fail(fault.StateUnusable, fault.DiskHint, "create sandbox: %w", err)
	}
	return sb, nil
}

// start has libcontainer make the namespaces around process 1, builds what programs see in them, proves that it is as
// planned, and lets process 1 go once the state is on disk.
func (sb *Sandbox) start(plan *spec.Plan, o Options, compiled func() (filters, error), dir *os.Root, lock *os.File) error {
	if plan.Exec.Guard != nil {
		if _, err := guard.Library(); err != nil {
			return err
		}
	}
	checks := check.New(plan.Checks, plan.View, sb.store.path)
	plan = sb.sabotage(plan)
	trees, err := build.OpenTrees(plan)
	if err != nil {
		return err
	}
	defer trees.Close()
	around := build.LookAround(plan)
	ready, release, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	defer ready.Close()
	defer release.Close()
	c, err := sb.launch(plan, trees == nil, lock, ready)
	if err != nil {
		return err
	}
	st, err := c.State()
	if err != nil {
		return fmt.Errorf("create sandbox: read state: %w", err)
	}
	sb.register(st)
	if err := sb.attach(); err != nil {
		return fail(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	if err := sb.hold(plan); err != nil {
		return err
	}
	relay, err := relayproc.Start(relayproc.Sandbox{ID: sb.state.ID, Init: sb.init, Dir: sb.dir, Root: dir, Groups: sb.state.Launch.Held.Groups}, plan)
	if err != nil {
		return err
	}
	if err = sb.furnish(plan, trees, build.Await(around, plan)); err == nil {
		err = sb.prove(plan, o, checks, compiled, dir)
	}
	if err != nil {
		relay.Abandon()
		return err
	}
	if err := relay.Serve(sb.state.Record); err != nil {
		return err
	}
	if _, err := release.Write([]byte{1}); err != nil {
		return fail(fault.SandboxUnavailable, "", "create sandbox: process 1 has ended: %w", err)
	}
	ready.Close()
	waitClosed(release)
	if !procfs.PidfdAlive(sb.init) {
		return fail(fault.SandboxUnavailable, "", "create sandbox: process 1 has ended")
	}
	return nil
}

// furnish builds what programs see.
func (sb *Sandbox) furnish(plan *spec.Plan, trees build.Trees, found *build.Sights) error {
	sb.state.Warnings = append(slices.Clip(sb.state.Warnings), found.Warnings()...)
	ops := append(build.Network(plan, sb.state.Launch.Namespaces), build.View(plan, trees, found)...)
	missing, err := forkexec.Build(sb.init, sb.state.Launch.Namespaces, ops)
	if err != nil {
		return build.Explain(err)
	}
	for _, what := range missing {
		sb.state.Warnings = append(sb.state.Warnings, "network: this machine does not allow it: "+what)
	}
	if err := sb.rememberDenied(plan.View); err != nil {
		return err
	}
	return sb.rememberGrants(plan.View)
}

// prove checks that the sandbox is as it was planned, and only then writes down what execs need to know.
func (sb *Sandbox) prove(plan *spec.Plan, o Options, checks *check.Checker, compiled func() (filters, error), dir *os.Root) error {
	filter, err := compiled()
	if err != nil {
		return fail(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	sb.asking = filter.asking
	if sb.state.Checks, err = checks.Run(sb.checked(filter.own)); err != nil {
		return err
	}
	if err := sb.startRecord(plan, o); err != nil {
		return err
	}
	var launch []byte
	if !o.Once {
		if launch, err = sb.shortLaunch(filter.own); err != nil {
			return err
		}
	}
	if !o.Once {
		if sb.keptData, err = json.Marshal(sb.kept); err != nil {
			return fmt.Errorf("save state: %w", err)
		}
	}
	return sb.seal(plan, launch, dir, filter.own)
}

// waitClosed waits until nobody has the other end of a pipe open any more.
func waitClosed(w *os.File) {
	fds := []unix.PollFd{{Fd: int32(w.Fd())}} // POLLERR needs no asking for
	for {
		if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// launch starts process 1. Until a byte comes through ready it ends when we do.
func (sb *Sandbox) launch(plan *spec.Plan, host bool, lock, ready *os.File) (*libcontainer.Container, error) {
	pass, err := pauseFiles(sb.state.Owner, lock, ready, sb.sealed)
	if err != nil {
		return nil, err
	}
	if sb.state.Owner != nil {
		defer pass[len(pass)-1].Close()
	}
	base, err := sb.store.base()
	if err != nil {
		return nil, err
	}
	config, err := libcontainerConfig(cgroupName(sb.store.path, sb.state.ID), base, host, plan)
	if err != nil {
		return nil, err
	}
	c, err := sb.container(config)
	if fullDisk(err) {
		return nil, fail(fault.StateUnusable, fault.DiskHint, "create sandbox: %w", err)
	}
	if err != nil {
		return nil, fail(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	// Process 1 is to end with us until it says otherwise (init.go). To the kernel we are the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = c.Run(&libcontainer.Process{
		Init: true, Args: []string{pauseStub, "pause"}, Cwd: "/", ExtraFiles: pass,
		Capabilities: &configs.Capabilities{}, LogLevel: "2",
	})
	if err != nil {
		return nil, startError(err)
	}
	return c, nil
}

// container gives libcontainer what libcontainer.Create would have made, less the cgroups: to enter those of version 1,
// ten of them, takes longer than all the rest of a start, and each exec has groups of its own, where any are needed
// (limits.go). They cannot be declined, but a container that is loaded has those that its state names: none of version
// 1, and of version 2 one that is nowhere, which libcontainer takes for a missing permission.
func (sb *Sandbox) container(config *configs.Config) (*libcontainer.Container, error) {
	if err := validate.Validate(config); err != nil {
		return nil, err
	}
	state, err := json.Marshal(struct {
		libcontainer.State
		CgroupPaths map[string]string `json:"cgroup_paths"` // in place of State's, which is left out where it is empty
	}{
		State:       libcontainer.State{BaseState: libcontainer.BaseState{ID: sb.state.ID, Config: *config}},
		CgroupPaths: noCgroups(),
	})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(sb.state.ID, "runc", sb.state.ID)
	if err := sb.store.root.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := writeNew(sb.store.root, filepath.Join(dir, "state.json"), string(state), 0o600); err != nil {
		return nil, err
	}
	return libcontainer.Load(filepath.Join(sb.store.path, sb.state.ID, "runc"), sb.state.ID)
}

func noCgroups() map[string]string {
	if cgroups.IsCgroup2UnifiedMode() {
		return map[string]string{"": "/nowhere"}
	}
	return map[string]string{}
}

// pauseFiles are the descriptors of process 1 from 3 on; stub.c says what each is.
func pauseFiles(of *owner.Owner, lock, ready, sealed *os.File) ([]*os.File, error) {
	stub, err := forkexec.Stub()
	if err != nil {
		return nil, err
	}
	pass := []*os.File{stub, lock, ready, sealed}
	if of == nil {
		return pass, nil
	}
	pidfd, err := owner.Open(of)
	if err != nil {
		return nil, err
	}
	return append(pass, pidfd), nil
}

// register notes what libcontainer has made.
func (sb *Sandbox) register(st *libcontainer.State) {
	sb.state.PID, sb.state.StartTime = st.InitProcessPid, st.InitProcessStartTime
	sb.child = true
}

// libcontainerConfig is the little of the Plan that libcontainer makes: the namespaces, the maps of users and process 1. The mounts are
// ours to make (package build), and the program is never libcontainer's to start.
func libcontainerConfig(cgroup, base string, host bool, plan *spec.Plan) (*configs.Config, error) {
	own := &specs.Spec{
		Version: specs.Version, Hostname: spec.Hostname, Root: &specs.Root{Path: base, Readonly: true},
		Process: &specs.Process{Cwd: "/", Capabilities: &specs.LinuxCapabilities{}, NoNewPrivileges: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "bind", Source: "/dev", Options: []string{"rbind", "rprivate"}},
		},
		Linux: &specs.Linux{
			Namespaces: ownNamespaces(plan), UIDMappings: plan.IDs.UIDs, GIDMappings: plan.IDs.GIDs,
		},
	}
	if host {
		own.Mounts = append(own.Mounts, specs.Mount{
			Destination: build.HostDir, Type: "bind", Source: "/", Options: []string{"rbind", "rprivate"},
		})
	}
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{
		CgroupName: cgroup, Spec: own, RootlessEUID: os.Geteuid() != 0, RootlessCgroups: true,
		NoNewKeyring: true, // each exec joins one
	})
	if err != nil {
		return nil, fail(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	return config, nil
}

// ownNamespaces are those of a sandbox. The control group namespace is left to each exec: it is to show the exec's own group as the root.
func ownNamespaces(plan *spec.Plan) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.UserNamespace}, {Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
	}
	if plan.OwnNetwork() {
		list = append(list, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return list
}

// startError explains a failed start.
func startError(err error) error {
	if fullDisk(err) {
		return fail(fault.StateUnusable, fault.DiskHint, "create sandbox: %w", err)
	}
	if step := diagnose.Machine(); step != nil {
		return step
	}
	if e := diagnose.Lacking("create sandbox", err); e != nil {
		return e
	}
	if strings.HasSuffix(err.Error(), unix.EMFILE.Error()) { // a child of libcontainer's says by words alone what it met
		return fail(fault.LimitReached, diagnose.FilesHint, "create sandbox: %w", err)
	}
	if e := diagnose.NoRoom("create sandbox", err); e != nil {
		return e
	}
	return fail(fault.SandboxUnavailable, "sandboxrun --debug says more", "create sandbox: %w", err)
}
