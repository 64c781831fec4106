package record

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("RECORD_TEST_FULL_DISK"); dir != "" {
		if err := onFullDisk(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestCreate(t *testing.T) {
	path := t.TempDir()
	fd, err := syscall.Open(path, 0x200000|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0) // O_PATH
	if err != nil {
		t.Fatal(err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	w := create(t, dir)
	info, err := os.Lstat(filepath.Join(path, FileName))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := Create(dir, FileName); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	for name, make := range map[string]func(string) error{
		"link": func(p string) error { return os.Symlink(filepath.Join(path, "nowhere"), p) },
		"fifo": func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"dir":  func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		if err := make(filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := Create(dir, name); err == nil {
			t.Errorf("a record was created over a %s", name)
		}
		if _, err := Open(dir, name, "x"); err == nil {
			t.Errorf("a %s was opened as a record", name)
		}
	}
	if _, err := os.Lstat(filepath.Join(path, "nowhere")); err == nil {
		t.Error("a link was followed")
	}
	if w.Session() == "" || w.Head() != (Head{}) {
		t.Errorf("%q, %+v", w.Session(), w.Head())
	}
}

func TestAppendHoldsTheOrder(t *testing.T) {
	w := create(t, openDir(t, t.TempDir()))
	for _, e := range []Event{run("e000001", "exited", 0), &Check{Result: Held}, &End{}} {
		if err := w.Append(e); err == nil {
			t.Errorf("a record begins with %T", e)
		}
	}
	if err := w.Reserve(); !errors.Is(err, ErrDamaged) {
		t.Errorf("room in a record without a session: %v", err)
	}
	add(t, w, session("s1"), &Check{Result: Held})
	if err := w.Append(session("s1")); err == nil {
		t.Error("two sessions")
	}
	if err := w.Append(&End{}, &Check{Result: Held}); err == nil {
		t.Error("a check after the end")
	}
	if err := w.Append(&Network{Host: strings.Repeat("x", maxLine)}); err == nil {
		t.Error("a line that no reader takes")
	}
	add(t, w, &End{})
	for _, err := range []error{w.Append(&Check{}), w.Reserve()} {
		if !errors.Is(err, ErrEnded) {
			t.Errorf("after the end: %v", err)
		}
	}
	if w.Head().Seq != 3 {
		t.Errorf("%+v", w.Head())
	}
}

// Many append at once, each with a handle of its own, as processes do.
func TestAppendFromMany(t *testing.T) {
	const writers, each = 8, 40
	path := t.TempDir()
	dir := openDir(t, path)
	w := create(t, dir)
	add(t, w, session("s1"))
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			w, err := Open(dir, FileName, w.Session())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = w.Close() }()
			for i := range each {
				if err := w.Reserve(); err != nil {
					t.Error(err)
				}
				number := n*each + i + 1
				if err := w.Append(&Network{Verdict: "allowed"}, run(fmt.Sprintf("e%06d", number), "exited", 0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	add(t, w, &End{Execs: writers * each})
	r := verify(t, content(t, path), Options{Head: w.Head().Hash})
	if !r.Well || r.Events != 2*writers*each+2 || len(r.Runs) != writers*each {
		t.Errorf("%d events, %d runs, %+v", r.Events, len(r.Runs), r.Problems)
	}
}

// What a crash leaves is neither lost nor taken for anything else.
func TestAppendAfterACrash(t *testing.T) {
	check := &Check{Name: "c", Result: Held}
	for name, c := range map[string]struct {
		tail string
		want string
		torn int64
	}{
		"half a line":          {`{"seq":2,"time":"2026`, "record_torn:2", 22},
		"half a line and more": {"{\"seq\":2,\n{\"se", "record_torn:2", 15},
		"a newline":            {"\n", "record_torn:2", 1},
		"zeros":                {strings.Repeat("\x00", 100_000), "record_torn:2", 100_001},
	} {
		path := t.TempDir()
		dir := openDir(t, path)
		w := create(t, dir)
		add(t, w, session("s1"))
		appendTo(t, path, c.tail)
		if got := codes(verify(t, content(t, path), Options{})); name != "a newline" && got != "record_torn:2 record_unfinished" {
			t.Errorf("%s, before: %q", name, got)
		}
		again, err := Open(dir, FileName, w.Session())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = again.Close() })
		add(t, again, check)
		add(t, w, &End{})
		r := verify(t, content(t, path), Options{})
		if codes(r) != c.want || len(r.Torn) != 1 || r.Torn[0].Bytes != c.torn || len(r.Held) != 1 || !r.Finished {
			t.Errorf("%s: %+v", name, r)
		}
		// The next event has the digest of the torn bytes, too.
		changed := bytes.Replace(content(t, path), []byte(c.tail), []byte(strings.Repeat("x", len(c.tail))), 1)
		if got := codes(verify(t, changed, Options{})); got == c.want {
			t.Errorf("%s: it can be changed", name)
		}
		removed := bytes.Replace(content(t, path), []byte(c.tail), nil, 1)
		if got := codes(verify(t, removed, Options{})); !strings.HasPrefix(got, "record_removed") && !strings.HasPrefix(got, "record_bad_json") {
			t.Errorf("%s: it can be removed: %q", name, got)
		}
	}

	// An event that lacks nothing but its newline is one.
	path := t.TempDir()
	w := create(t, openDir(t, path))
	add(t, w, session("s1"), check)
	if err := os.Truncate(filepath.Join(path, FileName), int64(len(content(t, path))-1)); err != nil {
		t.Fatal(err)
	}
	add(t, w, &End{})
	if r := verify(t, content(t, path), Options{}); !r.Well || r.Events != 3 {
		t.Errorf("%+v", r)
	}
}

func appendTo(t *testing.T, dir, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, FileName), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// A Writer appends nothing to a file that is not its record.
func TestAppendRefusesAnotherRecord(t *testing.T) {
	path := t.TempDir()
	w := create(t, openDir(t, path))
	add(t, w, session("s1"), &Check{Result: Held}, &Check{Result: Held})
	good := content(t, path)
	other, _ := made(t, session("s2"))
	l := lines(good)
	for name, data := range map[string]string{
		"another's": string(other), "nonsense": strings.Repeat("x\n", 100), "nothing": "", "a cut one": l[0] + l[1],
		"a changed one": l[0] + l[1] + forge(l[2], "held", "HELD"),
	} {
		if err := os.WriteFile(filepath.Join(path, FileName), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{w.Reserve(), w.Append(&End{})} {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := content(t, path); string(got) != data {
			t.Errorf("%s has changed", name)
		}
	}
	if err := os.WriteFile(filepath.Join(path, FileName), good, 0o600); err != nil {
		t.Fatal(err)
	}
	add(t, w, &End{})
}

func TestAppendRedacts(t *testing.T) {
	path := t.TempDir()
	w := create(t, openDir(t, path))
	w.Redactor = NewRedactor(map[string]string{"A_API_KEY": keyA})
	s := session("s1")
	s.Name, s.PolicyFile, s.Mounts[0].Source, s.Mounts[0].Target, s.Weaker[0].Reason = keyA, keyA, keyA, keyA, keyA
	signal := "SIGTERM"
	add(t, w, s, &Check{What: keyA, Why: keyA, Control: keyA, Result: Held},
		&Run{Exec: "e000001", Cwd: "/" + keyA + "/x", Error: keyA, Signal: &signal, ArgvSHA256: ArgvDigest([]string{keyA})},
		&Network{Host: keyA, Rule: keyA, Reason: keyA},
		&End{Execs: 1, Released: []string{keyA}, Leftovers: []string{keyA}, Orphans: []Orphan{{1, keyA}}})
	data := content(t, path)
	if bytes.Contains(data, []byte(keyA)) || !bytes.Contains(data, []byte(`"cwd":"/<A_API_KEY>/x"`)) {
		t.Errorf("%s", data)
	}
	if n := bytes.Count(data, []byte("<A_API_KEY>")); n != 16 {
		t.Errorf("%d values are redacted:\n%s", n, data)
	}
	if s.Name != keyA || s.Mounts[0].Source != keyA || s.Format != 0 {
		t.Error("the caller's event has changed")
	}
}

// A full disk is an error before a program starts, and the end of a program that has started can always be written.
func TestFullDisk(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"RECORD_TEST_FULL_DISK=" + t.TempDir()}
	ids := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: ids(os.Getuid()), GidMappings: ids(os.Getgid()),
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("no user namespace: %v", err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// onFullDisk runs in namespaces of its own, on a file system of its own.
func onFullDisk(path string) error {
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=2m"); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	w, err := Create(dir, FileName)
	if err != nil {
		return err
	}
	if err := w.Append(session("s1")); err != nil {
		return err
	}
	if err := w.Reserve(); err != nil {
		return err
	}
	fill, err := os.Create(filepath.Join(path, "fill"))
	if err != nil {
		return err
	}
	n, err := fill.Write(make([]byte, 4<<20))
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%d bytes fit: %w", n, err)
	}
	for i := range 100 {
		if err := w.Append(run(fmt.Sprintf("e%06d", i+1), "exited", 0)); err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
	}
	if err := w.Reserve(); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("room on a full disk: %w", err)
	}
	for i := 0; ; i++ { // more than was set aside
		if err = w.Append(&Network{Reason: strings.Repeat("x", 1000)}); err != nil {
			break
		}
		if i > 1000 {
			return errors.New("network events use the room up")
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("network on a full disk: %w", err)
	}
	// To the last byte: an event that does not fit is not written, and every written event is whole.
	runs := 100
	for ; err == nil || runs == 100; runs++ {
		e := run(fmt.Sprintf("e%06d", runs+1), "exited", 0)
		e.Cwd = strings.Repeat("x", 6000)
		if err = w.Append(e); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("runs on a full disk: %w", err)
	}
	if err := os.Remove(filepath.Join(path, "fill")); err != nil {
		return err
	}
	fill.Close()
	if err := w.Append(&End{Execs: uint64(runs)}); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(path, FileName))
	if err != nil {
		return err
	}
	r, err := Verify(f, Options{Head: w.Head().Hash})
	if err != nil || !r.Well || len(r.Runs) != runs {
		return fmt.Errorf("%d runs, want %d: %+v, %w", len(r.Runs), runs, r, err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Blocks*512 > st.Size+64<<10 {
		return fmt.Errorf("the room was not given back: %d bytes are taken for %d", st.Blocks*512, st.Size)
	}
	return nil
}

func TestArgvDigest(t *testing.T) {
	if ArgvDigest([]string{"a", "b"}) == ArgvDigest([]string{"ab"}) || ArgvDigest([]string{"a"}) != Digest([]byte("a\x00")) {
		t.Error("not over NUL-joined arguments")
	}
}

func BenchmarkAppend(b *testing.B) {
	dir, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	w, err := Create(dir, FileName)
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Append(session("s1")); err != nil {
		b.Fatal(err)
	}
	e := run("e000001", "exited", 0)
	for b.Loop() {
		if err := errors.Join(w.Reserve(), w.Append(e)); err != nil {
			b.Fatal(err)
		}
	}
}

func TestMeter(t *testing.T) {
	m := NewMeter()
	for _, part := range []string{"", "ab", "c"} {
		if n, err := m.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if m.Stream() != (Stream{3, Digest([]byte("abc"))}) {
		t.Errorf("%+v", m.Stream())
	}
}
