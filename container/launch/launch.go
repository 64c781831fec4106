package launch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // libcontainer needs it to have been imported
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/configs/validate"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // joins namespaces before the Go runtime starts; forkexec/init.c does the rest
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/build"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Descriptors that process 1 finds open; stub.c says what for. libcontainer numbers them from 3.
const pauseStub = "/proc/self/fd/3"

// Dir is libcontainer's, in the sandbox's directory.
const Dir = "runc"

// Process1 is what is started.
type Process1 struct {
	ID     string
	Store  string   // the state directory; that of the sandbox is there already
	Root   *os.Root // the same
	Base   string   // the directory that it starts in
	Cgroup string   // a name for libcontainer, which makes no group of it
	Host   bool     // it sees the host's root, at build.HostDir
	Frame  spec.Frame
	// Lock is the sandbox's lock file, and Creator a socket: see stub.c.
	Lock, Creator *os.File
}

// Prepare does what is the same for every process 1, for a caller that waits for what is not.
func Prepare() {
	_, _ = forkexec.Stub()                     // Start has the error
	_, _ = json.Marshal(&libcontainer.State{}) // the package finds out how to encode a type once
}

// Start starts it, and returns its pid and start time. It ends with the process that has the other end of its socket.
func (p *Process1) Start() (pid int, start uint64, err error) {
	stub, err := forkexec.Stub()
	if err != nil {
		return 0, 0, err
	}
	config, err := p.Config()
	if err != nil {
		return 0, 0, fault.New(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	c, err := p.container(config)
	if fault.FullDisk(err) {
		return 0, 0, fault.New(fault.StateUnusable, fault.DiskHint, "create sandbox: %w", err)
	}
	if err != nil {
		return 0, 0, fault.New(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	// Process 1 is to end with us until it says otherwise (forkexec/init.c). To the kernel we are the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = c.Run(&libcontainer.Process{
		Init: true, Args: []string{pauseStub, "pause"}, Cwd: "/", ExtraFiles: []*os.File{stub, p.Lock, p.Creator},
		Capabilities: &configs.Capabilities{}, LogLevel: "2",
	})
	if err != nil {
		return 0, 0, startError(err)
	}
	st, err := c.State()
	if err != nil {
		return 0, 0, fault.New(fault.SandboxUnavailable, "", "create sandbox: read state: %w", err)
	}
	return st.InitProcessPid, st.InitProcessStartTime, nil
}

// container gives libcontainer what libcontainer.Create would have made, less the cgroups: to enter those of version 1,
// ten of them, takes longer than all the rest of a start, and each exec has groups of its own, where any are needed
// (limits.go). They cannot be declined, but a container that is loaded has those that its state names: none of version
// 1, and of version 2 one that is nowhere, which libcontainer takes for a missing permission.
func (p *Process1) container(config *configs.Config) (*libcontainer.Container, error) {
	if err := validate.Validate(config); err != nil {
		return nil, err
	}
	state, err := json.Marshal(struct {
		libcontainer.State
		CgroupPaths map[string]string `json:"cgroup_paths"` // in place of State's, which is left out where it is empty
	}{
		State:       libcontainer.State{BaseState: libcontainer.BaseState{ID: p.ID, Config: *config}},
		CgroupPaths: noCgroups(),
	})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(p.ID, Dir, p.ID)
	if err := p.Root.MkdirAll(dir, 0o700); err != nil {
		return nil, &os.PathError{Op: "make", Path: dir, Err: fault.Cause(err)}
	}
	if err := p.Root.WriteFile(filepath.Join(dir, "state.json"), state, 0o600); err != nil {
		return nil, &os.PathError{Op: "write", Path: filepath.Join(dir, "state.json"), Err: fault.Cause(err)}
	}
	return libcontainer.Load(filepath.Join(p.Store, p.ID, Dir), p.ID)
}

func noCgroups() map[string]string {
	if cgroups.IsCgroup2UnifiedMode() {
		return map[string]string{"": "/nowhere"}
	}
	return map[string]string{}
}

// Config is the little of the Plan that libcontainer makes: the namespaces, the maps of users and process 1. The mounts are ours to make
// (package build), and the program is never libcontainer's to start.
func (p *Process1) Config() (*configs.Config, error) {
	own := &specs.Spec{
		Version: specs.Version, Hostname: spec.Hostname, Root: &specs.Root{Path: p.Base, Readonly: true},
		Process: &specs.Process{Cwd: "/", Capabilities: &specs.LinuxCapabilities{}, NoNewPrivileges: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "bind", Source: "/dev", Options: []string{"rbind", "rprivate"}},
		},
		Linux: &specs.Linux{Namespaces: namespaces(p.Frame.OwnNetwork), UIDMappings: p.Frame.UIDs, GIDMappings: p.Frame.GIDs},
	}
	if p.Host {
		own.Mounts = append(own.Mounts, specs.Mount{
			Destination: build.HostDir, Type: "bind", Source: "/", Options: []string{"rbind", "rprivate"},
		})
	}
	return specconv.CreateLibcontainerConfig(&specconv.CreateOpts{
		CgroupName: p.Cgroup, Spec: own, RootlessEUID: os.Geteuid() != 0, RootlessCgroups: true,
		NoNewKeyring: true, // each exec joins one
	})
}

// namespaces are those of a sandbox. The control group namespace is left to each exec: it is to show the exec's own group as the root.
func namespaces(ownNetwork bool) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.UserNamespace}, {Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
	}
	if ownNetwork {
		list = append(list, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return list
}

// startError explains a failed start.
func startError(err error) error {
	if fault.FullDisk(err) {
		return fault.New(fault.StateUnusable, fault.DiskHint, "create sandbox: %w", err)
	}
	if step := diagnose.Machine(); step != nil {
		return step
	}
	if e := diagnose.Lacking("create sandbox", err); e != nil {
		return e
	}
	if strings.HasSuffix(err.Error(), unix.EMFILE.Error()) { // a child of libcontainer's says by words alone what it met
		return fault.New(fault.LimitReached, diagnose.FilesHint, "create sandbox: %w", err)
	}
	if e := diagnose.NoProcesses("create sandbox", err); e != nil {
		return e
	}
	return fault.New(fault.SandboxUnavailable, "sandboxrun --debug says more", "create sandbox: %w", err)
}
