package forkexec

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startPause starts the stub as process 1 of a sandbox would be, less the namespace.
func startPause(t *testing.T, owner *os.File) (cmd *exec.Cmd, release *os.File) {
	t.Helper()
	stub, err := Stub()
	if err != nil {
		t.Fatal(err)
	}
	ready, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("/proc/self/fd/3", "pause")
	cmd.ExtraFiles = []*os.File{stub, lock, ready, lock} // the last in place of the sealed state
	if owner != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, owner)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready.Close()
	lock.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); release.Close() })
	return cmd, release
}

func waitFor(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode()
		}
		return 0
	case <-time.After(10 * time.Second):
		t.Fatal("the stub goes on")
		return 0
	}
}

func TestStubIsSealed(t *testing.T) {
	stub, err := Stub()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stub.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the stub can be written")
	}
	if err := stub.Truncate(0); err == nil {
		t.Error("the stub can be cut")
	}
	f, err := elf.NewFile(bytes.NewReader(stubELF()))
	if err != nil || len(f.Progs) != 1 || f.Progs[0].Flags&elf.PF_W != 0 || f.Entry < stubBase {
		t.Errorf("not the file it should be: %v %+v", err, f)
	}
	if len(stubELF()) > 4096 {
		t.Errorf("%d bytes: it is to fit into a page", len(stubELF()))
	}
}

func TestPauseEndsWithItsCreator(t *testing.T) {
	cmd, release := startPause(t, nil)
	release.Close() // without a byte: the creator has died
	if code := waitFor(t, cmd); code != 1 {
		t.Errorf("exit status %d", code)
	}
}

func TestPauseEndsWithItsOwner(t *testing.T) {
	owner := exec.Command("sleep", "300")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(owner.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	pidfd := os.NewFile(uintptr(fd), "owner")
	defer pidfd.Close()
	cmd, release := startPause(t, pidfd)
	if _, err := release.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Fatal("it ended before its owner")
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		if err := cmd.Process.Signal(sig); err != nil { // which it does not hear
			t.Fatal(err)
		}
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	if code := waitFor(t, cmd); code != 1 {
		t.Errorf("exit status %d", code)
	}
}

func TestPauseWithoutOwnerStays(t *testing.T) {
	cmd, release := startPause(t, nil)
	if _, err := release.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	release.Close()
	time.Sleep(100 * time.Millisecond)
	if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Error("it ended")
	}
}

func TestProbe(t *testing.T) {
	if step, errno := Probe(); step != ProbeOK {
		t.Errorf("step %d fails: %v; no test of a sandbox can pass here", step, errno)
	}
}

func TestStepErrorNamesItsStep(t *testing.T) {
	err := &StepError{Step: StepExecve, Detail: `"/bin/x"`, Err: unix.ENOENT}
	if err.Error() != `execute the program "/bin/x": no such file or directory` || !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v", err)
	}
}
