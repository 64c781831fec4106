package lookup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs/elf"
)

// maxRaces is how often a path is looked up again because of a rename.
const maxRaces = 100

// maxInterpreters is how many scripts the kernel follows one from another.
const maxInterpreters = 5

// Root looks at the files of a sandbox as its programs see them. Every path is resolved by the kernel below the
// sandbox's root, and magic links are not followed, so nothing that a program has made can lead outside.
type Root struct{ FD int }

// Open never blocks, and never gives the launcher a controlling terminal, whatever a program has put at a name.
func (in Root) Open(name string, flags uint64) (*os.File, error) {
	fd, err := in.open(name, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// open is Open without an os.File, which costs some system calls. Each exec opens a few files.
func (in Root) open(name string, flags uint64) (int, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NOCTTY | unix.O_NONBLOCK
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(in.FD, name, &how)
		// EAGAIN: a rename raced with "..", see openat2(2). Or somebody has a lease on the file, and may keep it for long.
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) && try < maxRaces {
			continue
		}
		return fd, err
	}
}

// openRegular opens a file to read it if it is a regular one. What was looked at is what is opened, whatever the program puts in
// its place meanwhile.
func (in Root) openRegular(name string) (*os.File, error) {
	fd, err := in.regular(name)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// regular is openRegular without an os.File.
func (in Root) regular(name string) (int, error) {
	at, err := in.open(name, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err = unix.Fstat(at, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EACCES
	}
	if err != nil {
		return -1, err
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// Find finds what a command names: a path, or a name that is looked for in PATH. It also makes sure that what
// the program needs to be loaded by is there, since the kernel would only say that the program is not.
func (in Root) Find(name, dir, pathVar string) (string, error) {
	if name == "" {
		return "", fault.New(fault.ProgramNotFound, "", "the command's name is empty")
	}
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = candidates[:0]
		for d := range strings.SplitSeq(pathVar, ":") {
			if strings.HasPrefix(d, "/") { // a relative one would let the working directory decide what runs
				candidates = append(candidates, path.Join(d, name))
			}
		}
	} else if !strings.HasPrefix(name, "/") {
		candidates[0] = path.Join(dir, name)
	}
	var found error
	for _, c := range candidates {
		err := in.executable(c)
		if err == nil {
			return c, in.loadable(c, pathVar)
		}
		if found == nil || errors.Is(err, unix.EACCES) {
			found = err
		}
	}
	switch {
	case errors.Is(found, unix.EACCES):
		return "", fault.New(fault.ProgramNotExecutable, "it needs the x permission and must be a regular file: chmod +x",
			"%q cannot be executed: %w", name, found)
	case found == nil, Absent(found):
		return "", fault.New(fault.ProgramNotFound, in.notThere(name, candidates), "%q is not in the sandbox", name)
	}
	return "", fmt.Errorf("look for %q in the sandbox: %w", name, found)
}

// Absent reports whether an error means that there is nothing at a path: a part of it does not exist, is no directory or a link,
// or is a name that no file can have.
func Absent(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// executable reports whether a file can be executed at all; whether this program may, the kernel decides.
func (in Root) executable(name string) error {
	fd, err := in.open(name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return unix.EACCES
	}
	return nil
}

// loadable follows a program to its interpreters: of a script the one behind "#!", of a dynamic program the ELF loader.
func (in Root) loadable(name, pathVar string) error {
	for range maxInterpreters {
		line := in.interpreter(name)
		if len(line) == 0 {
			return nil
		}
		interp := line[0]
		if !strings.HasPrefix(interp, "/") {
			return fault.New(fault.InterpreterRelative, "what it means would depend on the working directory; give it an absolute path",
				"%q asks for the interpreter %q, which is not an absolute path", name, interp)
		}
		if err := in.executable(interp); err != nil {
			return fault.New(fault.InterpreterMissing, in.missingHint(interp), "%q needs the interpreter %q: %w", name, interp, err)
		}
		if err := in.throughEnv(name, line, pathVar); err != nil {
			return err
		}
		name = interp
	}
	return nil
}

// throughEnv looks for the program that "#!/usr/bin/env NAME" asks for: env itself would only say that it is not there.
func (in Root) throughEnv(name string, line []string, pathVar string) error {
	if path.Base(line[0]) != "env" || len(line) < 2 {
		return nil
	}
	asked := line[1]
	if asked == "-S" && len(line) > 2 {
		asked = line[2]
	}
	if strings.HasPrefix(asked, "-") || strings.ContainsAny(asked, "=/\\'\"$") {
		return nil // env's business
	}
	for d := range strings.SplitSeq(pathVar, ":") {
		if in.executable(path.Join("/", d, asked)) == nil {
			return nil
		}
	}
	return fault.New(fault.InterpreterMissing, "grant it with files.read, and its directory in env.set PATH if it is in none of "+pathVar,
		"%q needs the interpreter %q, which is not in the sandbox's PATH", name, asked)
}

// begun is a file of which the beginning has been read.
type begun struct {
	fd   int
	head []byte
}

func (b begun) ReadAt(p []byte, at int64) (int, error) {
	if at >= 0 && at+int64(len(p)) <= int64(len(b.head)) {
		return copy(p, b.head[at:]), nil
	}
	n, err := unix.Pread(b.fd, p, at)
	if err == nil && n < len(p) {
		err = io.ErrUnexpectedEOF
	}
	return max(n, 0), err
}

// headSize is how much of a file is read at once: the first line of a script, and the header and segments of most ELF files.
const headSize = 4096

// interpreter is what a file says that it must be loaded by, with its arguments; empty if nothing, or if the file cannot be
// read.
func (in Root) interpreter(name string) []string {
	fd, err := in.regular(name)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	head := make([]byte, headSize)
	n, err := unix.Pread(fd, head, 0)
	if err != nil {
		return nil
	}
	head = head[:n]
	if words, ok := elf.Script(head); ok {
		return words
	}
	if len(head) <= elf.ClassAt || head[elf.ClassAt] != elf.Class64 { // the filter ends system calls of 32-bit programs
		return nil
	}
	if interp, err := elf.Loader(begun{fd, head}, head); err == nil && interp != "" {
		return []string{interp}
	}
	return nil
}

// Identify says which file is at a path inside.
func (in Root) Identify(path string) (dev, ino uint64, err error) {
	f, err := in.Open(path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	return st.Dev, st.Ino, err
}
