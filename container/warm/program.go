package warm

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// interpreter are the names of what can be kept ready.
var interpreter = regexp.MustCompile(`^python3(\.[0-9]+)?$`)

// Interpreter reports whether a command names what can be kept ready.
func Interpreter(name string) bool { return interpreter.MatchString(path.Base(name)) }

// program says why a command line is none for a waiting interpreter; "" if it is one.
func program(args []string) string {
	switch {
	case len(args) < 2:
		return "there is no program: python3 -c CODE, or python3 FILE"
	case args[1] == "-c" && len(args) > 2:
		return ""
	case args[1] == "-c" || args[1] == "" || args[1][0] == '-':
		return "of the interpreter's options only -c CODE is possible"
	case path.Clean(args[1]) != args[1], strings.HasPrefix(args[1], ".."): // how the interpreter writes such a name differs
		return "the program's path has \".\", \"..\" or an empty part"
	}
	return ""
}

// starting are the variables that decide how an interpreter starts, or what it has read before site: by their beginnings.
func starting() []string {
	return []string{"PYTHON", "LD_", "LC_", "LANG", "TZ=", "TZDIR=", "PATH=", "MALLOC_", "GLIBC_", "LOCPATH=", "GCONV_PATH=", "NLSPATH=", "CHARSET="}
}

// harmless are those of Python's own with which nothing is read before site that is not the interpreter's.
func harmless() []string {
	return []string{
		"PYTHONBREAKPOINT", "PYTHONCOERCECLOCALE", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONINTMAXSTRDIGITS", "PYTHONIOENCODING",
		"PYTHONMALLOC", "PYTHONNOUSERSITE", "PYTHONOPTIMIZE", "PYTHONUNBUFFERED", "PYTHONUSERBASE", "PYTHONUTF8",
	}
}

// startVariables are those of an environment that an interpreter is started with.
func startVariables(env []string) []string {
	var list []string
	for _, kv := range env {
		if slices.ContainsFunc(starting(), func(begin string) bool { return strings.HasPrefix(kv, begin) }) {
			list = append(list, kv)
		}
	}
	slices.Sort(list)
	return list
}

const (
	guarded = "the program has a guard"
	moved   = "another interpreter is found now"
)

// unstartable says why no interpreter is kept ready by such a command, which was to end with a program, and with such variables.
func unstartable(args []string, program string, env []string) string {
	if len(args) != 4 || args[3] != program {
		return guarded
	}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "PYTHON") && !slices.Contains(harmless(), name) {
			return name + " is set, which decides what the interpreter reads at its start"
		}
	}
	return ""
}

// unfit says why a command cannot be given to an interpreter that was started by another; "" if it can.
func unfit(cmd, as *forkexec.Command) string {
	switch {
	case cmd.Terminal != nil:
		return "the program has a terminal"
	case cmd.Guard != nil:
		return guarded
	case len(cmd.Puts) > 0:
		return "files are written for the exec"
	case len(cmd.Extra.Steps) != len(as.Extra.Steps), len(cmd.Extra.Checks) > 0:
		return "the exec has a view of its own"
	case !slices.Equal(cmd.Mounts, as.Mounts):
		return "the exec has directories of its own, or something denied has appeared"
	case cmd.Limits.Memory != as.Limits.Memory, cmd.Limits.Pids != as.Limits.Pids, cmd.Limits.Nproc != as.Limits.Nproc, !slices.Equal(cmd.Rlimits, as.Rlimits):
		return "the exec has less memory or fewer processes than its sandbox"
	case !slices.Equal(startVariables(cmd.Env), as.Env):
		return "a variable that decides how the interpreter starts is another: PATH, TZ, LANG, LC_*, LD_* or PYTHON*"
	case cmd.Path != as.Path:
		return moved
	case !pipes(cmd):
		return "an output of the program's is no pipe"
	}
	return program(cmd.Args)
}

// pipes reports whether the outputs are what the interpreter took its own for when it started.
func pipes(cmd *forkexec.Command) bool {
	for _, f := range cmd.Stdio[1:] {
		var st unix.Stat_t
		if f == nil || unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			return false
		}
	}
	return true
}
