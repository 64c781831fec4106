package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostMounts are those of process 1, of a sandbox of a policy that grants nothing.
const mostMounts = 20

// schedulerCalls come and go with threads and with what else the machine does.
var schedulerCalls = strings.Fields(`clone clone3 futex nanosleep clock_nanosleep sched_yield epoll_pwait epoll_wait epoll_ctl tgkill getpid gettid
	rt_sigreturn rt_sigaction rt_sigprocmask sigaltstack mmap munmap mprotect madvise brk rseq set_robust_list exit exit_group
	wait4 waitid ppoll poll restart_syscall sched_getaffinity read readlinkat getsid clock_gettime`)

// fileCalls are made for each file of the host that the launcher looks at for base "system": how many depends on what is installed.
var fileCalls = strings.Fields(`newfstatat lstat openat close getdents64`)

// TestBudget counts what commands cost in terms that are the same on a slow machine and a fast one: the processes, with the command
// itself and without threads, and the system calls of them all, for root and for an unprivileged user. Lower a number when you have
// made it lower; raise it for a check or a protection that is worth it, and say so in the commit. Counts of calls have something
// to spare: the launcher looks at each session of the machine, and the watcher of the default policy's limits as often as it can.
func TestBudget(t *testing.T) {
	if _, err := os.Stat("/usr/bin/strace"); err != nil {
		need(t, "strace", false)
	}
	flavours(t, func(b *box) {
		who := min(os.Getuid(), 1)
		ws := b.mkdir("ws")
		owner := fmt.Sprint("--owner=", os.Getpid())
		base := object{"base": "none", "read": []string{"/usr", "/bin", "/lib", "/lib64"}, "missing": "skip"} // "system" has what is installed here
		// Without limits nothing samples, which happens as often as there is time.
		b.call(call{dir: ws}, "create", owner, "--policy", b.policy(object{"version": 1, "files": base}), "box").exits(0)
		if n := b.mountsOf("box"); n > mostMounts {
			b.t.Errorf("process 1 has %d mounts; the budget has %d", n, mostMounts)
		}
		pooled := b.policy(object{"version": 1, "extends": "default", "files": base})
		pool := b.pool(call{}, "--policy", pooled, "--size", "4")
		trace := func(args ...string) (processes, calls int) {
			b.t.Helper()
			file := filepath.Join(b.mkdir("trace"), "calls")
			env := []string{"SANDBOXRUN_POOL=" + pool.name}
			if args[0] == "run" && !slices.Contains(args, pooled) {
				env = nil
			}
			b.call(call{dir: ws, env: env, wrap: []string{"/usr/bin/strace", "-f", "-qq", "-o", file}}, args...).exits(0)
			text, err := os.ReadFile(file)
			if err != nil {
				b.t.Fatal(err)
			}
			return countCalls(string(text))
		}
		for _, c := range []struct {
			args             []string
			processes, calls [2]int
			again            int
		}{
			{[]string{"run", "--policy", b.policy(object{"version": 1, "extends": "default", "files": base}), "--", "/bin/true"}, [2]int{20, 23}, [2]int{2_150, 1_960}, 2},
			{[]string{"exec", "box", "--", "/bin/true"}, [2]int{5, 5}, [2]int{240, 240}, 2},
			{[]string{"exec", "--json", "box", "--", "/bin/true"}, [2]int{5, 5}, [2]int{260, 260}, 2},
			{[]string{"run", "--policy", pooled, "--", "/bin/true"}, [2]int{5, 5}, [2]int{300, 300}, 2},
			{[]string{"create", "--policy", pooled, owner, "from-pool"}, [2]int{1, 1}, [2]int{40, 40}, 0},
			{[]string{"delete", "box"}, [2]int{1, 1}, [2]int{40, 40}, 0},
		} {
			processes, calls := trace(c.args...)
			for range c.again { // what comes on top is the machine's
				_, n := trace(c.args...)
				calls = min(calls, n)
			}
			b.t.Logf("%v: %d processes, %d calls", c.args, processes, calls)
			if processes > c.processes[who] || calls > c.calls[who] {
				b.t.Errorf("%v: %d processes and %d system calls; the budget has %d and %d", c.args, processes, calls,
					c.processes[who], c.calls[who])
			}
		}
	})
}

// countCalls reads what strace has written.
func countCalls(text string) (processes, calls int) {
	processes = 1
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(line, " ")
		name, args, ok := strings.Cut(strings.TrimSpace(rest), "(")
		if !ok || strings.HasPrefix(name, "<...") {
			continue
		}
		switch {
		case strings.HasPrefix(name, "clone") || name == "fork" || name == "vfork":
			if !strings.Contains(args, "CLONE_THREAD") {
				processes++
			}
		case !slices.Contains(schedulerCalls, name) && !slices.Contains(fileCalls, name):
			calls++
		}
	}
	return processes, calls
}

// mountsOf counts the mounts of a sandbox's process 1.
func (b *box) mountsOf(id string) int {
	b.t.Helper()
	var state struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(b.run("state", id).exits(0).stdout), &state); err != nil {
		b.t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", state.PID))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}
