package container

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/puts"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// TestPlainPuts: directories on the way are made once, before what lies in them, and no path leaves the working directory.
func TestPlainPuts(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []Put
		want  string // each a directory "d/" or a file with its mode
		code  string
	}{
		{"nothing", nil, "", ""},
		{"one", []Put{{Path: "a"}}, "a:666", ""},
		{"a mode", []Put{{Path: "a", Mode: 0o750}}, "a:750", ""},
		{"a set-user-id bit", []Put{{Path: "a", Mode: 0o755 | fs.ModeSetuid}}, "a:755", ""},
		{"in a directory", []Put{{Path: "d/e/a"}}, "d/ d/e/ d/e/a:666", ""},
		{"two in one", []Put{{Path: "d/a"}, {Path: "d/b"}, {Path: "d/e/c"}}, "d/ d/a:666 d/b:666 d/e/ d/e/c:666", ""},
		{"a directory alone", []Put{{Path: "d", Mode: fs.ModeDir | 0o700}}, "d/", ""},
		{"a directory that is there already", []Put{{Path: "d/a"}, {Path: "d", Mode: fs.ModeDir}}, "d/ d/a:666", ""},
		{"not as short as could be", []Put{{Path: "./d//e/../a"}}, "d/ d/a:666", ""},
		{"odd names", []Put{{Path: "-rf"}, {Path: "a b\n"}}, "-rf:666 a b\n:666", ""},
		{"out", []Put{{Path: "../a"}}, "", fault.PathInvalid},
		{"out by the way", []Put{{Path: "d/../../a"}}, "", fault.PathInvalid},
		{"absolute", []Put{{Path: "/etc/passwd"}}, "", fault.PathInvalid},
		{"empty", []Put{{Path: ""}}, "", fault.PathInvalid},
		{"with an end in it", []Put{{Path: "a\x00b"}}, "", fault.PathInvalid},
		{"the directory itself", []Put{{Path: "."}}, "", fault.PathInvalid},
		{"a file that is named as a directory", []Put{{Path: "d/"}}, "", fault.PathInvalid},
	} {
		list, err := puts.Plain(c.files)
		var got []string
		for _, p := range list {
			if p.Parent != "" {
				got = append(got, path.Join(p.Parent, p.Name)+"/")
				continue
			}
			got = append(got, p.Name+":"+strconv.FormatUint(uint64(p.Mode), 8))
		}
		if strings.Join(got, " ") != c.want || codeOf(err) != c.code || (err != nil) != (c.code != "") {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestPutFailed(t *testing.T) {
	for errno, want := range map[unix.Errno][3]string{
		unix.EXDEV:  {fault.PathInvalid, "a link on the way leaves", "remove the link"},
		unix.ENXIO:  {fault.PutFailed, "it is no ordinary file", ""},
		unix.EINVAL: {fault.PutFailed, "it is no ordinary file", ""},
		unix.EROFS:  {fault.PutFailed, "read-only", "must let it write there"},
		unix.EACCES: {fault.PutFailed, "permission denied", "must let it write there"},
		unix.EFBIG:  {fault.PutFailed, "too large", "limits.file"},
		unix.ENOSPC: {fault.PutFailed, "no space", ""},
	} {
		err := puts.Failed(&forkexec.StepError{Step: forkexec.StepPut, Detail: `"f"`, Err: errno})
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Code != want[0] || !strings.Contains(e.Error(), want[1]) || !strings.Contains(e.Hint, want[2]) || !strings.Contains(e.Error(), `put "f"`) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	plain := errors.New("plain")
	if got := puts.TransferError("get", plain); !errors.Is(got, plain) || codeOf(got) != "" {
		t.Errorf("an error of another's: %v", got)
	}
}

// TestFreshPath: what is empty for an exec is a directory below the program's own, never what no program runs without.
func TestFreshPath(t *testing.T) {
	for _, c := range []struct{ asked, dir, home, want string }{
		{"/tmp", "/w", "/home/x", "/tmp"},
		{"/tmp/../tmp/./a/", "/w", "", "/tmp/a"},
		{"cache", "/w", "", "/w/cache"},
		{"../other", "/w/a", "", "/w/other"},
		{"~", "/w", "/home/x", "/home/x"},
		{"~/.cache", "/w", "/home/x", "/home/x/.cache"},
		{"~other", "/w", "/home/x", "/w/~other"},
		{"~/.cache", "/w", "", ""},
		{"~/.cache", "/w", "relative", ""},
		{"~/../../proc", "/w", "/home/x", ""},
		{"", "/w", "", ""},
		{"/", "/w", "", ""},
		{"..", "/w", "", ""},
		{"/proc", "/w", "", ""},
		{"/proc/self", "/w", "", ""},
		{"/dev/shm", "/w", "", ""},
		{"/w/../sys/x", "/w", "", ""},
		{"/process", "/w", "", "/process"},
	} {
		got, err := freshPath(c.asked, c.dir, c.home)
		if got != c.want || (err != nil) != (c.want == "") || err != nil && codeOf(err) != fault.FreshUnusable {
			t.Errorf("%q in %q with home %q: %q, %v, want %q", c.asked, c.dir, c.home, got, err, c.want)
		}
	}
}

func TestDirOf(t *testing.T) {
	var l Launch
	l.Dir = "/w/job"
	sb := madeUp(l)
	for asked, want := range map[string]string{"": "/w/job", "a": "/w/job/a", "../b": "/w/b", "/c/../d": "/d", "../../../..": "/"} {
		if got := sb.dirOf(asked); got != want {
			t.Errorf("%q: %q, want %q", asked, got, want)
		}
	}
}

// TestFresh: a directory that is empty for one exec is that for no other, and hides what is there from that exec alone.
func TestFresh(t *testing.T) {
	ws := t.TempDir()
	if err := errors.Join(os.Chmod(ws, 0o777), os.MkdirAll(filepath.Join(ws, "cache/in"), 0o777), os.WriteFile(filepath.Join(ws, "cache/old"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	sb := sandboxOf(t, "files.write = ["+quote(ws)+"]\nworkdir = "+quote(ws))
	fresh := func(script string, dirs ...string) (*result.Result, error) {
		req := sh(script)
		req.Fresh = dirs
		r, err := sb.Start(req)
		if err != nil {
			return nil, err
		}
		return r.Wait()
	}
	res, err := fresh("ls -A cache; echo x >cache/new && echo written", "cache", ws+"/cache")
	if err != nil || res.Stdout != "written\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err = fresh("ls -A cache"); err != nil || res.Stdout != "in\nold\n" {
		t.Errorf("the next exec: %+v, %v", res, err)
	}
	for _, c := range []struct{ dirs, code string }{
		{"none", fault.FreshUnusable}, {"cache/old", fault.FreshUnusable}, {"cache cache/in", fault.FreshUnusable}, {"/proc/self", fault.FreshUnusable},
	} {
		if _, err := fresh("true", strings.Fields(c.dirs)...); codeOf(err) != c.code {
			t.Errorf("%s: %v", c.dirs, err)
		}
	}
	if names := namesOf(t, filepath.Join(ws, "cache")); !slices.Equal(names, []string{"in", "old"}) {
		t.Errorf("on the host: %v", names)
	}
}

// TestFilesInAndOut writes and reads with a program that has put links in the way.
func TestFilesInAndOut(t *testing.T) {
	ws, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := errors.Join(os.Chmod(ws, 0o777), os.WriteFile(secret, []byte("secret"), 0o644)); err != nil {
		t.Fatal(err)
	}
	sb := sandboxOf(t, "files.write = ["+quote(ws)+"]\nworkdir = "+quote(ws)+"\nlimits.file = \"1M\"")
	if err := sb.Put("", []Put{{Path: "d/a", Data: []byte("one")}, {Path: "b", Data: []byte{0xff, 0}}}); err != nil {
		t.Fatal(err)
	}
	run(t, sb, sh("ln -s "+outside+" out; ln -s "+secret+" link; ln -s d/a inner; mkfifo pipe; mkdir empty; head -c 3000 /dev/zero >large; ln -s /etc etc"))

	collected := func(list ...Collect) map[string]result.Collected {
		t.Helper()
		got := map[string]result.Collected{}
		files, _, err := sb.Collect("", list)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			got[f.Path] = f
		}
		return got
	}
	got := collected(Collect{Path: "d"}, Collect{Path: "b"}, Collect{Path: "link"}, Collect{Path: "out/secret"}, Collect{Path: "none"}, Collect{Path: "large", Max: 100}, Collect{Path: "../x"})
	if f := got["d/a"]; f.Text != "one" || f.Base64 != "" || f.Bytes != 3 {
		t.Errorf("a file of a directory: %+v", f)
	}
	if f := got["b"]; f.Text != "\ufffd\x00" || f.Base64 != "/wA=" {
		t.Errorf("bytes that are no text: %+v", f)
	}
	for _, bad := range []string{"link", "out/secret", "none", "large", "../x"} {
		if f, ok := got[bad]; !ok || f.Error == nil || f.Text != "" || f.Base64 != "" {
			t.Errorf("%s: %+v, %v", bad, f, ok)
		}
	}
	if got["large"].Error.Code != fault.FileTooLarge || got["../x"].Error.Code != fault.PathInvalid {
		t.Errorf("codes %+v, %+v", got["large"].Error, got["../x"].Error)
	}
	if _, _, err := sb.Collect("", []Collect{{Path: "none"}}); err == nil {
		t.Error("a single one that is not there is no error")
	}
	if _, err := sb.Files("no/such"); codeOf(err) != fault.CwdMissing {
		t.Errorf("a working directory that is not there: %v", err)
	}

	for name, code := range map[string]string{"out/new": fault.PathInvalid, "etc/new": fault.PathInvalid, "pipe": fault.PutFailed, "empty": fault.PutFailed, "large/x": fault.PutFailed, "/x": fault.PathInvalid} {
		if err := sb.Put("", []Put{{Path: name, Data: []byte("x")}}); codeOf(err) != code {
			t.Errorf("put %s: %v, want %s", name, err, code)
		}
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "secret" || len(namesOf(t, outside)) != 1 {
		t.Errorf("outside: %q, %v, %v", data, namesOf(t, outside), err)
	}
	if err := sb.Put("d", []Put{{Path: "a", Data: []byte("two")}}); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(ws, "d/a")); err != nil || string(data) != "two" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestHostPaths: no link that stands where a program could have put it is followed, whether it is read or written.
func TestHostPaths(t *testing.T) {
	ws, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(ws, 0o777), os.WriteFile(filepath.Join(outside, "f"), []byte("mine"), 0o644), os.Symlink(outside, filepath.Join(outside, "own"))); err != nil {
		t.Fatal(err)
	}
	sb := sandboxOf(t, "files.write = ["+quote(ws)+"]\nworkdir = "+quote(ws))
	run(t, sb, sh("mkdir d; ln -s "+outside+" d/out; ln -s "+outside+"/f f; echo x >plain"))
	files, _, err := sb.ReadHost(filepath.Join(outside, "own", "f"), 100)
	if err != nil || len(files) != 1 || string(files[0].Data) != "mine" {
		t.Errorf("a link of the caller's own: %+v, %v", files, err)
	}
	if files, _, err = sb.ReadHost(filepath.Join(ws, "plain"), 100); err != nil || string(files[0].Data) != "x\n" {
		t.Errorf("a file of the program's: %+v, %v", files, err)
	}
	for name, code := range map[string]string{
		filepath.Join(ws, "d/out/f"): fault.OutputDirGranted, filepath.Join(ws, "f"): fault.OutputDirGranted,
		filepath.Join(ws, "none"): fault.FileUnusable, filepath.Join(ws, "plain/x"): fault.FileUnusable,
	} {
		if files, _, err := sb.ReadHost(name, 100); err == nil || codeOf(err) != code {
			t.Errorf("read %s: %+v, %v, want %s", name, files, err, code)
		}
	}
	if _, _, err := sb.ReadHost(filepath.Join(outside, "f"), 2); codeOf(err) != fault.FileTooLarge {
		t.Errorf("larger than allowed: %v", err)
	}
	for name, code := range map[string]string{
		filepath.Join(ws, "d/out/new"): fault.OutputDirGranted, filepath.Join(outside, "none/new"): fault.FileUnusable,
		outside + "/..": fault.OutputDirUnusable, "/": fault.OutputDirUnusable, outside + "/.": fault.OutputDirUnusable,
	} {
		if sink, err := sb.HostSink(name); err == nil || codeOf(err) != code {
			t.Errorf("write %s: %+v, %v, want %s", name, sink, err, code)
		}
	}
	got, err := sb.Files("")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	to := filepath.Join(outside, "copy")
	if _, err := sb.GetTo(got, "plain", to, 100); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(to); err != nil || string(data) != "x\n" {
		t.Errorf("%q, %v", data, err)
	}
	// A link that stands there is replaced, not followed.
	link := filepath.Join(outside, "link")
	if err := os.Symlink(filepath.Join(outside, "f"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.GetTo(got, "plain", link, 100); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "f")); err != nil || string(data) != "mine" {
		t.Errorf("what the link led to: %q, %v", data, err)
	}
}
