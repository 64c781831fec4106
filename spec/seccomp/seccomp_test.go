package seccomp

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	osexec "os/exec" // resolve.go has an exec of its own
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var updateSeccomp = flag.Bool("update-seccomp", false, "write the golden seccomp profiles anew")

// seccompJSON writes a profile with one rule on a line, so that a change of it can be read.
func seccompJSON(t *testing.T, p *specs.LinuxSeccomp) []byte {
	t.Helper()
	head := *p
	head.Syscalls = nil
	b, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.Write(bytes.TrimSuffix(b, []byte("}")))
	out.WriteString(`,"syscalls":[`)
	for i, r := range p.Syscalls {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		out.Write(b)
	}
	out.WriteString("\n]}\n")
	return out.Bytes()
}

// The golden files are also what forkexec's tests compile.
func TestSeccompGolden(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		got := seccompJSON(t, Profile(arch, 6, 1))
		file := filepath.Join("testdata", "seccomp_"+arch+".json")
		if *updateSeccomp {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what Seccomp returns; if that is meant, run the test with -update-seccomp", file)
		}
		var back specs.LinuxSeccomp
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

// seccompActs returns what a profile says of a call with the given arguments, as libseccomp understands it: the action
// of the rules that match, which must all be the same.
func seccompActs(t *testing.T, p *specs.LinuxSeccomp, name string, args ...uint64) (specs.LinuxSeccompAction, uint) {
	t.Helper()
	action, errno, matched := p.DefaultAction, p.DefaultErrnoRet, false
	for _, r := range p.Syscalls {
		if !slices.Contains(r.Names, name) {
			continue
		}
		match := true
		for _, a := range r.Args {
			var v uint64
			if int(a.Index) < len(args) {
				v = args[a.Index]
			}
			switch a.Op {
			case specs.OpMaskedEqual:
				match = match && v&a.Value == a.ValueTwo
			case specs.OpEqualTo:
				match = match && v == a.Value
			case specs.OpGreaterThan:
				match = match && v > a.Value
			default:
				t.Fatalf("%s: operator %s", name, a.Op)
			}
		}
		if match {
			if matched {
				t.Errorf("%s %#x: two rules match", name, args)
			}
			action, errno, matched = r.Action, r.ErrnoRet, true
		}
	}
	if errno == nil {
		return action, 0
	}
	return action, *errno
}

// seccompCall is a call and how it is to end; with 0 it is allowed.
type seccompCall struct {
	name string
	args []uint64
	want unix.Errno
}

func seccompCalls() []seccompCall {
	const high = 1 << 32
	calls := []seccompCall{
		{"read", nil, 0},
		{"openat2", nil, 38},
		{"memfd_create", nil, 0},
		{"landlock_create_ruleset", nil, 0},
		{"ptrace", nil, 0},
		{"fchmodat", []uint64{0, 0, 0o755}, 0},
		{"fchmodat", []uint64{0, 0, 0o6755}, 1},
		{"fchmodat", []uint64{0, 0, 0o2755}, 1},
		{"fchmodat", []uint64{0, 0, 0o1777}, 0},
		{"openat", []uint64{0, 0, 0o100, 0o4755}, 1},
		{"openat", []uint64{0, 0, 0o100, 0o755}, 0},
		{"openat", []uint64{0, 0, 0, 0o4755}, 0},
		{"openat", []uint64{0, 0, 0o20000000, 0o2755}, 1},
		{"clone3", nil, unix.ENOSYS},
		{"nonesuch", nil, unix.ENOSYS},
		{"file_getattr", nil, unix.ENOSYS},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_THREAD | uint64(unix.SIGCHLD)}, 0},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_VFORK, 0}, 0},
		{"ioctl", []uint64{0, unix.TCGETS}, 0},
		{"ioctl", []uint64{0, 0xffffffff80045430}, 0}, // TIOCGPTN as musl passes it, with its sign
		{"ioctl", []uint64{0, 0x5411}, 0},
		{"ioctl", []uint64{0, 0x5413}, 0},
		{"personality", []uint64{0xffffffff}, 0},
		{"personality", []uint64{0x40000}, unix.EPERM},
		{"personality", []uint64{0x20008}, 0},
		{"personality", []uint64{1}, unix.EPERM},
		{"socket", []uint64{0}, unix.EAFNOSUPPORT},
	}
	for _, bit := range []uint64{
		unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER, unix.CLONE_NEWPID,
		unix.CLONE_NEWNET,
	} {
		calls = append(calls, seccompCall{"clone", []uint64{bit | uint64(unix.SIGCHLD)}, unix.EPERM})
	}
	for _, request := range []uint64{unix.TIOCSTI, 0x541C} {
		for _, h := range []uint64{0, high, 1 << 63, 0xffffffff00000000} {
			calls = append(calls, seccompCall{"ioctl", []uint64{0, h | request}, unix.EPERM})
		}
	}
	for _, name := range []string{"socket", "socketpair"} {
		for family := range uint64(64) {
			want := unix.EAFNOSUPPORT
			switch family {
			case unix.AF_UNIX:
				want = 0
			case unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK: // socketpair does not support these families
				if name == "socket" {
					want = 0
				}
			}
			calls = append(calls, seccompCall{name, []uint64{family, unix.SOCK_STREAM}, want},
				seccompCall{name, []uint64{family | high, unix.SOCK_STREAM}, want})
		}
	}
	return calls
}

func TestSeccompDecides(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		p := Profile(arch, 6, 1)
		calls := append(seccompCalls(), argumentCalls()...)
		for _, name := range neverAllowed() {
			if slices.Contains(knownCalls(arch), name) {
				calls = append(calls, seccompCall{name, nil, unix.EPERM})
			}
		}
		for _, c := range calls {
			action, errno := seccompActs(t, p, c.name, c.args...)
			want := specs.ActErrno
			if c.want == 0 {
				want = specs.ActAllow
			}
			if action != want || errno != uint(c.want) {
				t.Errorf("%s: %s %#x: %s %d, want %d", arch, c.name, c.args, action, errno, c.want)
			}
		}
	}
}

func TestSeccompMachine(t *testing.T) {
	if p := Profile("riscv64", 6, 1); p.DefaultAction != specs.ActKillProcess || len(p.Syscalls) != 0 {
		t.Errorf("an architecture without a table: %+v", p)
	}
	for _, c := range []struct {
		major, minor int
		want         specs.LinuxSeccompAction
	}{{4, 8, specs.ActAllow}, {5, 0, specs.ActAllow}, {4, 7, specs.ActErrno}, {0, 0, specs.ActErrno}} {
		if got, _ := seccompActs(t, Profile("amd64", c.major, c.minor), "ptrace"); got != c.want {
			t.Errorf("ptrace on Linux %d.%d: %s", c.major, c.minor, got)
		}
	}
	if got, _ := seccompActs(t, Profile("arm64", 6, 1), "arch_prctl"); got != specs.ActErrno {
		t.Errorf("arm64 has calls of amd64")
	}
}

// A profile that OCI runtimes read alike has no argument twice in a rule, and no call both with and without arguments.
func TestSeccompPortable(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		plain, tested := map[string]int{}, map[string]int{}
		for _, r := range Profile(arch, 6, 1).Syscalls {
			seen := map[uint]bool{}
			for _, a := range r.Args {
				if seen[a.Index] {
					t.Errorf("%v: argument %d twice in a rule", r.Names, a.Index)
				}
				seen[a.Index] = true
			}
			for _, n := range r.Names {
				if len(r.Args) == 0 {
					plain[n]++
				} else {
					tested[n]++
				}
			}
		}
		for n, c := range plain {
			if c > 1 || tested[n] > 0 {
				t.Errorf("%s: %s has %d rules without and %d with arguments", arch, n, c, tested[n])
			}
		}
	}
}

// The table has to know every call that golang.org/x/sys knows, so that an update of it brings new calls to someone's
// eyes. These are known to be missing.
func TestSeccompTableComplete(t *testing.T) {
	unseen := map[string]string{
		"file_getattr":     "6.17; lsattr falls back to ioctl",
		"file_setattr":     "6.17; chattr falls back to ioctl",
		"listns":           "6.19; nobody needs it",
		"rseq_slice_yield": "7.0; glibc does without",
		"uprobe":           "6.18; the kernel's own trampoline, which seccomp lets pass",
		// Not a call but a range of numbers.
		"arch_specific_syscall": "",
	}
	dir, err := osexec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Skipf("find golang.org/x/sys: %v", err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go"))
		if err != nil {
			t.Fatal(err)
		}
		known := knownCalls(arch)
		if !slices.IsSorted(known) || len(slices.Compact(slices.Clone(known))) != len(known) {
			t.Errorf("%s: the table is not sorted or has a name twice", arch)
		}
		var real []string
		for _, m := range regexp.MustCompile(`SYS_(\w+)\s+=`).FindAllSubmatch(b, -1) {
			real = append(real, strings.ToLower(string(m[1])))
		}
		for _, name := range real {
			if _, ok := unseen[name]; !ok && !slices.Contains(known, name) {
				t.Errorf("%s: %s is in no table: nobody has looked at it", arch, name)
			}
		}
		for _, name := range known {
			if !slices.Contains(real, name) {
				t.Errorf("%s: %s does not exist", arch, name)
			}
		}
		for _, name := range neverAllowed() {
			if !slices.Contains(known, name) && !slices.Contains(amd64Calls(), name) {
				t.Errorf("%s: %s is to be refused but is in no table", arch, name)
			}
		}
	}
}

func BenchmarkSeccomp(b *testing.B) {
	for b.Loop() {
		Profile("amd64", 6, 1)
	}
}
