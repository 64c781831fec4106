package integration

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The names that clients use. Outside both are the host's loopback; the policy grants the first.
const (
	granted   = "svc.test"
	ungranted = "other.test"
)

// servers are what clients talk to, outside, on ports of the loopback that were free. A port is given to a server that
// is not installed too.
type servers struct {
	web, tls, ssh, postgres, redis string // ports
	ca                             string // the certificate behind tls
	dir                            string // everything of theirs, the unprivileged user's
	hosts                          string // an /etc/hosts with the two names
	key, knownHosts                string // what a client of ssh needs
	classes                        string // compiled programs in Java
}

// serve starts all servers that are installed, for as long as the test runs. What is no part of this process runs as the unprivileged user.
func serve(t *testing.T) *servers {
	t.Helper()
	dir, err := os.MkdirTemp(w.scratch, "srv") //nolint:usetesting // others can enter it, and its name is short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(dir) })
	s := &servers{dir: dir, ssh: freePort(t), postgres: freePort(t), redis: freePort(t)}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.give(t, dir)
	hosts := "127.0.0.1 localhost " + granted + " " + ungranted + "\n::1 localhost\n"
	s.hosts = s.file(t, "hosts", hosts, 0o644)
	s.web, s.tls, s.ca = web(t, s.repository(t, 0, "web"))
	s.startSSH(t)
	s.startPostgres(t)
	s.startRedis(t)
	s.compile(t)
	return s
}

// compile makes the classes, once: Java takes its time.
func (s *servers) compile(t *testing.T) {
	t.Helper()
	s.classes = filepath.Join(s.dir, "classes")
	if err := os.Mkdir(s.classes, 0o755); err != nil {
		t.Fatal(err)
	}
	if !installed("javac") {
		return
	}
	cmd := s.command(0, "javac", "-d", s.classes, filepath.Join(w.shared, "integration", "testdata", "clients", "Stream.java"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
}

// file writes a file of the user's.
func (s *servers) file(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	s.give(t, path)
	return path
}

// give makes a file the user's.
func (s *servers) give(t *testing.T, path string) {
	t.Helper()
	uid, gid := w.ids()
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// repository makes a git repository with one commit, which belongs to a user, and returns the directory that it is in.
func (s *servers) repository(t *testing.T, uid int, name string) string {
	t.Helper()
	if !installed("git") {
		return ""
	}
	parent := filepath.Join(s.dir, name)
	if err := os.Mkdir(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(parent, uid, uid); err != nil {
		t.Fatal(err)
	}
	const script = `git init -q --bare -b main demo.git && cd demo.git && git config http.receivepack true &&
		git config user.name demo && git config user.email demo@svc.test &&
		git update-ref refs/heads/main "$(git commit-tree -m first "$(git write-tree)")"`
	cmd := s.command(uid, "sh", "-c", script)
	cmd.Dir = parent
	cmd.Env = append(cmd.Env, "HOME="+parent)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make repository: %v\n%s", err, out)
	}
	return parent
}

// command is one of a user's.
func (s *servers) command(uid int, line ...string) *exec.Cmd {
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + systemPath, "HOME=" + s.dir, "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if gid := uid; uid != 0 {
		if u, g := w.ids(); u == uid {
			gid = g
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return cmd
}

// start starts a server of the user's and waits until something listens on its port. At the end of the test it is ended
// with all that it has started.
func (s *servers) start(t *testing.T, port string, line ...string) {
	t.Helper()
	uid, _ := w.ids()
	cmd := s.command(uid, line...)
	log, err := os.CreateTemp(s.dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	said := func() string { text, _ := os.ReadFile(log.Name()); return line[0] + ": " + cut(string(text)) }
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // how it has ended says its log
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // PostgreSQL leaves shared memory behind where it is killed
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Errorf("%s has to be killed", line[0])
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with what is left in its process group
		<-ended
		if t.Failed() {
			t.Log(said())
		}
	})
	for range 600 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-ended:
			t.Fatal("it has ended: ", said())
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("nothing listens on port %s: %s", port, said())
}

// startSSH starts a server on which its own user can log in, and nobody else: such a one needs no privilege.
func (s *servers) startSSH(t *testing.T) {
	t.Helper()
	if !installed("sshd") || !installed("ssh-keygen") || !installed("git") {
		return
	}
	uid, _ := w.ids()
	for _, name := range []string{"host", "client"} {
		cmd := s.command(uid, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(s.dir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	s.key, s.knownHosts = read("client"), "["+granted+"]:"+s.ssh+" "+read("host.pub")
	keys := s.file(t, "authorized_keys", "restrict "+read("client.pub"), 0o600)
	s.repository(t, uid, "ssh")
	config := s.file(t, "sshd_config", strings.Join([]string{
		"ListenAddress 127.0.0.1:" + s.ssh, "HostKey " + filepath.Join(s.dir, "host"), "AuthorizedKeysFile " + keys,
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "UsePAM no", "StrictModes no", "PidFile none", "UseDNS no",
	}, "\n")+"\n", 0o600)
	s.start(t, s.ssh, "/usr/sbin/sshd", "-D", "-e", "-f", config)
}

// postgresProgram finds a program of PostgreSQL's server, which is on nobody's PATH.
func postgresProgram(name string) string {
	list, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is a good one
	if len(list) == 0 {
		return ""
	}
	return slices.MaxFunc(list, func(a, b string) int { return version(a) - version(b) })
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // a directory that is no number comes last
	return n
}

func (s *servers) startPostgres(t *testing.T) {
	t.Helper()
	if postgresProgram("postgres") == "" {
		return
	}
	uid, _ := w.ids()
	data := filepath.Join(s.dir, "pg")
	cmd := s.command(uid, postgresProgram("initdb"), "-D", data, "-U", "demo", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s.start(t, s.postgres, postgresProgram("postgres"), "-D", data, "-p", s.postgres, "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=8MB")
}

// socket is where PostgreSQL listens besides.
func (s *servers) socket() string { return filepath.Join(s.dir, ".s.PGSQL."+s.postgres) }

// redisServer is the server's program. In Debian's redis-tools it goes by another name, and knows by its name what it is.
const redisServer = "/usr/bin/redis-check-rdb"

func (s *servers) startRedis(t *testing.T) {
	t.Helper()
	if !installed("redis-check-rdb") {
		return
	}
	link := filepath.Join(s.dir, "redis-server")
	if err := os.Symlink(redisServer, link); err != nil {
		t.Fatal(err)
	}
	s.start(t, s.redis, link, "--bind", "127.0.0.1", "--port", s.redis, "--save", "", "--dir", s.dir)
}

// freePort is a port of the loopback that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return port(l)
}
