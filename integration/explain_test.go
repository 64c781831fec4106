package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/explain"
)

// lookAtAll is what the kernel says: of each path, in a list on standard input, the error of stat or 0, device, inode,
// type, and whether it can be read, written and executed.
const lookAtAll = `
import json, os, stat, sys
def can(p, flags):
    try:
        os.close(os.open(p, flags | os.O_NONBLOCK | os.O_CLOEXEC))
        return True
    except OSError:
        return False
def look(p):
    try:
        s = os.stat(p)
    except OSError as e:
        return [e.errno, 0, 0, "", False, False, False]
    ok = lambda bits: os.access(p, bits, effective_ids=True)
    if stat.S_ISDIR(s.st_mode):
        return [0, s.st_dev, s.st_ino, "dir", can(p, os.O_RDONLY) and ok(os.X_OK), ok(os.W_OK | os.X_OK), False]
    if stat.S_ISREG(s.st_mode):
        return [0, s.st_dev, s.st_ino, "file", can(p, os.O_RDONLY), can(p, os.O_WRONLY), ok(os.X_OK)]
    return [0, s.st_dev, s.st_ino, "other", ok(os.R_OK), ok(os.W_OK), False]
print(json.dumps([look(p) for p in json.load(sys.stdin)]))`

// fact is what the kernel says of one path.
type fact struct {
	Errno    syscall.Errno
	Dev, Ino uint64
	Type     string
	R, W, X  bool
}

// UnmarshalJSON reads the list that lookAtAll writes.
func (f *fact) UnmarshalJSON(data []byte) error {
	list := []any{&f.Errno, &f.Dev, &f.Ino, &f.Type, &f.R, &f.W, &f.X}
	return json.Unmarshal(data, &list)
}

// explained is what explain --json says of one path.
type explained struct {
	Asked   string              `json:"asked"`
	OK      bool                `json:"ok"`
	Details explain.Explanation `json:"details"`
}

// TestExplainAgreesWithTheKernel: whatever the policy and the host's files, what explain says of a path is what a program
// inside finds there. With SANDBOXRUN_SOAK it goes on for so long, from another beginning each time.
func TestExplainAgreesWithTheKernel(t *testing.T) {
	const usual = 6 * time.Second
	long := soak(t)
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		until, seed := time.Now().Add(usual), int64(1)
		if long > 0 {
			until, seed = time.Now().Add(long/2), time.Now().UnixNano()
		}
		var paths, policies, refused int
		verdicts := map[string]int{}
		for ; time.Now().Before(until) && !b.t.Failed(); seed++ {
			n := b.explainOne(seed, verdicts)
			policies++
			if paths += n; n == 0 {
				refused++
			}
		}
		b.t.Logf("%d policies, %d of them refused, %d paths: %v", policies, refused, paths, verdicts)
		if policies > 20 && (paths < 20*policies/2 || verdicts["denied"] == 0 || verdicts["closed"] == 0) {
			b.t.Errorf("of %d policies with %d paths too few say anything: %v", policies, paths, verdicts)
		}
	})
}

// explainOne tries one policy on one host, and says how many paths it looked at: none where the policy is refused.
func (b *box) explainOne(seed int64, verdicts map[string]int) int {
	t := b.t
	t.Helper()
	w := newWorld0(b, seed)
	defer removeAll(w.dir)
	policy := b.policy(w.policy())
	asked := w.asked()
	args := []string{"explain", "--json", "--policy", policy}
	for _, p := range asked {
		args = append(args, "--path", p)
	}
	a := b.call(call{dir: "/"}, args...)
	list, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	run := b.call(call{dir: "/", stdin: strings.NewReader(string(list))}, "run", "--policy", policy, "--", "/usr/bin/python3", "-ISc", lookAtAll)
	if a.status == 125 && run.status == 125 { // a policy that cannot be
		same(t, "error", firstLine(run.stderr), firstLine(a.stderr))
		return 0
	}
	if run.status == 125 && strings.Contains(run.stderr, "permission denied") {
		return 0 // a deny or a mount target lies where those that make the sandbox, who are not almighty, cannot look
	}
	var told []explained
	var facts []fact
	if err := errors.Join(json.Unmarshal([]byte(a.stdout), &told), json.Unmarshal([]byte(run.stdout), &facts)); err != nil ||
		len(told) != len(asked) || len(facts) != len(asked) {
		t.Fatalf("seed %d: %v: %d and %d answers: %v\n%v\n%s", seed, err, len(told), len(facts), a, run, b.read(policy))
	}
	for i, e := range told {
		verdicts[string(e.Details.Verdict)]++
		if wrong := disagree(&e, facts[i]); wrong != "" {
			t.Errorf("seed %d: %q: %s\n%+v\nkernel %+v\n%s\n%s", seed, asked[i], wrong, e.Details, facts[i], b.read(policy), w)
			break
		}
	}
	return len(asked)
}

func firstLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if !strings.Contains(line, "warning:") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// disagree says in what explain and the kernel differ.
func disagree(e *explained, f fact) string {
	d := &e.Details
	if e.OK != d.Inside() {
		return "it contradicts itself"
	}
	want := map[explain.Verdict][]syscall.Errno{
		explain.VerdictInside: {0}, explain.VerdictMissing: {syscall.ENOENT, syscall.ENOTDIR},
		explain.VerdictDenied: {0, syscall.EACCES}, explain.VerdictHidden: {0, syscall.EACCES},
		explain.VerdictClosed: {syscall.EACCES}, explain.VerdictLoop: {syscall.ELOOP},
	}[d.Verdict]
	switch {
	case !slices.Contains(want, f.Errno):
		return fmt.Sprintf("it is %s, and the kernel says %v", d.Verdict, f.Errno)
	case len(d.Why) == 0:
		return "no reason is told"
	case !d.Inside():
		if f.R || f.W || f.X {
			return "it can be opened"
		}
		return ""
	case d.Kind == rootfs.PlaceOwn && d.Type == "device":
		return "" // the host's devices have modes of their own
	case d.Type != f.Type && f.Type != "other", d.Readable != f.R, d.Writable != f.W, d.Executable != f.X:
		return "it is not as the kernel says"
	case d.Kind == rootfs.PlaceHost:
		return sameFile(d.Host, f)
	}
	return ""
}

// sameFile compares a host file with what stands inside. Where this process may not look, nothing is compared.
func sameFile(host string, f fact) string {
	info, err := os.Stat(host)
	if errors.Is(err, os.ErrPermission) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	if st := info.Sys().(*syscall.Stat_t); st.Ino != f.Ino || st.Dev != f.Dev {
		return fmt.Sprintf("the host's %s is another file", host)
	}
	return ""
}

// world0 is a random host directory, made of few names so that rules meet often. rootfs has the same without a kernel.
type world0 struct {
	*rand.Rand
	dir  string
	made []string
}

func newWorld0(b *box, seed int64) *world0 {
	b.t.Helper()
	h := &world0{Rand: rand.New(rand.NewSource(seed)), dir: b.path(fmt.Sprintf("x%d", seed))}
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for range 6 + h.Intn(30) {
		h.add()
	}
	for range h.Intn(8) {
		h.change()
	}
	return h
}

// String lists what was made.
func (h *world0) String() string {
	var b strings.Builder
	for _, p := range h.made {
		info, err := os.Lstat(p)
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		text, _ := os.Readlink(p)
		fmt.Fprintf(&b, "%v %d:%d %d %q %s\n", info.Mode(), st.Uid, st.Gid, st.Ino, p, text)
	}
	return b.String()
}

func (h *world0) name() string {
	return []string{"a", "b", "ab", "u", "a", "b", `q "<&>`}[h.Intn(7)]
}

func (h *world0) path() string {
	p := h.dir
	for range 1 + h.Intn(4) {
		p += "/" + h.name()
	}
	return p
}

// pick is mostly a path of something that was made.
func (h *world0) pick() string {
	if len(h.made) == 0 || h.Intn(5) == 0 {
		return h.path()
	}
	return h.made[h.Intn(len(h.made))]
}

// add makes something, if it can be made.
func (h *world0) add() {
	p := h.path()
	if os.MkdirAll(filepath.Dir(p), 0o755) != nil {
		return
	}
	for up := filepath.Dir(p); up != h.dir && strings.HasPrefix(up, h.dir); up = filepath.Dir(up) {
		if !slices.Contains(h.made, up) {
			h.made = append(h.made, up)
		}
	}
	var err error
	switch h.Intn(8) {
	case 0, 1, 2:
		var f *os.File
		if f, err = os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
			f.Close()
		}
	case 3:
		err = os.Mkdir(p, 0o755)
	case 4:
		err = os.Symlink(h.path(), p)
	case 5:
		err = os.Symlink([]string{"..", "a", "../b", ".", "b/a", "../../u", "/tmp", "/usr/share", "/proc/../usr/share", "/dev/null", "/nothing/../usr/share", "a/"}[h.Intn(12)], p)
	case 6:
		err = os.Link(h.pick(), p)
	case 7:
		err = syscall.Mkfifo(p, 0o644)
	}
	if err == nil {
		h.made = append(h.made, p)
	}
}

// change gives something a mode, or, as root, an owner, with which not everybody can use it.
func (h *world0) change() {
	p := h.pick()
	info, err := os.Lstat(p)
	if err != nil || info.Mode()&os.ModeSymlink != 0 {
		return
	}
	modes := []os.FileMode{0o600, 0o400, 0o000, 0o755, 0o711, 0o444, 0o640, 0o604, 0o077, 0o750, 0o555, 0o222}
	_ = os.Chmod(p, modes[h.Intn(len(modes))])
	if w.uid == 0 && h.Intn(2) == 0 {
		_ = os.Lchown(p, []int{0, 12345, 4321}[h.Intn(3)], []int{0, 12345, 4321}[h.Intn(3)])
	}
}

// policy is a random policy about the directory.
func (h *world0) policy() object {
	files := object{"base": []any{"system", "system", "host", "none", object{"rootfs": h.dir}}[h.Intn(5)], "missing": "skip"}
	lists := map[string][]any{}
	var binds []object
	if files["base"] == "none" {
		lists["read"] = []any{"/usr", "/bin", "/lib", "/lib64"}
	} else if _, ok := files["base"].(object); ok {
		for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64"} {
			binds = append(binds, object{"source": dir, "target": dir})
		}
	}
	for range 1 + h.Intn(8) {
		switch h.Intn(7) {
		case 0:
			lists["read"] = append(lists["read"], h.pick())
		case 1:
			lists["write"] = append(lists["write"], h.pick())
		case 2, 3:
			lists["deny"] = append(lists["deny"], h.pick())
		case 4:
			lists["tmpfs"] = append(lists["tmpfs"], object{"path": h.pick(), "size": "1M"})
		case 5:
			target := h.path()
			if h.Intn(2) == 0 {
				target = "/x/" + h.name()
			}
			binds = append(binds, object{"source": h.pick(), "target": target, "writable": h.Intn(2) == 0})
		case 6:
			key := []string{"read", "write"}[h.Intn(2)]
			lists[key] = append(lists[key], h.dir)
		}
	}
	for key, list := range lists {
		files[key] = list
	}
	keys := object{"files": files, "workdir": "/"}
	if binds != nil {
		keys["bind"] = binds
	}
	if w.uid == 0 && h.Intn(3) == 0 {
		keys["user"] = 12345
	} else if h.Intn(4) == 0 {
		keys["user"] = "root"
	}
	if h.Intn(4) == 0 {
		keys["processes"] = object{"proc": false}
	}
	if h.Intn(4) == 0 {
		keys["workspace"] = []object{{"source": "tmpfs"}, {"source": h.pick()}, {"source": h.pick(), "path": "/x/a"}}[h.Intn(3)]
	}
	return keys
}

// asked are the paths to compare: all that there are, by several spellings, and some that are not.
func (h *world0) asked() []string {
	list := []string{
		"/", "/etc", "/etc/passwd", "/etc/services", "/etc/shadow", "/etc/no", "/usr/bin/python3", "/bin", "/bin/sh", "/home", "/root",
		"/tmp", "/var/tmp", "/run", "/x", "/x/a", "/x/b/a", "/dev/null", "/dev/shm", "/dev/no", "/dev/fd/../../usr", "/proc/sys", "/proc/kcore", "/proc/cpuinfo", "/proc/no", "/proc", "/proc/../usr", "/proc/self/../../usr",
		"/proc/4000000", h.dir, filepath.Dir(h.dir), h.dir + "/..",
	}
	for _, p := range h.made {
		list = append(list, p, p+[]string{"/", "/.", "/..", "/../a", "/a", "//b", "/b/..", "/../b/a"}[h.Intn(8)])
		below := strings.TrimPrefix(p, h.dir)
		list = append(list, "/x"+below, below)
	}
	for range 10 {
		list = append(list, h.path())
	}
	return list
}

// TestExplainPrograms: a program of which explain says that it starts does start, and one of which it says that something
// is missing does once all is granted that the hints name.
func TestExplainPrograms(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		for _, line := range [][]string{{"/usr/bin/ls", "/"}, {"/usr/bin/git", "--version"}, {"/usr/bin/python3", "-c", "1"}} {
			if _, err := os.Stat(line[0]); err != nil {
				continue
			}
			granted := []string{}
			modules := map[string][]string{} // no need of the file's
			modules["/usr/bin/python3"], _ = filepath.Glob("/usr/lib/python3*")
			for round := 0; ; round++ {
				files := object{"base": "none"}
				files["read"] = append(slices.Clone(granted), modules[line[0]]...)
				p := b.files("/", files)
				a := b.run("explain", "--json", "-p", p, "--exe", line[0])
				var said []struct {
					OK      bool
					Details explain.Program
				}
				if err := json.Unmarshal([]byte(a.stdout), &said); err != nil || len(said) != 1 {
					t.Fatalf("%v: %v", err, a)
				}
				run := b.run(append([]string{"run", "-p", p, "--"}, line...)...)
				if said[0].OK != (run.status == 0) || said[0].OK != (a.status == 0) {
					t.Errorf("%v\nbut %v", a, run)
				}
				if said[0].OK {
					t.Logf("%s takes %d rounds and %d files", line[0], round, len(granted))
					if round == 0 {
						t.Errorf("%s starts from nothing", line[0])
					}
					break
				}
				list, ok := strings.CutPrefix(said[0].Details.Hint, "files.read = ")
				var more []string
				if err := json.Unmarshal([]byte(list), &more); !ok || err != nil || round > 5 {
					t.Fatalf("after %d rounds there is no hint: %v", round, a)
				}
				granted = append(granted, more...)
			}
		}
	})
}
