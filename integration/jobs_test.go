package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// example copies a directory of examples/ to where the test may write, and returns the path of its policy.
func (b *box) example(name string) string {
	b.t.Helper()
	from := filepath.Join("..", "examples", name)
	if err := os.CopyFS(b.path(name), os.DirFS(from)); err != nil {
		b.t.Fatal(err)
	}
	b.mkdir(name, "out") // examples without output have none in the repository
	return b.path(name, "policy.toml")
}

// private puts a file into the caller's home, which no job may see.
func (b *box) private() {
	b.t.Helper()
	b.file(".ssh/id_ed25519", "PRIVATE-KEY-OF-THE-CALLER")
}

// snoop is what every job tries besides its work: the caller's home and a denied file, by several names.
const snoop = `
import glob, os, pathlib, sys
for p in sys.argv[1:]:
    for name in (p, os.path.relpath(p), "/proc/self/root" + p, "/proc/1/root" + p, os.path.dirname(p) + "/../" + os.path.basename(os.path.dirname(p)) + "/" + os.path.basename(p)):
        try: print("SAW", name, open(name).read())
        except OSError: pass
    for d, _, files in os.walk(os.path.dirname(p)):
        for f in files:
            try: print("SAW", d, f) if pathlib.Path(d, f).read_bytes() and os.path.basename(p) == f else None
            except OSError: pass
`

// seesNone runs snoop under the job's policy.
func (b *box) seesNone(policy string, paths ...string) {
	b.t.Helper()
	control := 0
	for _, p := range paths {
		if data, err := os.ReadFile(p); err == nil && len(data) > 0 {
			control++ // outside it can be read
		}
	}
	same(b.t, "files that can be read outside", len(paths), control)
	b.run(append([]string{"run", "-p", policy, "--", "python3", "-c", snoop}, paths...)...).exits(0).hides("SAW")
}

// ownedByCaller checks everything below a directory.
func (b *box) ownedByCaller(dir string) {
	b.t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		if ownerOf(info) != uint32(w.uid) {
			b.t.Errorf("%s belongs to %d", p, ownerOf(info))
		}
		return nil
	})
	if err != nil || files < 2 {
		b.t.Errorf("%s: %d files, %v", dir, files, err)
	}
}

// TestDataJob: Python reads tables and writes its results, and the answers are not among what it reads.
func TestDataJob(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		b.private()
		p := b.example("python-data")
		a := b.run("run", "-p", p, "--", "python3", "program.py").exits(0)
		totals := b.read(b.path("python-data/out/totals.csv"))
		if lines := strings.Fields(totals); len(lines) < 2 || lines[0] != "region,total" {
			t.Errorf("totals.csv: %q: %v", totals, a)
		}
		region, total, _ := strings.Cut(strings.Fields(totals)[1], ",")
		a.prints(region + " " + total)
		// The same program without a sandbox reads one more table.
		b.seesNone(p, b.path("python-data/inputs/answers.csv"), b.path(".ssh/id_ed25519"))
		b.run("run", "-p", p, "--", "sh", "-c", "echo x >inputs/january.csv || echo x >program.py").exits(2)
		b.ownedByCaller(b.path("python-data"))
		b.run("create", "-p", p, "box").exits(0)
	})
}

// TestCompilerJob: gcc compiles a program, which then runs.
func TestCompilerJob(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "gcc")
		b.private()
		p := b.example("gcc")
		b.run("run", "-p", p, "--", "gcc", "-O2", "-Wall", "-Werror", "-o", "out/hello", "src/main.c").exits(0)
		same(t, "what it printed", b.run("run", "-p", p, "--", "out/hello").exits(0).stdout != "", true)
		b.run("run", "-p", p, "--", "gcc", "-c", "-o", "src/main.o", "src/main.c").exits(1).complains("Read-only file system")
		b.ownedByCaller(b.path("gcc"))
		b.seesNone(p, b.path(".ssh/id_ed25519"))

		// A build of several files with make, in parallel, and an error that comes through as the compiler made it.
		b.file("gcc/src/bad.c", "int main(void) { return undeclared; }\n")
		b.run("run", "-p", p, "--", "gcc", "-o", "out/bad", "src/bad.c").exits(1).complains("src/bad.c:1", "undeclared")
		absent(t, b.path("gcc/out/bad"))
	})
}

// TestGitJob: git clones a local repository and commits, and cannot change what git would run later outside.
func TestGitJob(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "git")
		b.private()
		p := b.example("git")
		origin := b.mkdir("origin")
		ws := b.mkdir("ws")
		ident := `git config --global user.name n; git config --global user.email e@x; git config --global protocol.file.allow always; `
		clone := b.files(ws, object{"read": []string{origin}, "write": []string{ws}, "deny": []string{b.file("origin/answers.txt", "DENIED-ANSWER")}})
		b.sh(b.files(origin, object{"write": []string{origin}}),
			ident+`git init -q -b main . && echo one >f && git add f && git commit -qm first && git log --oneline | wc -l`).exits(0).prints("1")
		b.sh(clone, ident+`git clone -q "$1" repo && cd repo && echo two >>f && git commit -qam second && git log --format=%s && git status --porcelain && git fsck`, origin).
			exits(0).prints("second\nfirst\n")
		b.ownedByCaller(ws)
		b.seesNone(clone, b.path("origin/answers.txt"), b.path(".ssh/id_ed25519"))

		// The example's policy, over the clone.
		if err := os.Rename(ws+"/repo", b.path("git/repo")); err != nil {
			t.Fatal(err)
		}
		b.run("run", "-p", p, "--", "git", "commit", "-q", "--allow-empty", "-m", "from the sandbox").exits(0)
		b.run("run", "-p", p, "--", "git", "log", "-1", "--format=%s by %an").exits(0).prints("from the sandbox by sandbox")
		hooks := tree(t, b.path("git/repo/.git/hooks"))
		config := b.read(b.path("git/repo/.git/config"))
		a := b.run("run", "-p", p, "--", "sh", "-c", `echo evil >.git/hooks/post-checkout; git config core.fsmonitor evil; mv .git/hooks .git/h; mv .git/config .git/c;
			rm -rf .git/hooks .git/config; exit 0`)
		a.exits(0)
		same(t, "the hooks", hooks, tree(t, b.path("git/repo/.git/hooks")))
		same(t, "the configuration", config, b.read(b.path("git/repo/.git/config")))
		b.ownedByCaller(b.path("git/repo"))
	})
}

// testedPackage is a real package whose Debian package, python3-simplejson, brings its own tests with it.
const testedPackage = "/usr/lib/python3/dist-packages/simplejson"

// TestPytestJob: the test suite of a real package runs under pytest: processes, temporary files, tracebacks, C code.
func TestPytestJob(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		_, err := os.Stat(testedPackage + "/tests")
		need(t, "python3-simplejson", err == nil)
		_, err = os.Stat("/usr/lib/python3/dist-packages/pytest")
		need(t, "python3-pytest", err == nil)
		b.private()
		answers := b.file("ws/answers/expected.json", "DENIED-ANSWER")
		ws := b.path("ws")
		if err := os.CopyFS(ws+"/simplejson", os.DirFS(testedPackage)); err != nil {
			t.Fatal(err)
		}
		b.file("ws/test_own.py", `
import pathlib, pytest, subprocess, sys
def test_process(): assert subprocess.run([sys.executable, "-c", "print(6*7)"], capture_output=True).stdout == b"42\n"
def test_files(tmp_path): (tmp_path / "f").write_text("x"); assert (tmp_path / "f").read_text() == "x"
def test_denied():
    with pytest.raises(OSError): pathlib.Path("answers/expected.json").read_text()
def test_home(): assert not [p for p in pathlib.Path.home().rglob("*") if "id_" in p.name]
`)
		p := b.files(ws, object{"write": []string{ws}, "deny": []string{b.path("ws/answers")}})
		a := b.run("run", "-p", p, "--", "python3", "-m", "pytest", "-q", "--junitxml", "report.xml", "simplejson/tests", "test_own.py").exits(0)
		a.prints(" passed").hides("failed", "DENIED-ANSWER")
		if report := b.read(ws + "/report.xml"); strings.Count(report, "<testcase") < 100 {
			t.Errorf("only %d tests ran: %v", strings.Count(report, "<testcase"), a)
		}
		// A suite that fails says so by its own status.
		b.file("ws/test_bad.py", "def test_bad(): assert 1 == 2\n")
		b.run("run", "-p", p, "--", "python3", "-m", "pytest", "-q", "test_bad.py").exits(1).prints("1 failed", "assert 1 == 2")
		b.ownedByCaller(ws)
		b.seesNone(p, answers, b.path(".ssh/id_ed25519"))
	})
}
