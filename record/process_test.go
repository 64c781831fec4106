package record

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestReadProcess(t *testing.T) {
	read := func(path string) *Process {
		t.Helper()
		p, err := ReadProcess(openDir(t, path))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	own := read("/proc/self")
	for _, name := range []string{"user", "mnt", "net", "pid", "ipc", "uts", "cgroup"} {
		if n := own.Namespaces[name]; n.Inode == 0 || n.Inode != n.Host {
			t.Errorf("%s: %+v", name, n)
		}
	}
	if len(own.UID) != 4 || own.UID[1] != os.Geteuid() || len(own.GID) != 4 || len(own.Capabilities["bounding"]) != 16 {
		t.Errorf("%+v", own)
	}

	cmd := exec.Command("sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWUTS}
	if err := cmd.Start(); err != nil {
		t.Skipf("no user namespace: %v", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	apart := read("/proc/" + strconv.Itoa(cmd.Process.Pid))
	if u := apart.Namespaces["uts"]; u.Inode == u.Host || u.Host != own.Namespaces["uts"].Inode {
		t.Errorf("uts: %+v", u)
	}
	if n := apart.Namespaces["net"]; n.Inode != n.Host {
		t.Errorf("net: %+v", n)
	}
}

func TestReadProcessMissesNothing(t *testing.T) {
	const status = "Uid:\t0\t1\t2\t3\nGid:\t4\t5\t6\t7\nGroups:\t8 9 \nNoNewPrivs:\t1\nSeccomp:\t2\n" +
		"CapInh:\t0000000000000001\nCapPrm:\t2\nCapEff:\t3\nCapBnd:\t4\nCapAmb:\t5\n"
	var p Process
	if err := p.status(status); err != nil {
		t.Fatal(err)
	}
	if !p.NoNewPrivs || p.Seccomp != 2 || p.UID[3] != 3 || p.Groups[1] != 9 || p.Capabilities["ambient"] != "5" {
		t.Errorf("%+v", p)
	}
	for line := range strings.Lines(status) {
		if err := p.status(strings.Replace(status, line, "", 1)); err == nil {
			t.Errorf("%q is not missed", line)
		}
	}
	if err := p.status(strings.Replace(status, "Seccomp:\t2", "Seccomp:\tx", 1)); err == nil {
		t.Error("no number, and no error")
	}
}
