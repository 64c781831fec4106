package doctor

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

func good(name, value string) Row { return Row{Name: name, Status: OK, Value: value} }

func bad(name, value, cost, fix string) Row {
	return Row{Name: name, Status: Missing, Value: value, Cost: cost, Fix: fix}
}

func weaker(name, value, cost, fix string) Row {
	return Row{Name: name, Status: Weaker, Value: value, Cost: cost, Fix: fix}
}

func required(c Row) Row {
	c.Required = true
	return c
}

// nothingRuns is what it costs where a sandbox lacks what every one needs.
const nothingRuns = "no sandbox can be made, and nothing runs"

// notTried is the value of what could not be tried.
const notTried = "not tried"

func (f *facts) kernelRow() Row {
	k := f.kernel
	value := fmt.Sprintf("%d.%d, %s", k.Major, k.Minor, f.arch)
	before := func(major, minor int) bool { return k.Major < major || k.Major == major && k.Minor < minor }
	switch {
	case f.kernelErr != nil:
		return required(bad("kernel", f.kernelErr.Error(), nothingRuns, diagnose.NewerKernel))
	case f.arch != "amd64" && f.arch != "arm64":
		return required(bad("kernel", value, nothingRuns, "use amd64 or arm64"))
	case before(5, 12):
		return required(bad("kernel", value, nothingRuns, diagnose.NewerKernel))
	case before(5, 14):
		return required(weaker("kernel", value, "without a control group limits.pids is held by a watcher", diagnose.NewerKernel))
	}
	return required(good("kernel", value))
}

// aroundRow lists what may refuse things from outside. It matters where something is refused.
func (f *facts) aroundRow() Row {
	var list []string
	if f.around.Filter {
		list = append(list, "a seccomp filter")
	}
	if f.around.NoNewPrivs {
		list = append(list, "no_new_privs")
	}
	if f.around.Profile != "" {
		list = append(list, "the profile "+printable(f.around.Profile))
	}
	value := strings.Join(list, ", ")
	switch {
	case f.around.Setting == nil:
		return bad("outer_confinement", notTried, "what refuses things from outside is not known", f.firstFix())
	case value == "":
		return good("outer_confinement", "none")
	case f.fails():
		return weaker("outer_confinement", value, "what it refuses no sandbox in it can have", f.diagnosis.Remedy.Command)
	}
	return good("outer_confinement", value)
}

// fails is whether a step that every sandbox takes fails here.
func (f *facts) fails() bool { return f.diagnosis != nil && f.diagnosis.Err != nil }

// needRows are the steps that every sandbox takes: all is well up to the one that fails.
func (f *facts) needRows() []Row {
	var rows []Row
	failed := false
	for _, n := range diagnose.Needs() {
		switch d := f.diagnosis; {
		case d == nil || d.Err == nil && d.Step != forkexec.ProbeOK:
			rows = append(rows, bad(n.Name, notTried, nothingRuns, f.firstFix()))
		case failed:
			rows = append(rows, bad(n.Name, notTried+": a step before it fails", nothingRuns, d.Remedy.Command))
		case d.Err != nil && n.Step == d.Step:
			failed = true
			value := d.Err.Error()
			if d.Remedy.Why != "" {
				value += "; " + d.Remedy.Why
			}
			rows = append(rows, bad(n.Name, value, nothingRuns, d.Remedy.Command))
		default:
			rows = append(rows, good(n.Name, "works"))
		}
		rows[len(rows)-1].Required = true
	}
	return rows
}

// row is an attempt as a row, with the given status where it failed.
func (f *facts) row(name string, a attempt, status, cost, fix string) Row {
	switch {
	case a.err == nil && a.tried:
		return good(name, "works")
	case f.around.Filter && a.tried:
		fix = diagnose.OuterOptions
	case !a.tried && f.fails():
		fix = f.diagnosis.Remedy.Command
	}
	c := Row{Name: name, Status: status, Value: fmt.Sprint(a.err), Cost: cost, Fix: fix}
	if !a.tried {
		if c.Status, c.Value = Missing, notTried; a.err != nil {
			c.Value += ": " + a.err.Error()
		}
	}
	return c
}

func (f *facts) callRows() []Row {
	calls := required(f.row("process_calls", all(f.calls), Missing, nothingRuns, diagnose.NewerKernel))
	if calls.Status == OK {
		calls.Value = names(f.calls)
	}
	actions := required(f.row("seccomp_actions", all(f.actions), Missing, nothingRuns, diagnose.NewerKernel))
	if actions.Status == OK {
		actions.Value = names(f.actions)
	}
	return []Row{
		required(f.row("no_new_privs", f.noNewPrivs, Missing, nothingRuns, diagnose.NewerKernel)),
		actions,
		required(f.row("seccomp_filter", f.filter, Missing, nothingRuns, "boot a kernel with CONFIG_SECCOMP_FILTER")),
		calls,
		f.row("clone3", f.clone3, Weaker, "control groups of version 2 cannot hold limits: watchers do", diagnose.NewerKernel),
		f.row("mount_trees", f.trees, Weaker,
			"a sandbox of root's cannot be shown what its own root user may not reach, such as a home of mode 0700", diagnose.NewerKernel),
		f.row("keyring", f.keyring, Weaker,
			"programs keep the caller's session keyring, and the filter, which refuses every key call, stands alone before it",
			"boot a kernel with CONFIG_KEYS"),
		f.landlockRow("policies with processes.execute are refused"),
		f.row("overlay", f.overlay, Weaker, "modules of files.hide_modules are empty instead of absent", f.around.AsRoot("modprobe overlay")),
	}
}

func (f *facts) landlockRow(cost string) Row {
	fix := "boot Linux 5.19 or later with CONFIG_SECURITY_LANDLOCK"
	switch {
	case f.landlock.err == nil && f.abi >= spec.MinLandlock:
		return good("landlock", fmt.Sprintf("ABI %d", f.abi))
	case f.landlock.err == nil:
		return f.row("landlock", attempt{true, fmt.Errorf("its ABI is %d, less than %d", f.abi, spec.MinLandlock)}, Missing, cost, fix)
	}
	if errors.Is(f.landlock.err, unix.EOPNOTSUPP) {
		fix = "boot with lsm=landlock,... on the kernel's command line"
	}
	return f.row("landlock", f.landlock, Missing, cost, fix)
}

// all is one attempt made of many: the first that failed.
func all(list []namedAttempt) attempt {
	for _, a := range list {
		if a.err != nil {
			return attempt{true, fmt.Errorf("%s: %w", a.name, a.err)}
		}
	}
	return attempt{tried: len(list) > 0}
}

func names(list []namedAttempt) string {
	var text []string
	for _, a := range list {
		text = append(text, a.name)
	}
	return strings.Join(text, ", ")
}

// firstFix is the command for what fails first.
func (f *facts) firstFix() string {
	if f.fails() {
		return f.diagnosis.Remedy.Command
	}
	return errorHint(f.trial.err)
}

func (f *facts) coreRow() Row {
	const name = "core_handler"
	if f.core == nil {
		return bad(name, notTried, "whether the host's core handler runs for a program that crashes is not known", f.firstFix())
	}
	if reason := f.core.Handled(); reason != "" {
		return weaker(name, printable(reason), "a program that crashes has the host's core handler run, as root and outside; policies that do not "+
			"accept less are refused", f.core.Hint())
	}
	return good(name, "does not run for programs in a sandbox")
}

func (f *facts) portsRow() Row {
	const name, cost = "ports_below_1024", "no port below 1024 of a sandbox's own loopback can be forwarded"
	switch {
	case !f.trial.made || f.trial.err != nil:
		return bad(name, notTried+": there is no sandbox to try it in", cost, f.firstFix())
	case f.trial.ports != nil:
		return bad(name, f.trial.ports.Error(), cost, f.around.Set("net.ipv4.ip_unprivileged_port_start", "0"))
	}
	return good(name, "127.0.0.1:80 in a sandbox")
}

// leastState is the free space, in bytes, that the state of some sandboxes and their events need.
const leastState = 64 << 20

func (f *facts) stateRow() Row {
	const name = "state_directory"
	s := f.state
	value := fmt.Sprintf("%s, %s, %d MB free", printable(s.path), s.fs, s.free>>20)
	elsewhere := fmt.Sprintf("export SANDBOXRUN_ROOT=/dev/shm/sandboxrun-%d", f.around.UID)
	switch {
	case s.err != nil:
		return required(bad(name, printable(s.path)+": "+s.err.Error(), nothingRuns, elsewhere))
	case s.free < leastState:
		return required(weaker(name, value, "sandboxes and execs fail once it is full", elsewhere))
	case s.slow():
		return required(weaker(name, value, "each start and each exec waits for it", elsewhere))
	}
	return required(good(name, value))
}

func (f *facts) binaryRow() Row {
	const name, cost, fix = "binary", "it depends on the host's C library", "scripts/build"
	switch {
	case f.selfOK != nil:
		return bad(name, f.selfOK.Error(), "whether it is static is not known", f.around.AsRoot("mount -t proc proc /proc"))
	case f.loader == nil:
		return bad(name, notTried, "whether it is static is not known", f.firstFix())
	case *f.loader != "":
		return weaker(name, "needs "+printable(*f.loader), cost, fix)
	}
	return good(name, "static")
}

func (f *facts) interpreterRows() []Row {
	var rows []Row
	for _, i := range f.trial.interpreters {
		name, where, cost := "interpreter_"+strings.ToLower(i.name), printable(i.path), "a program for it does not run without a grant"
		if i.instead != "" {
			cost = "without a grant a program gets another one: " + i.instead
		}
		var missing *fault.Error
		switch {
		case i.path == "":
			rows = append(rows, bad(name, "not on PATH", "no program for it runs", installCommand(f.around, i.packed)))
		case !i.asked:
			rows = append(rows, bad(name, where+", "+notTried+" in a sandbox", "whether a program for it runs is not known", f.firstFix()))
		case errors.As(i.err, &missing) && slices.Contains([]string{fault.ProgramNotFound, fault.InterpreterMissing}, missing.Code):
			rows = append(rows, weaker(name, where+", which the default policy does not show",
				cost, grantCommand(i.path)))
		case i.err != nil: // a script, for one, that needs what the default policy does not show
			rows = append(rows, weaker(name, where+": "+printable(i.err.Error()), cost, grantCommand(i.path)))
		default:
			rows = append(rows, good(name, where+", "+i.version))
		}
	}
	return rows
}

// grantCommand makes a policy that shows where an interpreter is installed: above its bin, or above the shims of a
// version manager, which keeps all versions there.
func grantCommand(path string) string {
	dir := filepath.Dir(path)
	if base := filepath.Base(dir); base == "bin" || base == "shims" {
		dir = filepath.Dir(dir)
	}
	return fmt.Sprintf(`printf 'version = 1\nextends = "default"\n[files]\nread = [%%s]\n' %s >policy.toml`, quoted(fmt.Sprintf("%q", dir)))
}

// quoted is a word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// installCommand is that of the machine's own package manager.
func installCommand(a diagnose.Around, name string) string {
	for _, m := range [][2]string{
		{"apt-get", "apt-get install "}, {"dnf", "dnf install "}, {"zypper", "zypper install "}, {"apk", "apk add "}, {"pacman", "pacman -S "},
	} {
		if exists("/usr/bin/"+m[0]) || exists("/sbin/"+m[0]) {
			return a.AsRoot(m[1] + name)
		}
	}
	return "install " + name
}

// sandboxRow is the one that counts.
func (f *facts) sandboxRow() Row {
	const name = "sandbox"
	switch t := f.trial; {
	case t.err != nil:
		return required(bad(name, t.err.Error(), nothingRuns, f.firstFix()))
	case !t.made:
		return required(bad(name, notTried, nothingRuns, f.firstFix()))
	case !t.enforced():
		var list []string
		for _, w := range t.weaker {
			list = append(list, w.What+": "+w.Reason)
		}
		return required(weaker(name, strings.Join(list, "; "), "the default policy does not hold in full", f.firstFix()))
	}
	return required(good(name, fmt.Sprintf("a program ran in one: no capability, under the filter; %d ms", f.trial.took.Milliseconds())))
}
