package doctor

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs/elf"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
	"github.com/sandboxrun/sandboxrun/spec/seccomp"
)

// facts are what was found. The rows are made of nothing else.
type facts struct {
	around    diagnose.Around
	user      string
	kernel    spec.Kernel
	kernelErr error
	arch      string
	diagnosis *diagnose.Diagnosis // nil: nothing was tried

	overlay, trees, noNewPrivs, filter, keyring, clone3, landlock attempt

	calls   []namedAttempt // that every sandbox needs
	actions []namedAttempt // of seccomp
	abi     int            // Landlock's

	limits    []spec.Limit // how each would be held
	limitsErr error
	groups    cgroup.Facts

	core   *spec.Core // nil: not looked at
	id     idFacts
	state  stateFacts
	loader *string // of this binary; empty: none, it is static; nil: not looked at
	selfOK error

	trial trial
}

// attempt is one thing that was done. Where it was not tried, err may say why; the zero value was not tried.
type attempt struct {
	tried bool
	err   error
}

type namedAttempt struct {
	name string
	err  error
}

func try(what forkexec.Ability, filter []unix.SockFilter) attempt {
	tried, err := forkexec.Try(what, filter)
	return attempt{tried, err}
}

func gather(ctx context.Context, e Examination) *facts {
	f := &facts{around: diagnose.Surroundings(), arch: runtime.GOARCH, user: machine.UserName(os.Geteuid())}
	f.kernel, f.kernelErr = procfs.KernelVersion()
	f.state, f.trial = examineSandbox(ctx, e)
	d := f.trial.diagnosis()
	f.diagnosis = &d
	f.overlay, f.trees = try(forkexec.CanOverlay, nil), try(forkexec.CanMoveTrees, nil)
	f.noNewPrivs, f.keyring = try(forkexec.CanNoNewPrivs, nil), try(forkexec.CanKeyring, nil)
	filter, err := forkexec.CompileSeccomp(seccomp.Profile(f.arch, f.kernel.Major, f.kernel.Minor), f.arch)
	if f.filter = (attempt{err: err}); err == nil {
		f.filter = try(forkexec.CanFilter, filter)
	}
	f.calls, f.actions = tryCalls(), tryActions()
	f.clone3 = attempt{true, tryClone3()}
	abi, err := procfs.Landlock()
	f.abi, f.landlock = abi, attempt{true, err}
	f.limits, f.limitsErr = rungs()
	f.groups, f.id = cgroup.Find(), findIDs()
	core := machine.ProbeCore()
	f.core = &core
	loader, err := ownLoader()
	f.loader, f.selfOK = &loader, err
	return f
}

// tryCalls makes the calls that every sandbox needs besides those that needs are about.
func tryCalls() []namedAttempt {
	pidfd, pidfdErr := unix.PidfdOpen(os.Getpid(), 0)
	if pidfdErr == nil {
		pidfdErr = unix.PidfdSendSignal(pidfd, 0, nil, 0)
		unix.Close(pidfd)
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, openErr := unix.Openat2(unix.AT_FDCWD, "/", &how)
	if openErr == nil {
		unix.Close(fd)
	}
	// The last number that there is: nothing is open there.
	closeErr := unix.CloseRange(math.MaxUint32, math.MaxUint32, 0)
	return []namedAttempt{{"pidfd_open", pidfdErr}, {"openat2", openErr}, {"close_range", closeErr}}
}

// tryClone3 calls it with arguments too short for any kernel, which says so where it has the call.
func tryClone3() error {
	_, _, errno := unix.Syscall(unix.SYS_CLONE3, 0, 0, 0)
	if errno == unix.EINVAL {
		return nil
	}
	return errno
}

// tryActions asks the kernel for what our filter answers with.
func tryActions() []namedAttempt {
	list := []namedAttempt{{name: "allow"}, {name: "errno"}, {name: "kill_process"}}
	for i, action := range []uint32{unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO, unix.SECCOMP_RET_KILL_PROCESS} {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
		if errno != 0 {
			list[i].err = errno
		}
	}
	return list
}

// rungs asks the ladder itself how it would hold what control groups hold best.
func rungs() ([]spec.Limit, error) {
	const text = "version = 1\nenforce = \"best_effort\"\n[limits]\nmemory = \"256M\"\npids = 64\ncpus = 1\n"
	p, err := policy.Load(policy.Input{Name: "doctor", Data: []byte(text), Dir: "/"})
	if err != nil {
		return nil, err
	}
	host, err := machine.Probe(p.Limits)
	if err != nil {
		return nil, err
	}
	plan, err := spec.Resolve(p, host)
	if err != nil {
		return nil, err
	}
	return plan.Limits, nil
}

// ownLoader is the loader that this binary asks for.
func ownLoader() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer f.Close()
	needs, err := elf.Read(f)
	if err != nil {
		return "", fmt.Errorf("read own binary: %w", err)
	}
	return needs.Interp, nil
}

// stateFacts are about the state directory, or the one in which it would be made.
type stateFacts struct {
	path string
	err  error
	fs   string // the kind of file system
	free uint64 // bytes
}

// slow is whether a file system may be far away. On a disk a start takes as long as in memory: nothing is synced.
func (s stateFacts) slow() bool { return s.fs == "nfs" || s.fs == "fuse" || s.fs == "cifs" }

// trialPrefix begins the name of the directory that the sandbox of an examination has its state in.
const trialPrefix = ".sandboxrun-doctor-"

// openState makes that directory: in the state directory, or where that would be made.
func openState(path string) (dir string, facts stateFacts) {
	path, err := filepath.Abs(path)
	facts = stateFacts{path: path, err: err}
	if err != nil {
		return "", facts
	}
	parent := path
	if _, err := os.Lstat(path); err == nil {
		store, err := container.OpenStore(path)
		if err != nil {
			facts.err = err
			return "", facts
		}
		store.Close()
	} else {
		for parent != "/" && !exists(parent) {
			parent = filepath.Dir(parent)
		}
	}
	sweepTrials(parent)
	if dir, facts.err = os.MkdirTemp(parent, trialPrefix); facts.err != nil {
		facts.err = fault.New(fault.StateUnusable, "choose another with --root DIR", "make state directory: %w", facts.err)
		return "", facts
	}
	var st unix.Statfs_t
	if facts.err = unix.Statfs(dir, &st); facts.err == nil {
		facts.fs, facts.free = procfs.FSName(st.Type), st.Bavail*uint64(st.Bsize)
	}
	return dir, facts
}

// sweepTrials removes what examinations have left that were killed. None takes as long as an hour.
func sweepTrials(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		if !strings.HasPrefix(e.Name(), trialPrefix) || !trust.OwnedDir(path, os.Geteuid()) {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) <= time.Hour {
			continue
		}
		if store, err := container.OpenStore(path); err == nil { // its sandbox may have left control groups
			_, _ = store.Sweep()
			store.Close()
		}
		_ = os.RemoveAll(path)
	}
}

// printable keeps what a program or a path says from steering a terminal or filling it.
func printable(s string) string {
	const most = 200
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.TrimSpace(s)
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return '?'
		}
		return c
	}, s)
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }
