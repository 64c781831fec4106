package integration

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/relay/proxytest"
)

// upstreamProgram asks for hosts in each way that there is, and prints what comes.
const upstreamProgram = `import socket,sys,urllib.request,urllib.error
def tell(what, f):
    try: print(what, f())
    except urllib.error.HTTPError as e: print(what, e.code, e.read().decode().strip())
    except Exception as e: print(what, type(e).__name__)
def tunnel(host, port):
    c=socket.create_connection((host,port),10); c.sendall(b"GET /tunnel HTTP/1.0\r\nHost: %s\r\n\r\n" % host.encode())
    r=b""
    while d:=c.recv(1000): r+=d
    return r.split(b"\r\n\r\n")[1].decode()
for host in sys.argv[1:]:
    tell("get "+host, lambda: urllib.request.urlopen("http://%s/plain"%host, timeout=10).read().decode())
    tell("connect "+host, lambda: tunnel(host, 443))
`

// TestUpstreamProxy: allowed hosts, which nobody here can resolve, are reached through the caller's proxy, and nothing else is; the caller's
// password is in no file, in no process's arguments or environment and not inside.
func TestUpstreamProxy(t *testing.T) {
	const user, password = "ada", "correct-horse-7"
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			fmt.Fprint(out, "HELLO ", r.Host, r.URL.Path, r.Header["Proxy-Authorization"])
		}))
		t.Cleanup(server.Close)
		at := server.Listener.Addr().String()
		for _, scheme := range []string{"http", "socks5"} {
			proxy := proxytest.Start(t, user+":"+password, proxytest.Local(at))
			secret := scheme + "://" + user + ":" + password + "@" + proxy.Address
			for i, upstream := range []string{"environment", scheme + "://" + proxy.Address} {
				id, before := fmt.Sprintf("%s%d", scheme, i), len(proxy.Asked())
				p := b.policy(object{"env": object{"allow": []string{"*"}}, "network": object{
					"mode": "allowlist", "allowed_hosts": []string{"api.out.test", "no.test", "local.internal"}, "upstream_proxy": upstream,
				}})
				env := []string{"HTTPS_PROXY=" + secret, "http_proxy=" + secret, "FTP_PROXY=" + secret, "no_proxy=direct.test"}
				b.call(call{env: env}, "create", "-p", p, "--owner", strconv.Itoa(os.Getpid()), id).exits(0).hides(password)
				a := b.call(call{env: env}, "exec", id, "--", "python3", "-c", upstreamProgram, "api.out.test", "no.test", "evil.test", "local.internal").exits(0)
				a.prints("get api.out.test HELLO api.out.test/plain[]", "connect api.out.test HELLO api.out.test/tunnel[]", "get evil.test 403 ", "connect evil.test gaierror",
					"get local.internal 502 connect local.internal:80: no such host")
				a.hides("get no.test HELLO", "connect no.test HELLO", "connect local.internal HELLO", "connect no.test secret")
				get := map[string]string{"http": "GET http://%s/plain", "socks5": "SOCKS %s:80"}[scheme]
				tunnel := map[string]string{"http": "CONNECT ", "socks5": "SOCKS "}[scheme]
				want := []string{fmt.Sprintf(get, "api.out.test"), tunnel + "api.out.test:443", fmt.Sprintf(get, "no.test"), tunnel + "no.test:443"}
				if asked := proxy.Asked()[before:]; !slices.Equal(asked, want) {
					t.Errorf("%s: the proxy was asked for %q", upstream, asked)
				}
				for _, shown := range []*answer{
					b.call(call{env: env}, "exec", id, "--", "sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; cat /proc/self/mountinfo"),
					b.run("state", id), b.run("state", "--json", id), b.run("events", "--json", id), b.call(call{env: env}, "explain", "-p", p, "api.out.test:443"),
				} {
					shown.exits(0).hides(password)
				}
				b.run("state", "--json", id).prints(`"upstream_proxy":["` + scheme + "://" + proxy.Address + `"]`)
				b.run("events", "--network", id).prints("allowed  ", "api.out.test:443", "through "+proxy.Address, "failed  ")
				b.call(call{env: env}, "explain", "-p", p, "api.out.test:443").exits(0).prints("the relay asks the proxy " + scheme + "://" + proxy.Address)
				b.keepsNothingOf(id, password)
				b.run("delete", id).exits(0)
			}
		}
	})
}

// keepsNothingOf looks for a word in the files of a sandbox, and in what its relay shows of itself.
func (b *box) keepsNothingOf(id, word string) {
	b.t.Helper()
	files, _ := filepath.Glob(filepath.Join(b.state, id, "*"))
	pid := b.relay(id)
	files = append(files, "/proc/"+pid+"/environ", "/proc/"+pid+"/cmdline")
	read := 0
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || !st.Mode().IsRegular() {
			continue
		}
		read++
		if strings.Contains(b.read(f), word) {
			b.t.Errorf("%s has the password", f)
		}
	}
	if read < 5 {
		b.t.Errorf("only %d files were there to look at: %q", read, files)
	}
}

// TestUpstreamWrong: what is wrong with the proxy the caller hears, without the password, and the program in few words.
func TestUpstreamWrong(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		proxy := proxytest.Start(b.t, "ada:right", proxytest.Local("127.0.0.1:1"))
		p := b.policy(object{"network": object{"mode": "allowlist", "allowed_hosts": []string{"api.out.test"}, "upstream_proxy": "environment"}})
		try := func(proxy string) *answer {
			return b.call(call{env: []string{"http_proxy=" + proxy, "https_proxy=" + proxy}}, "run", "-p", p, "--", "python3", "-c", upstreamProgram, "api.out.test")
		}
		try("http://ada:hunter2@" + proxy.Address).exits(0).prints("get api.out.test 502 connect api.out.test:80: the upstream proxy does not take the caller's credentials").hides("hunter2")
		closed, err := net.Listen("tcp4", "127.0.0.1:0")
		b.mustDo(err, closed.Close())
		try("http://ada:hunter2@" + closed.Addr().String()).exits(0).prints("get api.out.test 502 connect api.out.test:80: the upstream proxy cannot be reached").hides("hunter2")
		a := try("https://ada:hunter2@" + proxy.Address).exits(125).hides("hunter2")
		if !strings.Contains(a.stderr, "policy_invalid") || !strings.Contains(a.stderr, "HTTP_PROXY: parse proxy: its scheme is \"https\"") {
			b.t.Error(a)
		}
	})
}

// refusedProgram asks for hosts and leaves its last line of standard error open.
const refusedProgram = `import sys,urllib.request,urllib.error
def get(host):
    try: urllib.request.urlopen("http://%s/"%host, timeout=10)
    except urllib.error.HTTPError as e: pass
for h in sys.argv[1:]: get(h)
sys.stderr.write("mine"); sys.stderr.flush()
get("last.test")`

// TestNetworkExplain: a refusal is told on standard error, once a host, when the policy says so. The control is the same without.
func TestNetworkExplain(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		line := func(host string) string {
			return fmt.Sprintf("sandboxrun: network: %s:80 is not allowed: no rule of network.allowed_hosts names it; add %q\n", host, host)
		}
		args := []string{"--", "python3", "-c", refusedProgram, "evil.test", "evil.test", "EVIL.test.", "two.test"}
		for _, explain := range []bool{true, false} {
			p := b.policy(object{"network": object{"mode": "allowlist", "allowed_hosts": []string{"example.test"}, "explain": explain}})
			check := func(stderr string) {
				t.Helper()
				for _, host := range []string{"evil.test", "two.test", "last.test"} {
					if n := strings.Count(stderr, line(host)); n != map[bool]int{true: 1, false: 0}[explain] {
						t.Errorf("explain %v: %s is told %d times: %q", explain, host, n, stderr)
					}
				}
				if explain && strings.Contains(stderr, "minesandboxrun") || !strings.Contains(stderr, "mine") {
					t.Errorf("%q", stderr)
				}
			}
			check(b.run(append([]string{"run", "-p", p}, args...)...).exits(0).stderr)
			b.create("box", p)
			check(b.run(append([]string{"exec", "box"}, args...)...).exits(0).stderr)
			res := b.result("box", args[1:]...)
			check(res.Stderr)
			terminal := b.run(append([]string{"exec", "--tty", "box"}, args...)...).exits(0)
			check(strings.ReplaceAll(terminal.stdout, "\r\n", "\n"))
			b.run("exec", "box", "--", "true").exits(0).hides("network:")
			b.run("delete", "box").exits(0)
		}
	})
}
