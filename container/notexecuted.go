package container

import (
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
)

// notExecuted is the error of an execve that failed, which is the fault of the program or of its arguments.
func (sb *Sandbox) notExecuted(err unix.Errno, program string) error {
	code, hint := fault.ProgramNotExecutable, ""
	switch {
	case err == unix.ENOENT:
		code = fault.ProgramNotFound
	case err == unix.E2BIG:
		code, hint = fault.ArgumentsTooLong, "pass them in a file"
	case err == unix.ENOEXEC:
		hint = "a script needs a first line that names its interpreter, such as #!/bin/sh; a program must be made for this machine"
	case err == unix.EACCES && len(sb.state.Launch.Execute) > 0:
		hint = "processes.execute of the policy has the files that can be executed, and their interpreters"
	}
	return fail(code, hint, "%q: %w", program, err)
}
