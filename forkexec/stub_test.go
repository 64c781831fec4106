package forkexec

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startPause starts the stub as process 1 of a sandbox would be, less the namespace.
func startPause(t *testing.T) (cmd *exec.Cmd, release *os.File) {
	t.Helper()
	stub, err := Stub()
	if err != nil {
		t.Fatal(err)
	}
	release, ready, err := CreatorSocket()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("/proc/self/fd/3", "pause")
	cmd.ExtraFiles = []*os.File{stub, lock, ready}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready.Close()
	lock.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); release.Close() })
	return cmd, release
}

// tell tells it something, and waits until it holds the text.
func tell(t *testing.T, cmd *exec.Cmd, release *os.File, word byte, text string, owner *os.File) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sealed")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := TellProcess1(release, word, f, owner); err != nil {
		t.Fatal(err)
	}
	held := fmt.Sprintf("/proc/%d/fd/%d", cmd.Process.Pid, SealedFD)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if data, _ := os.ReadFile(held); string(data) == text {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it does not hold what it was given")
		}
	}
}

// waitClosed waits until it has closed its end of the socket.
func waitClosed(t *testing.T, release *os.File) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(release.Fd())}}
	if n, err := unix.Poll(fds, 10_000); n != 1 || err != nil {
		t.Fatal("it still has its creator's socket", err)
	}
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
	cmd, release := startPause(t)
	release.Close() // without a byte: the creator has died
	if code := waitFor(t, cmd); code != 1 {
		t.Errorf("exit status %d", code)
	}
}

func TestPauseKeptReadyEndsWithItsCreator(t *testing.T) {
	cmd, release := startPause(t)
	tell(t, cmd, release, Ready, "a", nil)
	release.Close()
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
	cmd, release := startPause(t)
	tell(t, cmd, release, Ready, "a", nil)
	tell(t, cmd, release, Complete, "b", pidfd)
	waitClosed(t, release)
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
	cmd, release := startPause(t)
	tell(t, cmd, release, Complete, "a", nil)
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
