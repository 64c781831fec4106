package integration

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An attack is a piece of Python that calls broke when it has got what it wanted. Each is run without a sandbox too, where it
// must succeed: an attack that cannot succeed shows nothing.
type attack struct {
	name    string
	program string
	// args are arguments in which a word such as $VICTIM stands for what the stage has set up; inside are those in a
	// sandbox where they are others.
	args, inside []string
	// fails has the errors that it may meet in a sandbox; it must meet one of them and no other, unless "none" is among them
	// or there are none: then what it looks for may simply not be there.
	fails string
	// leans names, with commas between them, the layers without which it succeeds. Without any other, alone, it does not:
	// the layers that are left hold it.
	leans      string
	leansRoot  string // more such, where the launcher is root
	leansUser  string // and where it is not: then the program is the same user
	privileged bool   // outside it needs every capability, so the control has namespaces of its own in which it has them
	rootOnly   bool   // outside it takes real privilege: only the root flavour has a control
	userOnly   bool   // outside root has already got what it wants
}

func allAttacks() []attack {
	return slices.Concat(fileAttacks, processAttacks, supervisorAttacks, kernelAttacks, networkAttacks, hostAttacks, identityAttacks)
}

// attacks are those that say something where the caller is who it is.
func attacks() []attack {
	return slices.DeleteFunc(allAttacks(), func(a attack) bool { return a.rootOnly && w.uid != 0 || a.userOnly && w.uid == 0 })
}

//go:embed testdata/escape.py
var escapeProgram string

// systemCalls are the numbers of those that attacks make by themselves.
var systemCalls = map[string]int{
	"acct": unix.SYS_ACCT, "add_key": unix.SYS_ADD_KEY, "adjtimex": unix.SYS_ADJTIMEX, "bpf": unix.SYS_BPF, "capget": unix.SYS_CAPGET,
	"capset": unix.SYS_CAPSET, "clone": unix.SYS_CLONE, "clone3": unix.SYS_CLONE3, "fanotify_init": unix.SYS_FANOTIFY_INIT,
	"fsopen": unix.SYS_FSOPEN, "fspick": unix.SYS_FSPICK, "init_module": unix.SYS_INIT_MODULE,
	"inotify_add_watch": unix.SYS_INOTIFY_ADD_WATCH, "inotify_init1": unix.SYS_INOTIFY_INIT1, "io_uring_setup": unix.SYS_IO_URING_SETUP,
	"io_setup": unix.SYS_IO_SETUP, "ioprio_set": unix.SYS_IOPRIO_SET,
	"kcmp": unix.SYS_KCMP, "kexec_load": unix.SYS_KEXEC_LOAD, "keyctl": unix.SYS_KEYCTL, "mount": unix.SYS_MOUNT,
	"mount_setattr": unix.SYS_MOUNT_SETATTR, "move_mount": unix.SYS_MOVE_MOUNT, "msgget": unix.SYS_MSGGET,
	"name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "open_tree": unix.SYS_OPEN_TREE,
	"openat2": unix.SYS_OPENAT2, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "personality": unix.SYS_PERSONALITY,
	"pidfd_getfd": unix.SYS_PIDFD_GETFD, "pivot_root": unix.SYS_PIVOT_ROOT, "prctl": unix.SYS_PRCTL, "prlimit64": unix.SYS_PRLIMIT64,
	"process_vm_readv": unix.SYS_PROCESS_VM_READV, "process_vm_writev": unix.SYS_PROCESS_VM_WRITEV, "ptrace": unix.SYS_PTRACE,
	"reboot": unix.SYS_REBOOT, "renameat2": unix.SYS_RENAMEAT2, "request_key": unix.SYS_REQUEST_KEY, "semget": unix.SYS_SEMGET,
	"setdomainname": unix.SYS_SETDOMAINNAME, "sethostname": unix.SYS_SETHOSTNAME, "setns": unix.SYS_SETNS, "shmget": unix.SYS_SHMGET,
	"swapoff": unix.SYS_SWAPOFF, "swapon": unix.SYS_SWAPON, "syslog": unix.SYS_SYSLOG, "umount2": unix.SYS_UMOUNT2,
	"unshare": unix.SYS_UNSHARE, "userfaultfd": unix.SYS_USERFAULTFD,
}

// outcomes are what attacks have printed, by their names.
type outcomes map[string]string

// broke says whether an attack has got what it wanted.
func (o outcomes) broke(name string) bool { return strings.Contains(o[name], "BROKE") }

// met lists the errors that it met.
func (o outcomes) met(name string) []string {
	_, after, _ := strings.Cut(o[name], "MET")
	return strings.Fields(after)
}

// play runs a command that is escape.py, somewhere, with attacks.
func (s *stage) play(cmd *exec.Cmd, list []attack, inside bool) outcomes {
	s.t.Helper()
	const seconds = 10 // for one attack: none takes longer than half a second
	type one struct {
		Name       string   `json:"name"`
		Program    string   `json:"program"`
		Args       []string `json:"args"`
		Privileged bool     `json:"privileged"`
	}
	job := struct {
		Calls   map[string]int `json:"calls"`
		Seconds int            `json:"seconds"`
		Attacks []one          `json:"attacks"`
	}{Calls: systemCalls, Seconds: seconds}
	for _, a := range list {
		args := a.args
		if inside && a.inside != nil {
			args = a.inside
		}
		o := one{Name: a.name, Program: a.program, Privileged: a.privileged && !inside}
		for _, arg := range args {
			o.Args = append(o.Args, s.words.Replace(arg))
		}
		job.Attacks = append(job.Attacks, o)
	}
	input, err := json.Marshal(job)
	if err != nil {
		s.t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	cmd.ExtraFiles = append(cmd.ExtraFiles, s.open)
	err = cmd.Run()
	var got outcomes
	if wrong := json.Unmarshal(out.Bytes(), &got); err != nil || wrong != nil {
		s.t.Fatalf("attacks: %v, %v\n%s\n%s", err, wrong, cut(out.String()), cut(errs.String()))
	}
	for _, a := range list {
		if text := got[a.name]; !strings.Contains(text, "MET") && !strings.Contains(text, "BROKE") || strings.Contains(text, "Traceback") {
			s.t.Errorf("%s did not run: %s", a.name, text)
		}
	}
	return got
}

// outside runs attacks without a sandbox.
func (s *stage) outside(list []attack) outcomes {
	s.t.Helper()
	cmd := exec.Command("python3", "-c", escapeProgram)
	cmd.Dir, cmd.Env = s.path("work"), append(slices.Clone(s.env), "LAUNCHER="+launcherVariable)
	return s.play(cmd, list, false)
}

// inside runs them in a sandbox; without names layers that are left out, where the binary can do that.
func (s *stage) inside(list []attack, without string) outcomes {
	s.t.Helper()
	c := call{env: []string{"LAUNCHER=" + launcherVariable}}
	if without != "" {
		c.env = append(c.env, "SANDBOXRUN_SABOTAGE=refusal of broken checks,"+without)
	}
	return s.play(s.command(c, "run", "-p", s.policy, "--", "python3", "-c", escapeProgram), list, true)
}

// TestEscapes runs every attack without a sandbox and in one.
func TestEscapes(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		list := attacks()
		control, got := newStage(t).outside(list), newStage(t).inside(list, "")
		for _, a := range list {
			t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
				if got.broke(a.name) {
					t.Errorf("it succeeded:\n%s", got[a.name])
				}
				met, allowed := got.met(a.name), strings.Fields(a.fails)
				if len(met) == 0 && len(allowed) > 0 && !slices.Contains(allowed, "none") || slices.ContainsFunc(met, func(e string) bool { return !slices.Contains(allowed, e) }) {
					t.Errorf("it met %q, want of %q:\n%s", met, allowed, got[a.name])
				}
				if !control.broke(a.name) { // a hardened kernel, or one that was built without
					t.Logf("without a sandbox: %s", control[a.name])
					need(t, "control:"+strings.ReplaceAll(a.name, " ", "-"), false)
				}
			})
		}
	})
}

// TestEnoughAttacks keeps the table from shrinking, and its names apart.
func TestEnoughAttacks(t *testing.T) {
	const most = 60
	list := allAttacks()
	if len(list) < most {
		t.Errorf("only %d attacks", len(list))
	}
	seen := map[string]bool{}
	for _, a := range list {
		if seen[a.name] {
			t.Errorf("%q is there twice", a.name)
		}
		seen[a.name] = true
	}
}
