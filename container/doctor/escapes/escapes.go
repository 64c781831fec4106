// Package escapes has attacks on a sandbox: a table of pieces of Python, the program that runs them, and the things of the host that they
// are aimed at. Each attack is run without a sandbox too, where it must succeed: an attack that cannot succeed shows nothing.
//
// The command doctor --escapes and the test suite use the same table. The package imports none of ours.
package escapes

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// An Attack is a piece of Python that calls broke when it has got what it wanted.
type Attack struct {
	Name    string
	Program string
	// Args are arguments in which a word such as $VICTIM stands for what the stage has set up; Inside are those in a
	// sandbox where they are others.
	Args, Inside []string
	// Fails has the errors that it may meet in a sandbox; it must meet one of them and no other, unless "none" is among them
	// or there are none: then what it looks for may simply not be there.
	Fails string
	// Leans names, with commas between them, the layers without which it succeeds. Without any other, alone, it does not:
	// the layers that are left hold it.
	Leans      string
	LeansRoot  string // more such, where the launcher is root
	LeansUser  string // and where it is not: then the program is the same user
	Privileged bool   // outside it needs every capability, so the control has namespaces of its own in which it has them
	RootOnly   bool   // outside it takes real privilege: only root has a control
	UserOnly   bool   // outside root has already got what it wants
	// Granted: processes.userns lets a program do it. Own: from namespaces of the program's own it succeeds, on these alone.
	Granted, Own bool
}

// All are all attacks.
func All() []Attack {
	return slices.Concat(fileAttacks(), processAttacks(), supervisorAttacks(), kernelAttacks(), networkAttacks(), hostAttacks(), identityAttacks())
}

// Of are those that say something where the caller is this user.
func Of(uid int) []Attack {
	return slices.DeleteFunc(All(), func(a Attack) bool { return a.RootOnly && uid != 0 || a.UserOnly && uid == 0 })
}

//go:embed escape.py
var program string

// Program is the Python program that runs attacks. What Input says comes on its standard input.
func Program() string { return program }

// calls are the numbers of the system calls that attacks make by themselves.
func calls() map[string]int {
	return map[string]int{
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
}

// Outcomes are what attacks have printed, by their names.
type Outcomes map[string]string

// Broke reports whether an attack has got what it wanted.
func (o Outcomes) Broke(name string) bool { return strings.Contains(o[name], "BROKE") }

// Met lists the errors that it met.
func (o Outcomes) Met(name string) []string {
	_, after, _ := strings.Cut(o[name], "MET")
	return strings.Fields(after)
}

// Ran reports whether it ran at all.
func (o Outcomes) Ran(name string) bool {
	text := o[name]
	return (strings.Contains(text, "MET") || strings.Contains(text, "BROKE")) && !strings.Contains(text, "Traceback")
}

// input is what the program is to do. alone: it starts no process, and so ends after the first that succeeds.
func (s *Stage) input(list []Attack, inside, alone bool) ([]byte, error) {
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
		Alone   bool           `json:"alone"`
		Nested  bool           `json:"nested"`
	}{Calls: calls(), Seconds: seconds, Alone: alone, Nested: s.Nested}
	for _, a := range list {
		args := a.Args
		if inside && a.Inside != nil {
			args = a.Inside
		}
		o := one{Name: a.Name, Program: a.Program, Privileged: a.Privileged && !inside}
		for _, arg := range args {
			o.Args = append(o.Args, s.Words.Replace(arg))
		}
		job.Attacks = append(job.Attacks, o)
	}
	return json.Marshal(job)
}

// Play runs attacks by a command that is the program, outside or in a sandbox. The command gets a descriptor that the caller has left
// open.
func (s *Stage) Play(cmd *exec.Cmd, list []Attack, inside, alone bool) (Outcomes, error) {
	input, err := s.input(list, inside, alone)
	if err != nil {
		return nil, err
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	cmd.ExtraFiles = append(cmd.ExtraFiles, s.Open)
	err = cmd.Run()
	var got Outcomes
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("run attacks: %w", err)
	}
	if alone {
		return split(list, out.String()+errs.String()), nil
	}
	if wrong := json.Unmarshal(out.Bytes(), &got); err != nil || wrong != nil {
		return nil, fmt.Errorf("run attacks: %w\n%s\n%s", errors.Join(err, wrong), cut(out.String()), cut(errs.String()))
	}
	return got, nil
}

// split separates the attacks of one process. One that has ended the process is the last; the rest has not been played.
func split(list []Attack, out string) Outcomes {
	const end = "\n\x1e" // of escape.py
	parts := strings.Split(out, end)
	if last := len(parts) - 1; last > 0 && parts[last] == "" {
		parts = parts[:last]
	} else {
		parts[last] += "\nENDED"
	}
	got := Outcomes{}
	for i, a := range list[:min(len(parts), len(list))] {
		got[a.Name] = parts[i]
	}
	return got
}

func cut(s string) string {
	const most = 2000
	return s[max(len(s)-most, 0):]
}
