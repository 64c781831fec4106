// Package selfexec starts this binary again, for what goes on when the command has ended: the relay of a sandbox, and the monitor of a
// detached exec. It owns how such a process begins: in a session of its own, in "/", with no variable, and with nothing open but a
// pipe for its order, a pipe for its answer, /dev/null and what it is given. It imports none of ours.
package selfexec

import (
	"math"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts this binary with a command word and a sandbox's id as its arguments, so that ps shows them. All else comes through in.
// The files of more are its descriptors from 3 on.
func Start(word, id string, more ...*os.File) (cmd *exec.Cmd, in, answer *os.File, err error) {
	// What the caller left open for us is not the process': a pipe's reader would wait for it.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.Command("/proc/self/exe", word, id)
	cmd.Args[0], cmd.Dir, cmd.Env = "sandboxrun", "/", []string{}
	cmd.ExtraFiles = more
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, answer, err = startPiped(cmd)
	return cmd, in, answer, err
}

// startPiped makes the pipes. Standard error is /dev/null.
func startPiped(cmd *exec.Cmd) (in, answer *os.File, err error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer theirIn.Close()
	answer, theirAnswer, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, nil, err
	}
	defer theirAnswer.Close()
	cmd.Stdin, cmd.Stdout = theirIn, theirAnswer
	if err := cmd.Start(); err != nil {
		in.Close()
		answer.Close()
		return nil, nil, err
	}
	return in, answer, nil
}
