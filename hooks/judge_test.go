package hooks

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sound is a sandbox for which every check holds.
func sound() (*Subject, *Facts) {
	s := &Subject{
		Network: true, Forwards: []uint16{8000}, Env: []string{"HOME", "PATH"}, EnvAllow: []string{"LC_*"},
		Paths: []Path{
			{Kind: ReadOnlyGrant, Inside: "/in", Host: "/in"},
			{Kind: WritableGrant, Inside: "/out", Host: "/out"},
			{Kind: Mask, Inside: "/in/answers", Host: "/in/answers"},
			{Kind: Secret, Inside: "/secret", Host: "/secret"},
			{Kind: ProbePath, Inside: "/etc/shadow", Host: "/etc/shadow"},
			{Kind: HiddenProc, Inside: "/proc/keys", Host: "/proc/keys"},
			{Kind: ReadOnlyProc, Inside: "/proc/sys", Host: "/proc/sys"},
			{Kind: ReadOnlyOwn, Inside: "/", Dir: true},
			{Kind: Foreign, Inside: "/dev/null", Host: "/dev/null"},
			{Kind: Gone, Inside: "/in/torch", Host: "/in/torch"},
		},
		ID: [2]uint32{2020000000, 2020000000},
	}
	dir := func(ino uint64, readOnly bool) Node {
		return Node{Ino: ino, Mode: unix.S_IFDIR | 0o755, ReadOnly: readOnly}
	}
	gone, lost := Node{Err: unix.ENOENT}, unix.ENOENT
	reached := []Reach{{Target: "127.0.0.1:9", Inside: unix.ECONNREFUSED}}
	f := &Facts{
		TCP: reached, UDP: reached, Abstract: reached, Forwards: []Reach{{Target: "port 8000", Outside: lost}},
		Paths: []PathSeen{
			{Inside: dir(1, true), Outside: dir(1, false), Write: unix.EROFS, CanWrite: true},
			{Inside: dir(2, false), Outside: dir(2, false), CanWrite: true, Made: &Node{Ino: 22}},
			{Inside: Node{Ino: 90, ReadOnly: true}, Outside: Node{Ino: 3}, Open: unix.EACCES},
			{Inside: gone, Outside: Node{Ino: 4}},
			{Inside: gone, Outside: Node{Ino: 5}},
			{Inside: Node{Mode: unix.S_IFCHR, Rdev: unix.Mkdev(1, 3)}, Outside: Node{Ino: 6}},
			{Inside: dir(7, true), Outside: dir(8, false), Write: unix.EROFS},
			{Inside: dir(9, true), Write: unix.EROFS},
			{Changes: []Attempt{{"chmod", unix.EPERM}, {"unlink", unix.EROFS}}},
			{Inside: gone, Outside: Node{Ino: 10}},
		},
		ProcDev: 77, HostID: [2]uint32{2020000000, 2020000000}, Privileged: true,
		StatusAtEntry: map[string]string{"CapEff": "1ff", "NoNewPrivs": "0", "Seccomp": "0", "Seccomp_filters": "0"},
		Status: map[string]string{
			"CapInh": "000", "CapPrm": "000", "CapEff": "000", "CapBnd": "000", "CapAmb": "000", "NoNewPrivs": "1",
			"Seccomp": "2", "Seccomp_filters": "1",
		},
		Securebits: 0xef,
		Refused:    []RefusedCall{{Name: "unshare", Want: unix.EPERM, Filtered: unix.EPERM}},
		Namespaces: []Namespace{
			{Name: "mnt", Host: 1, Process1: 2, Inside: 3, PerExec: true}, {Name: "uts", Host: 4, Process1: 5, Inside: 5},
		},
		Processes: []int{1, 2}, Signalled: []Signalled{{PID: 4711, Inside: unix.ESRCH}},
		Descriptors: []int{0, 1, 2}, HostDescriptors: 9,
		Env: []string{"HOME", "PATH"}, Canary: "CANARY",
		Limits: []LimitRead{{Name: "RLIMIT_NOFILE", Want: 100, Got: 100, Host: 1000}},
		Groups: []GroupRead{{Controllers: "pids", Want: "/e000000", Got: "/x/e000000"}},
	}
	return s, f
}

// hideProc is what of it changes with processes.proc = false.
func hideProc(s *Subject, f *Facts) {
	s.NoProc = true
	f.Proc = ProcSeen{Type: unix.TMPFS_MAGIC, ReadOnly: true, Self: unix.ENOENT, Make: unix.EROFS, HostType: unix.PROC_SUPER_MAGIC}
	f.Paths[5].Inside, f.Paths[6].Inside = Node{Err: unix.ENOENT}, Node{Err: unix.ENOENT}
}

// usual is what a check shows of a sound sandbox.
func usual(s *Subject, name string) Outcome {
	if name == "proc_absent" && !s.NoProc {
		return NotTested
	}
	return Held
}

func TestSoundSandbox(t *testing.T) {
	for _, change := range []func(*Subject, *Facts){func(*Subject, *Facts) {}, hideProc} {
		s, f := sound()
		change(s, f)
		for _, r := range Judge(s, f) {
			if r.Result != usual(s, r.Name) {
				t.Errorf("%+v", r)
			}
		}
	}
}

// TestNoProc: each fact about the cover of /proc counts.
func TestNoProc(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Subject, *Facts)
		want   map[string]Outcome
	}{
		"it is a procfs":             {func(_ *Subject, f *Facts) { f.Proc.Type = unix.PROC_SUPER_MAGIC }, map[string]Outcome{"proc_absent": Broken}},
		"it has an entry":            {func(_ *Subject, f *Facts) { f.Proc.Entries = 1 }, map[string]Outcome{"proc_absent": Broken}},
		"it can be written":          {func(_ *Subject, f *Facts) { f.Proc.ReadOnly = false }, map[string]Outcome{"proc_absent": Broken}},
		"/proc/self exists":          {func(_ *Subject, f *Facts) { f.Proc.Self = nil }, map[string]Outcome{"proc_absent": Broken}},
		"a directory was made":       {func(_ *Subject, f *Facts) { f.Proc.Make = nil }, map[string]Outcome{"proc_absent": Broken}},
		"it cannot be listed":        {func(_ *Subject, f *Facts) { f.Proc.Err = unix.EACCES }, map[string]Outcome{"proc_absent": NotTested}},
		"the host has none":          {func(_ *Subject, f *Facts) { f.Proc.HostType = 0 }, map[string]Outcome{"proc_absent": NotTested}},
		"nothing is below the cover": {func(_ *Subject, f *Facts) { f.Processes = nil }, map[string]Outcome{"proc_absent": NotTested, "host_processes_hidden": NotTested}},
		"a masked file exists": {func(_ *Subject, f *Facts) {
			f.Paths[5].Inside = Node{Mode: unix.S_IFCHR, Rdev: unix.Mkdev(1, 3)}
		}, map[string]Outcome{"proc_hidden": Broken}},
		"a read-only part exists and can be written": {func(_ *Subject, f *Facts) {
			f.Paths[6].Inside = Node{Ino: 7, Mode: unix.S_IFDIR | 0o755}
		}, map[string]Outcome{"readonly_not_writable": Broken}},
	} {
		s, f := sound()
		hideProc(s, f)
		c.change(s, f)
		for _, r := range Judge(s, f) {
			want, ok := c.want[r.Name]
			if !ok {
				want = Held
			}
			if r.Result != want {
				t.Errorf("%s: %s is %s (%s), want %s", what, r.Name, r.Result, r.Detail, want)
			}
		}
	}
}

// TestJudge changes one fact at a time. Every other check has to stay as it was.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Subject, *Facts)
		want   map[string]Outcome
	}{
		{"a port is reached", func(_ *Subject, f *Facts) { f.TCP = []Reach{{}} }, map[string]Outcome{"net_tcp_outside_blocked": Broken}},
		{"nothing listens outside", func(_ *Subject, f *Facts) { f.TCP = []Reach{{Outside: unix.EADDRNOTAVAIL, Inside: unix.ECONNREFUSED}} }, map[string]Outcome{"net_tcp_outside_blocked": NotTested}},
		{"no answer that is known", func(_ *Subject, f *Facts) { f.TCP = []Reach{{Inside: unix.EMFILE}} }, map[string]Outcome{"net_tcp_outside_blocked": NotTested}},
		{"its own loopback is dead", func(_ *Subject, f *Facts) { f.OwnLoopback = unix.ENETUNREACH }, map[string]Outcome{"net_tcp_outside_blocked": NotTested}},
		{"a datagram arrives", func(_ *Subject, f *Facts) { f.UDP = []Reach{{}} }, map[string]Outcome{"net_udp_outside_blocked": Broken}},
		{"a datagram is lost", func(_ *Subject, f *Facts) { f.UDP = []Reach{{Inside: ErrSilence}} }, nil},
		{"an abstract socket is reached", func(_ *Subject, f *Facts) { f.Abstract = []Reach{{}} }, map[string]Outcome{"net_abstract_outside_blocked": Broken}},
		{"the host's network", func(s *Subject, f *Facts) { s.Network = false; f.TCP, f.UDP, f.Abstract = nil, nil, nil }, map[string]Outcome{
			"net_tcp_outside_blocked": NotTested, "net_udp_outside_blocked": NotTested, "net_abstract_outside_blocked": NotTested,
		}},
		{"a forwarded port is dead", func(_ *Subject, f *Facts) { f.Forwards[0].Inside = unix.ECONNREFUSED }, map[string]Outcome{"forwarded_ports_open": Broken}},
		{"no port is forwarded", func(s *Subject, f *Facts) { s.Forwards, f.Forwards = nil, nil }, map[string]Outcome{"forwarded_ports_open": NotTested}},
		{"a file could be written", func(_ *Subject, f *Facts) { f.Paths[0].Write = nil }, map[string]Outcome{"readonly_not_writable": Broken}},
		{"a pipe can be written through a read-only mount", func(_ *Subject, f *Facts) {
			f.Paths[0].Write, f.Paths[0].Inside.Mode = nil, unix.S_IFIFO|0o644
		}, nil},
		{"a secret is there", func(_ *Subject, f *Facts) { f.Paths[3].Inside = f.Paths[3].Outside }, map[string]Outcome{"secret_absent": Broken}},
		{"another file has its name", func(_ *Subject, f *Facts) { f.Paths[3].Inside = Node{Ino: 99} }, nil},
		{"a secret does not exist", func(_ *Subject, f *Facts) { f.Paths[3].Outside = Node{Err: unix.ENOENT} }, map[string]Outcome{"secret_absent": NotTested}},
		{"a secret cannot be looked for", func(_ *Subject, f *Facts) { f.Paths[3].Inside = Node{Err: unix.EIO} }, map[string]Outcome{"secret_absent": NotTested}},
		{"the password file is there", func(_ *Subject, f *Facts) { f.Paths[4].Inside = f.Paths[4].Outside }, map[string]Outcome{"probe_paths_absent": Broken}},
		{"a writable grant can be executed", func(s *Subject, _ *Facts) { s.Paths[1].NoExec = true }, map[string]Outcome{"grants_readable": Broken}},
		{"a mask is gone", func(_ *Subject, f *Facts) { f.Paths[2].Inside.Ino = 3 }, map[string]Outcome{"deny_unreadable": Broken}},
		{"a mask can be unmounted in another namespace", func(_ *Subject, f *Facts) { f.Paths[2].Nested = []Attempt{{"unmounted", nil}} }, map[string]Outcome{"deny_unreadable": Broken}},
		{"no mask can be unmounted in another namespace", func(_ *Subject, f *Facts) {
			f.Paths[2].Nested, f.Nested = []Attempt{{"unmounted", unix.EINVAL}}, []Attempt{{"unmount /proc", unix.EINVAL}}
		}, nil},
		{"/proc can be unmounted in another namespace", func(_ *Subject, f *Facts) { f.Nested = []Attempt{{"unmount /proc", nil}} }, map[string]Outcome{"deny_unreadable": Broken}},
		{"a file of /proc can be uncovered in another namespace", func(_ *Subject, f *Facts) { f.Paths[5].Nested = []Attempt{{"unmounted", nil}} }, map[string]Outcome{"proc_hidden": Broken}},
		{"a grant can be made writable in another namespace", func(_ *Subject, f *Facts) { f.Paths[0].Nested = []Attempt{{"made writable", nil}} }, map[string]Outcome{"readonly_not_writable": Broken}},
		{"a mask can be opened", func(_ *Subject, f *Facts) { f.Paths[2].Open = nil }, map[string]Outcome{"deny_unreadable": Broken}},
		{"a path is denied as empty", func(s *Subject, f *Facts) { s.Paths[2].Empty, f.Paths[2].Open = true, nil }, nil},
		{"a path is denied as empty, and its mask cannot be opened", func(s *Subject, _ *Facts) { s.Paths[2].Empty = true }, map[string]Outcome{"deny_unreadable": NotTested}},
		{"a path is denied as empty, and its mask has something in it", func(s *Subject, f *Facts) {
			s.Paths[2].Empty, f.Paths[2].Open, f.Paths[2].Inside.Mode, f.Paths[2].Inside.Size = true, nil, unix.S_IFREG|0o444, 1
		}, map[string]Outcome{"deny_unreadable": Broken}},
		{"a directory is denied as empty, and its mask has entries", func(s *Subject, f *Facts) {
			s.Paths[2].Empty, f.Paths[2].Open, f.Paths[2].Entries = true, nil, 1
		}, map[string]Outcome{"deny_unreadable": Broken}},
		{"a mask can be written", func(_ *Subject, f *Facts) { f.Paths[2].Inside.ReadOnly = false }, map[string]Outcome{"readonly_not_writable": Broken}},
		{"a denied path does not exist", func(_ *Subject, f *Facts) {
			f.Paths[2].Inside, f.Paths[2].Outside = Node{Err: unix.ENOENT}, Node{Err: unix.ENOENT}
		}, map[string]Outcome{"deny_unreadable": NotTested}},
		{"a hidden module is there", func(_ *Subject, f *Facts) { f.Paths[9].Inside = Node{Ino: 77} }, map[string]Outcome{"modules_absent": Broken}},
		{"a hidden module is there, and not outside", func(_ *Subject, f *Facts) {
			f.Paths[9] = PathSeen{Inside: Node{Ino: 77}, Outside: Node{Err: unix.ENOENT}}
		}, map[string]Outcome{"modules_absent": Broken}},
		{"a hidden module does not exist outside", func(_ *Subject, f *Facts) { f.Paths[9].Outside = Node{Err: unix.ENOENT} }, map[string]Outcome{"modules_absent": NotTested}},
		{"a hidden module cannot be looked for", func(_ *Subject, f *Facts) { f.Paths[9].Inside = Node{Err: unix.EACCES} }, map[string]Outcome{"modules_absent": NotTested}},
		{"an overlay has numbers of its own", func(s *Subject, f *Facts) { s.Paths[0].Overlay, f.Paths[0].Inside.Ino = true, 99 }, nil},
		{"an overlay over a file", func(s *Subject, f *Facts) {
			s.Paths[0].Overlay, f.Paths[0].Inside.Ino, f.Paths[0].Inside.Mode = true, 99, unix.S_IFREG|0o644
		}, map[string]Outcome{"grants_readable": Broken}},
		{"a file of /proc is not covered", func(_ *Subject, f *Facts) { f.Paths[5].Inside = Node{Mode: unix.S_IFREG} }, map[string]Outcome{"proc_hidden": Broken}},
		{"a directory of /proc is not covered", func(_ *Subject, f *Facts) { f.Paths[5].Inside = Node{Mode: unix.S_IFDIR, Dev: 77} }, map[string]Outcome{"proc_hidden": Broken}},
		{"a grant is missing", func(_ *Subject, f *Facts) { f.Paths[0].Inside = Node{Err: unix.ENOENT} }, map[string]Outcome{"grants_readable": Broken, "readonly_not_writable": NotTested}},
		{"a grant is something else", func(_ *Subject, f *Facts) { f.Paths[0].Inside.Ino = 99 }, map[string]Outcome{"grants_readable": Broken}},
		{"a grant was replaced meanwhile", func(_ *Subject, f *Facts) { f.Paths[0].Inside.Ino, f.Paths[0].Changed = 99, true }, map[string]Outcome{"grants_readable": NotTested}},
		{"a grant cannot be read", func(_ *Subject, f *Facts) { f.Paths[0].Open = unix.EACCES }, map[string]Outcome{"grants_readable": Broken}},
		{"a grant may not be read", func(_ *Subject, f *Facts) {
			f.Paths[0].Open, f.Paths[0].Outside.Mode, f.Paths[0].Outside.UID = unix.EACCES, unix.S_IFDIR|0o700, 5
		}, nil},
		{"more grants than are looked at", func(s *Subject, _ *Facts) { s.Omitted = 1 }, map[string]Outcome{"grants_readable": NotTested, "readonly_not_writable": NotTested}},
		{"a read-only grant can be written", func(_ *Subject, f *Facts) { f.Paths[0].Write = nil }, map[string]Outcome{"readonly_not_writable": Broken}},
		{"its mount is not read-only", func(_ *Subject, f *Facts) { f.Paths[0].Inside.ReadOnly, f.Paths[0].Write = false, unix.EACCES }, map[string]Outcome{"readonly_not_writable": Broken}},
		{"a writable grant is read-only", func(_ *Subject, f *Facts) { f.Paths[1].Write = unix.EROFS }, map[string]Outcome{"workspace_writable": Broken}},
		{"it may not be written outside", func(_ *Subject, f *Facts) { f.Paths[1].Write, f.Paths[1].CanWrite = unix.EACCES, false }, map[string]Outcome{"workspace_writable": NotTested}},
		{"its disk is full", func(_ *Subject, f *Facts) { f.Paths[1].Write = unix.ENOSPC }, map[string]Outcome{"workspace_writable": NotTested}},
		{"root may, its program may not", func(_ *Subject, f *Facts) { f.Paths[1].Write, f.Paths[1].Outside.UID = unix.EACCES, 5 }, map[string]Outcome{"workspace_writable": NotTested}},
		{"a directory of its own may not be written", func(_ *Subject, f *Facts) { f.Paths[1].Write = unix.EACCES }, map[string]Outcome{"workspace_writable": Broken}},
		{"who may, its program may not", func(_ *Subject, f *Facts) {
			f.Paths[1].Write, f.Paths[1].Outside.UID, f.Privileged = unix.EACCES, 5, false
		}, map[string]Outcome{"workspace_writable": Broken}},
		{"a capability", func(_ *Subject, f *Facts) { f.Status["CapBnd"] = "001" }, map[string]Outcome{"no_capability": Broken}},
		{"securebits", func(_ *Subject, f *Facts) { f.Securebits = 0 }, map[string]Outcome{"no_capability": Broken}},
		{"no status", func(_ *Subject, f *Facts) { f.Status = nil }, map[string]Outcome{"no_capability": NotTested, "no_new_privs": NotTested, "seccomp_filter": NotTested}},
		{"no control of capabilities", func(_ *Subject, f *Facts) { f.StatusAtEntry["CapEff"] = "000" }, map[string]Outcome{"no_capability": NotTested}},
		{"new privileges", func(_ *Subject, f *Facts) { f.Status["NoNewPrivs"] = "0" }, map[string]Outcome{"no_new_privs": Broken}},
		{"no filter", func(_ *Subject, f *Facts) { f.Status["Seccomp"] = "0" }, map[string]Outcome{"seccomp_filter": Broken}},
		{"the launcher's filter alone", func(_ *Subject, f *Facts) {
			f.StatusAtEntry["Seccomp"], f.StatusAtEntry["Seccomp_filters"] = "2", "1"
		}, map[string]Outcome{"seccomp_filter": Broken}},
		{"filters that are not counted", func(_ *Subject, f *Facts) {
			f.StatusAtEntry["Seccomp"] = "2"
			delete(f.Status, "Seccomp_filters")
		}, map[string]Outcome{"seccomp_filter": NotTested}},
		{"a call is not refused", func(_ *Subject, f *Facts) { f.Refused[0].Filtered = nil }, map[string]Outcome{"refused_calls": Broken}},
		{"a call is refused otherwise", func(_ *Subject, f *Facts) { f.Refused[0].Filtered = unix.EBADF }, map[string]Outcome{"refused_calls": Broken}},
		{"calls that the kernel refuses anyhow", func(_ *Subject, f *Facts) { f.Refused[0].Unfiltered = unix.EPERM }, map[string]Outcome{"refused_calls": NotTested}},
		{"a namespace of the host", func(_ *Subject, f *Facts) { f.Namespaces[1].Inside = 4 }, map[string]Outcome{"namespaces_own": Broken}},
		{"a namespace of process 1", func(_ *Subject, f *Facts) { f.Namespaces[0].Inside = 2 }, map[string]Outcome{"namespaces_own": Broken}},
		{"an unknown namespace", func(_ *Subject, f *Facts) { f.Namespaces[0].Host = 0 }, map[string]Outcome{"namespaces_own": NotTested}},
		{"another process", func(_ *Subject, f *Facts) { f.Processes = []int{1, 2, 9} }, map[string]Outcome{"host_processes_hidden": Broken}},
		{"a process to signal", func(_ *Subject, f *Facts) { f.Signalled[0].Inside = unix.EPERM }, map[string]Outcome{"host_processes_hidden": Broken}},
		{"no such process outside", func(_ *Subject, f *Facts) { f.Signalled[0].Outside = unix.ESRCH }, map[string]Outcome{"host_processes_hidden": NotTested}},
		{"an empty /proc", func(_ *Subject, f *Facts) { f.Processes = nil }, map[string]Outcome{"host_processes_hidden": NotTested}},
		{"a stray descriptor", func(_ *Subject, f *Facts) { f.Descriptors = []int{0, 1, 2, 7} }, map[string]Outcome{"descriptors": Broken}},
		{"descriptors cannot be listed", func(_ *Subject, f *Facts) { f.DescriptorsErr = errors.New("x") }, map[string]Outcome{"descriptors": NotTested}},
		{"a stray variable", func(_ *Subject, f *Facts) { f.Env = append(f.Env, "LD_PRELOAD") }, map[string]Outcome{"environment": Broken}},
		{"the canary", func(_ *Subject, f *Facts) { f.Env = append(f.Env, "CANARY") }, map[string]Outcome{"environment": Broken}},
		{"a missing variable", func(_ *Subject, f *Facts) { f.Env = f.Env[:1] }, map[string]Outcome{"environment": Broken}},
		{"every variable is let in but one", func(s *Subject, f *Facts) { s.EnvAllow, s.EnvDeny = []string{"*"}, []string{"CAN*"} }, nil},
		{"every variable is let in", func(s *Subject, f *Facts) { s.EnvAllow = []string{"*"}; f.Env = append(f.Env, "CANARY") }, map[string]Outcome{"environment": NotTested}},
		{"a limit is higher", func(_ *Subject, f *Facts) { f.Limits[0].Got = 101 }, map[string]Outcome{"limits_read_back": Broken}},
		{"no limit of core files", func(_ *Subject, f *Facts) {
			f.Limits = append(f.Limits, LimitRead{Name: "RLIMIT_CORE", Want: 1, Got: 0, Exact: true})
		}, map[string]Outcome{"limits_read_back": Broken}},
		{"another control group", func(_ *Subject, f *Facts) { f.Groups[0].Got = "/" }, map[string]Outcome{"limits_read_back": Broken}},
		{"a group that has counted", func(_ *Subject, f *Facts) { f.Groups[0] = GroupRead{Counted: true} }, nil},
		{"a group that has not", func(_ *Subject, f *Facts) { f.Groups[0] = GroupRead{} }, map[string]Outcome{"limits_read_back": NotTested}},
		{"no limit", func(_ *Subject, f *Facts) { f.Limits, f.Groups = nil, nil }, map[string]Outcome{"limits_read_back": NotTested}},
	} {
		s, f := sound()
		c.change(s, f)
		for _, r := range Judge(s, f) {
			want := c.want[r.Name]
			if want == "" {
				want = usual(s, r.Name)
			}
			if r.Result != want {
				t.Errorf("%s: %s is %s (%s), want %s", c.what, r.Name, r.Result, r.Detail, want)
			}
			if (r.Result == Held) != (r.Detail == "") {
				t.Errorf("%s: %s is %s with detail %q", c.what, r.Name, r.Result, r.Detail)
			}
		}
	}
}

// TestNothingSeen: a check without facts is not held. The zero value of every fact means that nobody looked.
func TestNothingSeen(t *testing.T) {
	s, _ := sound()
	for _, subject := range []*Subject{s, {}} {
		for _, r := range Judge(subject, &Facts{Paths: make([]PathSeen, len(subject.Paths))}) {
			if r.Result == Held {
				t.Errorf("%s is held (control %q), and nothing was seen", r.Name, r.Control)
			}
		}
	}
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if seen[c.Name] || strings.Trim(c.Name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("%q is no name for a check, or there are two of it", c.Name)
		}
		seen[c.Name] = true
		if c.Layer == "" || c.Claim == "" || c.Positive == "" || c.judge == nil {
			t.Errorf("%s lacks something", c.Name)
		}
	}
}

func TestManyBroken(t *testing.T) {
	var v verdict
	for range 5 {
		v.fail("x")
	}
	if r := v.result(Check{}); r.Detail != "x; x; x and 2 more" {
		t.Error(r.Detail)
	}
	if broken := BrokenOf([]Result{{Result: Held}, {Result: Broken, Name: "b"}, {Result: NotTested}}); len(broken) != 1 || broken[0].Name != "b" {
		t.Error(broken)
	}
}
