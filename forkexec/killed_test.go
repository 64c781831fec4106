package forkexec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const envEndless = "FORKEXEC_ENDLESS" // has the test binary do one thing, over and over, until it is killed

// endless are the calls whose processes have to end with the launcher, at whatever moment that is killed.
var endless = map[string]func(){
	"Probe":      func() { Probe() },
	"ProbeRoom":  func() { ProbeRoom() },
	"ProbeNproc": func() { ProbeNproc() },
	"Try": func() {
		for what := range CanKeyring + 1 {
			_, _ = Try(what, []unix.SockFilter{{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}})
		}
	},
	"UserNamespace": func() {
		if f, err := UserNamespace(fmt.Sprintf("0 %d 1\n", os.Getuid()), fmt.Sprintf("0 %d 1\n", os.Getgid())); err == nil {
			f.Close()
		}
	},
}

func TestMain(m *testing.M) {
	if name, _, ok := strings.Cut(os.Getenv(envEndless), " "); ok {
		for {
			endless[name]()
		}
	}
	os.Exit(m.Run())
}

// TestKilled: a launcher that is killed while it makes something takes its helpers with it.
func TestKilled(t *testing.T) {
	for name := range endless {
		t.Run(name, func(t *testing.T) {
			mark := fmt.Sprintf("%s=%s %d", envEndless, name, os.Getpid())
			for range 20 {
				cmd := exec.Command("/proc/self/exe")
				cmd.Env = []string{mark}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(10_000+rand.IntN(5000)) * time.Microsecond)
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			var left []int
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if left = marked(mark); len(left) == 0 {
					return
				}
			}
			for _, pid := range left {
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				t.Errorf("%s", stat)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
}

// marked are the processes that have a variable in their environment: they share the memory of the launcher.
func marked(variable string) []int {
	var list []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if data, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(data), variable+"\x00") {
			list = append(list, pid)
		}
	}
	return list
}
