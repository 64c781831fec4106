package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/result"
)

// nested is a program inside that has a sandbox made beside its own, by a server whose socket is forwarded to it.
const nested = `
import json, socket, sys
s = socket.create_connection(("127.0.0.1", 7000))
f = s.makefile("rw")
n = 0
def ask(method, **params):
    global n
    n += 1
    f.write(json.dumps({"jsonrpc": "2.0", "id": n, "method": method, "params": params}) + "\n")
    f.flush()
    a = json.loads(f.readline())
    return a.get("result") or a["error"]
work, secret = sys.argv[1:]
policy = {"version": 1, "enforce": "required", "workspace": {"source": work, "path": "/w"}, "limits": {"wall": "20s"}}
made = ask("create", policy=policy)
box = made["id"]
r = ask("exec", sandbox=box, argv=["sh", "-c", "cat in; cat key 2>&1; ls /proc | grep -c '^[0-9]'; cat /proc/1/comm 2>&1; echo out >made"], put={"in": "typed "}, collect=["made"])
policy["files"] = {"read": [secret]}
refused = ask("create", policy=policy)
print(json.dumps({"isolated": made["isolated"], "result": r, "refused": refused, "list": len(ask("list")["sandboxes"])}))
`

// TestNestedSandboxes: sandboxes of a program inside are as strict as any, and beside its own. They end with its connection.
func TestNestedSandboxes(t *testing.T) {
	needProgram(t, "python3")
	flavours(t, func(b *box) {
		t := b.t
		work, secret := b.mkdir("work"), b.file("secret", "of the host")
		b.file("work/key", "the key")
		before := b.census0(b.policy(tmpfsPolicy()))
		path, stop := b.socket("--ceiling", b.policy(object{
			"files": object{"write": []string{work}, "deny": []string{work + "/key"}}, "limits": object{"memory": "512M", "wall": "30s"},
		}))
		inside := b.policy(object{
			"files": object{"read": []string{work}, "deny": []string{work + "/key"}}, "network": object{"ports": []string{"7000=unix:" + path}},
		})
		a := b.python(inside, nested, work, secret).exits(0)
		var told struct {
			Isolated bool
			Result   result.Result
			Refused  struct {
				Message string
				Data    result.Error
			}
			List int
		}
		if err := json.Unmarshal([]byte(a.stdout), &told); err != nil {
			t.Fatalf("%v: %v", err, a)
		}
		r := told.Result
		if !told.Isolated || r.Outcome != result.Exited || !strings.HasPrefix(r.Stdout, "typed ") || strings.Contains(r.Stdout, "the key") || len(r.Collected) != 1 || r.Collected[0].Text != "out\n" {
			t.Errorf("the nested program: %v", a)
		}
		if told.Refused.Data.Code != "beyond_ceiling" || !strings.Contains(told.Refused.Message, fmt.Sprintf("files.read = %q", secret)) || told.List != 1 {
			t.Errorf("beyond the ceiling: %v", a)
		}
		limits := map[string]float64{}
		for _, l := range r.Limits {
			limits[l.Name] = l.Value
		}
		same(t, "wall", 20, limits["wall"])
		same(t, "memory", 512<<20, limits["memory"])
		same(t, "made outside", "out\n", b.read(work+"/made"))
		stop()
		same(t, "sandboxes left", "", strings.Join(b.ids(), " "))
		b.settles("nested sandboxes", before)
	})
}

// hostileRequest is what a program may send to a server that it was given. Where sandbox is empty the request makes one.
type hostileRequest struct {
	what, method string
	params       object
	code         string // beyond_ceiling unless it is given
}

func (b *box) hostileRequests(work, secret string) []hostileRequest {
	with := func(more object) object {
		p := object{"version": 1, "workspace": object{"source": "tmpfs", "path": "/w"}}
		maps.Copy(p, more)
		return object{"policy": p}
	}
	of := func(more object) object {
		more["sandbox"] = "box"
		return more
	}
	policy := b.policy(tmpfsPolicy())
	return []hostileRequest{
		{"a file of the host", "create", with(object{"files": object{"read": []string{secret}}}), ""},
		{"the same by a parameter", "create", object{"read": []string{secret}}, ""},
		{"the same under another name", "create", with(object{"bind": []object{{"source": secret, "target": "/x"}}}), ""},
		{"the same by a link", "create", with(object{"files": object{"read": []string{work + "/link"}}}), ""},
		{"what is above the ceiling's", "create", with(object{"files": object{"read": []string{b.dir}}}), ""},
		{"to write what is to be read", "create", with(object{"files": object{"write": []string{b.path("shown")}}}), ""},
		{"the whole host", "create", with(object{"files": object{"base": "host"}}), ""},
		{"a variable of the server", "create", with(object{"env": object{"allow": []string{"SERVER_*"}}}), ""},
		{"a path by a variable of the server", "create", with(object{"files": object{"read": []string{"$TMPDIR"}}}), "policy_invalid"},
		{"a path by the server's home", "create", with(object{"files": object{"read": []string{"~"}}}), "policy_invalid"},
		{"less protection", "create", with(object{"enforce": "best_effort"}), ""},
		{"the host's network", "create", with(object{"network": object{"mode": "host"}}), ""},
		{"a port of the host", "create", with(object{"network": object{"ports": []int{22}}}), ""},
		{"a socket of the host", "create", with(object{"network": object{"ports": []string{"99=unix:" + secret}}}), ""},
		{"a port by a variable", "create", with(object{"env": object{"set": object{"U": "http://127.0.0.1:22"}}}), ""},
		{"a proxy of its own", "create", with(object{"network": object{"mode": "isolated", "upstream_proxy": "http://127.0.0.1:22"}}), ""},
		{"more memory", "create", with(object{"limits": object{"memory": "2G"}}), ""},
		{"output as it is", "create", with(object{"env": object{"redact": false}}), ""},
		{"a policy of the host", "create", object{"policy": policy}, ""},
		{"to extend a file", "create", with(object{"extends": policy}), "policy_invalid"},
		{"a name of its own", "create", object{"id": "mine", "policy": tmpfsPolicy()}, ""},
		{"a record on the host", "create", object{"record": b.path("record"), "policy": tmpfsPolicy()}, ""},
		{"the same in other letters", "create", object{"RECORD": b.path("record2"), "policy": tmpfsPolicy()}, ""},
		{"to put a file of the host", "put", of(object{"files": object{"x": object{"file": secret}}}), ""},
		{"the same with an exec", "exec", of(object{"argv": []string{"true"}, "put": object{"x": object{"file": secret}}}), ""},
		{"to get into the host", "get", of(object{"path": ".", "to": b.path("got")}), ""},
		{"the same with an exec", "exec", of(object{"argv": []string{"true"}, "collect": []object{{"path": ".", "to": b.path("collected")}}}), ""},
		{"to fill the server's memory", "get", of(object{"path": ".", "max": "1T"}), "file_too_large"},
		{"to explain the host", "explain", object{"policy": tmpfsPolicy(), "ask": []string{secret}}, ""},
	}
}

// TestCeilingAttacks: what a program can ask a server for. Each request is done by a server without a ceiling.
func TestCeilingAttacks(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		work, secret := b.mkdir("work"), b.file("secret", "of the host")
		b.mkdir("shown")
		b.mkdir("record")
		b.mkdir("record2")
		b.link("work/link", secret)
		ceiling := object{"files": object{"write": []string{work}, "read": []string{b.path("shown")}}, "limits": object{"memory": "512M", "wall": "30s", "pids": 64}}
		path, stop := b.socket("--ceiling", b.policy(ceiling), "--sandboxes", "3")
		plain, stopPlain := b.socket()
		s, control := b.dial(path), b.dial(plain)
		control.create("box")
		var made struct{ ID string }
		s.does("create", object{"policy": tmpfsPolicy()}, &made)
		for _, h := range b.hostileRequests(work, secret) {
			code := h.code
			if code == "" {
				code = "beyond_ceiling"
			}
			_, c := control.ask(h.method, h.params)
			a := control.wait(c)
			if a.Error != nil && h.code != "file_too_large" { // nobody may do that
				t.Errorf("control: %s: %+v", h.what, *a.Error)
			} else if h.method == "create" {
				var one struct{ ID string }
				if err := json.Unmarshal(a.Result, &one); err != nil {
					t.Error(err)
				}
				control.does("delete", object{"sandbox": one.ID}, nil)
			}
			if h.params["sandbox"] != nil {
				h.params["sandbox"] = made.ID
			}
			_, c = s.ask(h.method, h.params)
			if a := s.wait(c); a.Error == nil || a.Error.Data.Code != code {
				t.Errorf("%s: %s %+v", h.what, a.Result, a.Error)
			}
		}
		s.refuses("doctor", object{}, "beyond_ceiling", "doctor")
		// An exec's own limits only narrow.
		r := s.exec(made.ID, object{"timeout": 3600, "memory": "8G", "pids": 100000}, "true")
		for _, l := range r.Limits {
			if most := map[string]float64{"wall": 30, "memory": 512 << 20, "pids": 64}[l.Name]; most > 0 && l.Value != most {
				t.Errorf("limit %s of an exec is %v", l.Name, l.Value)
			}
		}
		// A link of the host is no answer, and sandboxes of others are none at all.
		var p struct{ Shown bool }
		s.does("path", object{"sandbox": made.ID, "host": work + "/link"}, &p)
		same(t, "shown", false, p.Shown)
		other := b.dial(path)
		other.refuses("exec", object{"sandbox": made.ID, "argv": []string{"true"}}, "not_found", "")
		other.refuses("delete", object{"sandbox": made.ID}, "not_found", "")
		var l struct{ Sandboxes []container.Info }
		other.does("list", object{}, &l)
		same(t, "sandboxes of others", 0, len(l.Sandboxes))
		// All clients together have so many.
		for range 2 {
			other.does("create", object{"policy": tmpfsPolicy()}, nil)
		}
		other.refuses("create", object{"policy": tmpfsPolicy()}, "limit_reached", "3 sandboxes")
		other.end()
		for _, c := range []*serving{s, control} {
			c.end()
		}
		stop()
		stopPlain()
		same(t, "sandboxes left", "", strings.Join(b.ids(), " "))
	})
}

// TestCeilingRaces: a program moves a link to and fro where a client's policy has a directory. What the link leads to is never shown.
func TestCeilingRaces(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		work, secret := b.mkdir("work"), b.mkdir("secret")
		b.file("secret/key", "of the host")
		b.mkdir("work", "dir")
		b.link("work/link", secret)
		path, stop := b.socket("--ceiling", b.policy(object{"files": object{"write": []string{work}}}))
		plain, stopPlain := b.socket()
		done, swapped := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			for ; ; n++ {
				select {
				case <-done:
					swapped <- n
					return
				default:
				}
				if unix.Renameat2(unix.AT_FDCWD, work+"/dir", unix.AT_FDCWD, work+"/link", unix.RENAME_EXCHANGE) != nil {
					runtime.Gosched()
				}
			}
		}()
		seen := func(s *serving) int {
			n := 0
			for range 40 {
				_, c := s.ask("create", object{"policy": object{"version": 1, "bind": []object{{"source": work + "/dir", "target": "/x"}}}})
				a := s.wait(c)
				if a.Error != nil {
					continue
				}
				var one struct{ ID string }
				if err := json.Unmarshal(a.Result, &one); err != nil {
					t.Fatal(err)
				}
				if s.exec(one.ID, nil, "cat", "/x/key").ExitCode == 0 {
					n++
				}
				s.does("delete", object{"sandbox": one.ID}, nil)
			}
			return n
		}
		s, control := b.dial(path), b.dial(plain)
		same(t, "seen of the host", 0, seen(s))
		if seen(control) == 0 {
			t.Error("control: a server without a ceiling never follows the link")
		}
		close(done)
		if n := <-swapped; n < 100 {
			t.Errorf("the link was moved %d times", n)
		}
		s.end()
		control.end()
		stop()
		stopPlain()
	})
}
