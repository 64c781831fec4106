package lookup

import (
	"bufio"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// notThere is the hint for a command that was found nowhere.
func (in Root) notThere(name string, candidates []string) string {
	if strings.Contains(name, "/") {
		return in.missingHint(candidates[0])
	}
	if isInterpreter(name) {
		return fmt.Sprintf("an interpreter of the caller's PATH is shown with its library by files.interpreters = [%q]", name)
	}
	return "only what the policy shows is there: grant it with files.read, or give a path"
}

// missingHint says what would show a program that is not inside. A link is followed to where it leads: an environment of
// Python's ("venv") has its interpreter elsewhere.
func (in Root) missingHint(name string) string {
	if strings.HasSuffix(name, "\r") {
		return "the first line ends with a carriage return, as files from Windows do: remove it (sed -i 's/\\r$//' FILE)"
	}
	target := in.follow(name)
	if home := in.venvHome(name); home != "" {
		return fmt.Sprintf("%s belongs to a Python environment whose interpreter is in %s: files.interpreters = [%q] shows both",
			path.Base(name), home, path.Dir(path.Dir(name)))
	}
	if isInterpreter(path.Base(name)) && sayable(target) {
		return fmt.Sprintf("an interpreter is shown with its library by files.interpreters = [%q]", target)
	}
	if target != name && sayable(target) {
		return fmt.Sprintf("it is a link to %s: grant that with files.read (--read %s)", target, target)
	}
	return "only what the policy shows is there: grant it with files.read (--read " + name + ")"
}

// isInterpreter reports whether files.interpreters knows programs of that name.
func isInterpreter(name string) bool {
	name = strings.TrimRight(name, "0123456789.")
	return name == "python" || name == "pypy" || name == "node" || name == "java"
}

// maxLinks is how many the kernel follows on the way to one file.
const maxLinks = 40

// follow follows the links that a path itself is, to the first thing that is not inside.
func (in Root) follow(name string) string {
	for range maxLinks {
		f, err := in.Open(name, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			return name
		}
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(f.Fd()), "", buf)
		f.Close()
		if err != nil {
			return name
		}
		target := string(buf[:n])
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name), target)
		}
		name = target
	}
	return name
}

// venvHome is where the interpreter of a Python environment is installed, for a program in its bin; else "".
func (in Root) venvHome(name string) string {
	f, err := in.openRegular(path.Join(path.Dir(path.Dir(name)), "pyvenv.cfg"))
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 100
	lines := bufio.NewScanner(f)
	for n := 0; lines.Scan() && n < most; n++ {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if value = strings.TrimSpace(value); strings.TrimSpace(key) == "home" && path.IsAbs(value) && sayable(value) {
			if f, err := in.Open(value, unix.O_PATH); !errors.Is(err, unix.ENOENT) {
				f.Close()
				return ""
			}
			return value
		}
	}
	return ""
}

// sayable reports whether a text of the program's can be shown to the user.
func sayable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd })
}
