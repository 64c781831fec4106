package cli

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/chmod"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Commands that only sandboxrun itself starts.

// isOurs reports whether another sandboxrun process started this one, as a monitor or relay: it then has pipes and no environment
// variable. A user who types the word has variables.
func isOurs(p *caller.Caller, word string) bool {
	if len(p.Args) != 3 || p.Args[1] != word || len(p.Env) > 0 {
		return false
	}
	for _, f := range []*os.File{p.In, p.Out.File} {
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			return false
		}
	}
	return true
}

// answersModes reports whether an exec of the short way started this process to answer its filter: descriptor 3 is that filter's listener.
func answersModes(p *caller.Caller) bool {
	return len(p.Args) == 3 && p.Args[1] == chmod.Command && len(p.Env) == 0 && chmod.Inherited() != nil
}

// modes answers until the exec has ended.
func modes() int {
	_ = os.WriteFile("/proc/self/comm", []byte("sandboxrun"), 0) // the name would be that of /proc/self/exe
	if chmod.Answer(chmod.Inherited()) != nil {
		return fault.ExitLauncher
	}
	return 0
}

// relay serves a sandbox's network until the sandbox ends. No signal of a terminal or of the caller's session ends it.
func relay() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP)
	_ = os.WriteFile("/proc/self/comm", []byte("sandboxrun"), 0) // the name would be that of /proc/self/exe
	in, out, err := monitorStreams()
	if err == nil {
		err = relayproc.Serve(in, out)
	}
	if err != nil {
		return fault.ExitLauncher
	}
	return 0
}

// monitor supervises a detached exec. No signal of a terminal or of the caller's session ends it. It passes SIGTERM on to the
// program, as an attached exec does.
func monitor() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP)
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM)
	_ = os.WriteFile("/proc/self/comm", []byte("sandboxrun"), 0) // the name would be that of /proc/self/exe
	in, out, err := monitorStreams()
	if err != nil {
		return fault.ExitLauncher
	}
	container.Monitor(in, out, func(r *container.Running) {
		go func() {
			for range terms {
				_ = r.Signal(unix.SIGTERM) // it may have ended
			}
		}()
	})
	return 0
}

// monitorStreams moves the pipes to the command away from the standard streams and points these to /dev/null, so that no process
// that the monitor starts keeps the pipes open.
func monitorStreams() (in, out *os.File, err error) {
	var pipes [2]*os.File
	for i := range pipes {
		fd, err := unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, nil, err
		}
		pipes[i] = os.NewFile(uintptr(fd), "pipe")
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	for i := range 3 {
		if err := unix.Dup3(int(null.Fd()), i, 0); err != nil {
			return nil, nil, err
		}
	}
	return pipes[0], pipes[1], nil
}
