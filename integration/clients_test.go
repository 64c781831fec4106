package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/journal"
)

// client is a program that people use, and a piece of work for it. Its script finds in the environment what clientSandbox
// puts there.
type client struct {
	name   string
	needs  []string // programs, files, and Python's modules as "python3:MODULE"
	script string
	prints string
	kind   string // of the events, or two, where proxy variables are set; "direct" for programs that do not read them
	only   string // the only way in which it is tried; all of ways else
}

// The ways in which a client is to find its server.
const (
	withVariables = "variables" // as sandboxrun sets them
	removed       = "removed"   // without: names and addresses lead there
	opaque        = "not transparent"
)

// inDir is how scripts begin that leave files.
const inDir = `cd "$(mktemp -d)" && `

const (
	gitWork = inDir + `b=refs/heads/$(basename "$PWD"); git clone -q "$REPO" demo && cd demo &&
		git -c user.name=n -c user.email=e@x commit -q --allow-empty -m second && git push -q origin "HEAD:$b" && git ls-remote origin "$b"`
	gitHTTP  = `REPO=$WEB/git/demo.git; ` + gitWork
	gitTLS   = `REPO=$TLS/git/demo.git; ` + gitWork
	gitSSH   = `REPO=$SSH; ` + gitWork
	streamPy = "/usr/bin/python3 $PROGRAMS/stream.py "
	psql     = `psql -XAtqc "select 6*7, length(repeat('x', 1000000))" -U demo postgres `
)

var clients = []client{
	{name: "curl", needs: []string{"curl"}, script: `curl -sSf $WEB/hello`, prints: "hello from outside", kind: "http"},
	{name: "curl, upload", needs: []string{"curl"}, script: `head -c 3000000 /dev/zero | curl -sSfT - $WEB/size`, prints: "3000000 <nil>", kind: "http"},
	{name: "curl, TLS", needs: []string{"curl"}, script: `curl -sSf --cacert $CA -w '%{http_version} ' $TLS/hello`, prints: "outside\n2 ", kind: "connect"},
	{
		name: "curl, SOCKS", needs: []string{"curl"}, prints: "hello from outside", kind: "socks", only: opaque,
		script: `curl -sSf --proxy socks5h://127.0.0.1:3128 $WEB/hello`,
	},
	{name: "git, http", needs: []string{"git"}, script: gitHTTP, prints: "refs/heads/", kind: "http"},
	{name: "git, TLS", needs: []string{"git"}, script: "export GIT_SSL_CAINFO=$CA; " + gitTLS, prints: "refs/heads/", kind: "connect"},
	{name: "git, ssh", needs: []string{"git", "ssh", "sshd"}, script: gitSSH, prints: "refs/heads/", kind: "direct"},
	{name: "git, ssh", needs: []string{"git", "ssh", "sshd"}, script: gitSSH, prints: "refs/heads/", kind: "connect", only: opaque},
	{
		name: "pip", needs: []string{"python3:pip"}, prints: "wheel", kind: "http",
		script: inDir + `/usr/bin/python3 -m pip install -q --target . --index-url $WEB/simple/ --trusted-host svc.test sandboxrun-demo &&
			python3 -c 'import sandboxrun_demo as d; print(d.word)'`,
	},
	{
		name: "npm", needs: []string{"npm", "node"}, prints: "tarball", kind: "http",
		script: inDir + `npm install --registry $WEB/npm/ --no-audit --no-fund --loglevel error sandboxrun-demo && node -p 'require("sandboxrun-demo").word'`,
	},
	{name: "requests", needs: []string{"python3:requests"}, script: streamPy + "requests $WEB", prints: "first second", kind: "http"},
	{name: "httpx", needs: []string{"python3:httpx"}, script: streamPy + "httpx $WEB", prints: "first second", kind: "http"},
	{name: "httpx, TLS", needs: []string{"python3:httpx"}, script: "SSL_CERT_FILE=$CA " + streamPy + "httpx $TLS", prints: "first second", kind: "connect"},
	{name: "aiohttp", needs: []string{"python3:aiohttp"}, script: streamPy + "aiohttp $WEB", prints: "first second", kind: "http"},
	{name: "node", needs: []string{"node"}, script: `node $PROGRAMS/stream.mjs $WEB`, prints: "first second", kind: "connect http"},
	{name: "node, TLS", needs: []string{"node"}, script: `NODE_EXTRA_CA_CERTS=$CA node $PROGRAMS/stream.mjs $TLS`, prints: "first second", kind: "connect"},
	{name: "java", needs: []string{"javac"}, script: `java -cp $CLASSES Stream $WEB`, prints: "200 first second", kind: "direct"},
	{
		name: "java, properties", needs: []string{"javac"}, prints: "200 first second", kind: "http", only: opaque,
		script: `java -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -cp $CLASSES Stream $WEB`,
	},
	{name: "psql", needs: []string{"psql", "postgres"}, script: psql + "-h svc.test -p $PGPORT", prints: "42|1000000", kind: "direct"},
	{name: "psql, forwarded", needs: []string{"psql", "postgres"}, script: psql + "-h localhost -p 5432", prints: "42|1000000", kind: "forward", only: opaque},
	{
		name: "redis-cli", needs: []string{"redis-cli", "redis-check-rdb"}, prints: "OK\n300000\n", kind: "direct",
		script: `r() { redis-cli -h svc.test -p $REDISPORT "$@"; }; head -c 300000 /dev/zero | tr '\0' x | r -x set key && r strlen key`,
	},
}

// TestClients: programs as people use them reach real servers outside, with the proxy variables and without, as root and
// as an unprivileged user; and what is not granted they are told.
func TestClients(t *testing.T) {
	needRoot(t) // to give the servers names
	needUserns(t)
	need(t, "testuser", w.other != nil)
	s := serve(t)
	for _, flavour := range []string{"root", "user"} {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			if flavour == "user" {
				b.become(w.ids())
			}
			b.clientSandbox(s, "box", true)
			b.clientSandbox(s, "proxied", false)
			for _, c := range clients {
				ways := []string{c.only}
				if c.only == "" {
					ways = []string{withVariables, removed}
				}
				for _, way := range ways {
					t.Run(c.name+"/"+way, func(t *testing.T) { b.on(t).tryClient(&c, way) })
				}
			}
			for _, r := range clientRefusals {
				for way := range r.says {
					t.Run("refused/"+r.name+"/"+way, func(t *testing.T) { b.on(t).tryRefusal(&r, way) })
				}
			}
		})
	}
}

// become lets another user call the launcher.
func (b *box) become(uid, gid int) {
	b.t.Helper()
	b.as = []string{"setpriv", "--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(gid), "--clear-groups", "--"}
	if err := os.Chown(b.dir, uid, gid); err != nil {
		b.t.Fatal(err)
	}
}

// on is the box in the hands of a test of its own.
func (b *box) on(t *testing.T) *box {
	t.Helper()
	own := *b
	own.t = t
	return &own
}

// clientSandbox makes a sandbox in which clients find what they need. The names are known to its relay alone, in whose
// mount namespace /etc/hosts is another.
func (b *box) clientSandbox(s *servers, id string, transparent bool) {
	b.t.Helper()
	ws := b.mkdir(id)
	programs := filepath.Join(w.shared, "integration", "testdata", "clients")
	ca, key, known := b.file(id+"/ca.pem", s.ca), b.file(id+"/key", s.key), b.file(id+"/known_hosts", s.knownHosts)
	b.file(id+"/ssh_config", "IdentityFile ~/.ssh/key\nBatchMode yes\n")
	if uid, gid := w.ids(); b.as != nil {
		for _, path := range []string{ws, ca, key, known} {
			if err := os.Chown(path, uid, gid); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	var hosts []string
	for _, port := range []string{s.web, s.tls, s.ssh, s.postgres, s.redis} {
		hosts = append(hosts, granted+":"+port)
	}
	policy := b.policy(object{
		"workdir": ws, "files": object{"write": []string{ws}, "read": []string{programs, s.classes}},
		"network": object{
			"mode": "allowlist", "allowed_hosts": hosts, "allow_private": []string{granted}, "transparent": transparent,
			"ports": []string{"5432=unix:" + s.socket()},
		},
		"env": object{"set": object{
			"WEB": "http://" + granted + ":" + s.web, "TLS": "https://" + granted + ":" + s.tls, "CA": ca, "PGPORT": s.postgres, "REDISPORT": s.redis,
			"SSH":     "ssh://" + w.other.Username + "@" + granted + ":" + s.ssh + filepath.Join(s.dir, "ssh", "demo.git"),
			"CLASSES": s.classes, "PROGRAMS": programs, "PYTHONDONTWRITEBYTECODE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NO_UPDATE_NOTIFIER": "1",
			"OTHER": "http://" + ungranted + ":" + s.web,
		}},
	})
	wrap := []string{"unshare", "-m", "--propagation", "private", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, s.hosts}
	b.call(call{wrap: wrap}, "create", "--policy", policy, "--owner", strconv.Itoa(os.Getpid()), id).exits(0)
	b.run("exec", id, "--", "sh", "-c", `umask 077 && mkdir ~/.ssh && cp key known_hosts ~/.ssh && cp ssh_config ~/.ssh/config`).exits(0)
	if b.t.Failed() {
		b.t.FailNow() // all else would only say so again
	}
}

// sandboxOf is the sandbox in which a way is tried.
func sandboxOf(way string) string {
	if way == opaque {
		return "proxied"
	}
	return "box"
}

// inWay runs a script in the sandbox and with the variables of a way.
func (b *box) inWay(way, script string) *answer {
	b.t.Helper()
	if way == removed {
		script = `unset HTTP_PROXY http_proxy HTTPS_PROXY https_proxy ALL_PROXY all_proxy NO_PROXY no_proxy NODE_USE_ENV_PROXY; ` + script
	}
	return b.run("exec", sandboxOf(way), "--", "sh", "-c", script)
}

func (b *box) tryClient(c *client, way string) {
	needClient(b.t, c.needs)
	kind := c.kind
	switch {
	case way == removed:
		kind = "direct"
	case strings.HasPrefix(c.name, "node") && !nodeReadsVariables():
		kind = "direct"
	}
	id, a := sandboxOf(way), []journal.NetworkEvent(nil)
	before := b.settledEvents(id)
	b.inWay(way, c.script).exits(0).prints(c.prints)
	eventually(b.t, "an event", func() bool { a = b.networkEvents(id)[before:]; return len(a) > 0 })
	for _, e := range a {
		if e.Verdict != "allowed" || !slices.Contains(strings.Fields(kind), e.Kind) {
			b.t.Errorf("%s of %s:%d is %s, want %s: %s", e.Kind, e.Host, e.Port, e.Verdict, kind, e.Reason)
		}
	}
}

// settledEvents is the number of events when no more come of connections that an earlier client has made.
func (b *box) settledEvents(id string) int {
	b.t.Helper()
	n := -1
	eventually(b.t, "no more events", func() bool {
		last := n
		n = len(b.networkEvents(id))
		return n == last
	})
	return n
}

// nodeReadsVariables says whether this version of Node can read proxy variables: from 22.21 and 24 on.
var nodeReadsVariables = sync.OnceValue(func() bool {
	return exec.Command("node", "--use-env-proxy", "-e", "0").Run() == nil
})

// networkEvents are those of a sandbox so far.
func (b *box) networkEvents(id string) []journal.NetworkEvent {
	b.t.Helper()
	var list []journal.NetworkEvent
	for line := range strings.Lines(b.run("events", "--network", "--json", id).exits(0).stdout) {
		var e journal.NetworkEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// needClient skips the test where what it is made of is not installed: programs, and Python's modules as "python3:MODULE".
func needClient(t *testing.T, list []string) {
	t.Helper()
	for _, name := range list {
		program, module, _ := strings.Cut(name, ":")
		there := installed(program)
		switch {
		case name == "postgres":
			there = postgresProgram(name) != ""
		case there && module != "":
			there = exec.Command("/usr/bin/python3", "-Ic", "import "+module).Run() == nil
		}
		if !there && required("clients") {
			t.Fatalf("%s is not installed, and %s requires all clients", name, envRequire)
		}
		if !there {
			t.Skipf("%s is not installed; scripts/install --clients", name)
		}
	}
}

// clientRefusal is what a client says of a host that the policy does not grant. It must say so, and soon.
type clientRefusal struct {
	name   string
	needs  []string
	script string
	says   map[string]string // a regular expression for each way
}

const (
	forbidden = `\b403\b`
	unknown   = `(?i)could not resolve|not known|ENOTFOUND|could not translate|UnresolvedAddress`
)

var both = map[string]string{withVariables: forbidden, removed: unknown}

var clientRefusals = []clientRefusal{
	{"curl", []string{"curl"}, `curl -sSf $OTHER/hello`, both},
	{"curl, TLS", []string{"curl"}, `curl -sS https://other.test/`, both},
	{"curl, port", []string{"curl"}, `curl -sSf http://svc.test:9/`, map[string]string{withVariables: forbidden, removed: "(?i)refused|connect to"}},
	{"git, http", []string{"git"}, inDir + `git clone $OTHER/git/demo.git`, both},
	{"git, ssh", []string{"git", "ssh"}, inDir + `git clone ssh://other.test/demo.git`, map[string]string{
		removed: unknown, opaque: "other.test:22 is not allowed",
	}},
	// Of an index that answers 403 pip itself says no more.
	{"pip", []string{"python3:pip"}, pipOther + `--index-url $OTHER/simple/ --trusted-host other.test`, map[string]string{
		withVariables: "No matching distribution", removed: unknown,
	}},
	{"pip, TLS", []string{"python3:pip"}, pipOther + `--index-url https://other.test/simple/`, both},
	{"npm", []string{"npm"}, inDir + `npm install --registry $OTHER/npm/ --fetch-retries 0 sandboxrun-demo`, both},
	{"requests", []string{"python3:requests"}, streamPy + "requests $OTHER", both},
	{"node", []string{"node"}, `node $PROGRAMS/stream.mjs $OTHER`, both},
	{"java", []string{"javac"}, `java -cp $CLASSES Stream $OTHER`, map[string]string{removed: unknown}},
	{"psql", []string{"psql"}, psql + `-h other.test -p $PGPORT`, map[string]string{removed: unknown}},
	{"redis-cli", []string{"redis-cli"}, `redis-cli -h other.test -p $REDISPORT ping | grep .`, map[string]string{removed: unknown}},
}

// pipOther tries again only once: the pauses before its five tries are long.
const pipOther = `/usr/bin/python3 -m pip download -d /tmp --retries 1 sandboxrun-demo `

// soon is when a refused client must have ended, on a busy machine too.
const soon = 30 * time.Second

func (b *box) tryRefusal(r *clientRefusal, way string) {
	needClient(b.t, r.needs)
	says := r.says[way]
	if r.name == "node" && !nodeReadsVariables() {
		says = unknown
	}
	before := len(b.networkEvents(sandboxOf(way)))
	a := b.inWay(way, r.script)
	if a.status == 0 || !regexp.MustCompile(says).MatchString(a.stdout+a.stderr) {
		b.t.Errorf("want a failure that says %s: %v", says, a)
	}
	if a.took > soon {
		b.t.Errorf("it took %v: %v", a.took, a)
	}
	if says == unknown || way == removed {
		return // a name's refusal is told once, and that of a port by the kernel
	}
	eventually(b.t, "an event that it was refused", func() bool {
		return slices.ContainsFunc(b.networkEvents(sandboxOf(way))[before:], func(e journal.NetworkEvent) bool { return e.Verdict == "refused" })
	})
}
