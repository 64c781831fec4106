package lookup

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
)

// Interpreted follows a script to its interpreter, as the kernel does, and returns how that is started. The interpreter is loaded by an
// ELF loader, and both lie where programs cannot write: one that a program has made could load what it likes.
func (in Root) Interpreted(program string, args []string, pathVar string) (string, []string, error) {
	for range maxInterpreters {
		line, script := in.shebang(program)
		if !script {
			return program, args, in.fixed(program, line)
		}
		next := append([]string{line}, program)
		if name, rest, more := strings.Cut(line, " "); more {
			next = []string{name, strings.Trim(rest, " \t"), program}
		}
		if path.Base(next[0]) == "env" && len(next) == 3 {
			found, err := in.Find(next[1], "/", pathVar)
			if err != nil {
				return "", nil, err
			}
			args, program = append([]string{next[1], program}, args[1:]...), found
			continue
		}
		args = append(next, args[1:]...)
		program = next[0]
	}
	return "", nil, fault.New(fault.GuardUnsupported, "", "processes.guard: %q has too many interpreters", program)
}

// shebang returns the line after "#!" of a script, or of another file its ELF loader, or nothing.
func (in Root) shebang(name string) (line string, script bool) {
	words := in.interpreter(name)
	f, err := in.openRegular(name)
	if err != nil || len(words) == 0 {
		return "", false
	}
	defer f.Close()
	var mark [2]byte
	if n, _ := f.ReadAt(mark[:], 0); n == len(mark) && string(mark[:]) == "#!" {
		return strings.Join(words, " "), true
	}
	return words[0], false
}

func (in Root) fixed(program, loader string) error {
	if loader == "" {
		return fault.New(fault.GuardUnsupported, "start the program with a Python of 3.8 or later", "processes.guard: %q is loaded by no ELF loader, so no guard can be put into it", program)
	}
	for _, name := range []string{program, loader} {
		f, err := in.Open(name, unix.O_PATH)
		if err != nil {
			return err
		}
		var fs unix.Statfs_t
		err = unix.Fstatfs(int(f.Fd()), &fs)
		f.Close()
		if err == nil && fs.Flags&unix.ST_RDONLY == 0 {
			err = fault.New(fault.GuardUnsupported, "start a Python that the policy shows read-only", "processes.guard: %q lies where programs can write", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
