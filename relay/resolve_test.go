package relay

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// resolveEnv makes TestResolveChild the body of a child in namespaces of its own.
const resolveEnv = "RELAY_TEST_RESOLVE"

func TestResolveIsAbsolute(t *testing.T) {
	dir := t.TempDir()
	conf := dir + "/resolv.conf"
	check(t, os.WriteFile(conf, []byte("nameserver 127.0.0.1\nsearch search.test\noptions ndots:5 timeout:1 attempts:1\n"), 0o644))
	mount := `mount --bind "$1" "$(readlink -f /etc/resolv.conf)" && ip link set lo up && shift && exec "$@"`
	cmd := exec.Command("sh", "-c", mount, "sh", conf, os.Args[0], "-test.run=^TestResolveChild$", "-test.v")
	cmd.Env = append(os.Environ(), resolveEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestResolveChild is the child of TestResolveIsAbsolute. Its name server knows names below the search domain alone.
func TestResolveChild(t *testing.T) {
	if os.Getenv(resolveEnv) == "" {
		t.Skip("only as a child of TestResolveIsAbsolute")
	}
	server, err := net.ListenPacket("udp", "127.0.0.1:53")
	check(t, err)
	defer pipe.Shut(server)
	go func() {
		buf := make([]byte, maxQuery)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var p dnsmessage.Parser
			h, err := p.Start(buf[:n])
			q, err2 := p.Question()
			if err != nil || err2 != nil {
				continue
			}
			answer := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
			if answer.RCode = dnsmessage.RCodeNameError; strings.HasSuffix(q.Name.String(), ".search.test.") {
				answer.RCode = dnsmessage.RCodeSuccess
				answer.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
					Body:   &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}},
				}}
			}
			packed, _ := answer.Pack()
			_, _ = server.WriteTo(packed, from)
		}
	}()
	names := []string{"gone.example.test", "single", strings.Repeat("a.", 100) + "test"}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range names {
		if found, err := resolve(ctx, name); err == nil {
			t.Errorf("%s has become %v", name, found)
		}
		// The control: as programs resolve it.
		if found, err := (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip4", name); err != nil {
			t.Errorf("%s: the search domain is not used at all: %v, %v", name, found, err)
		}
	}
	if found, err := resolve(ctx, "localhost"); err != nil || !slices.ContainsFunc(found, func(a netip.Addr) bool { return a.Unmap().IsLoopback() }) {
		t.Errorf("localhost of /etc/hosts: %v, %v", found, err)
	}
}
