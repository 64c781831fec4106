package container

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// A socket that was made in a sandbox's network namespace is ours: what connects to it inside is accepted outside, and
// outside nothing listens there.
func TestListenInside(t *testing.T) {
	sb := newSandbox(t)
	at := netip.MustParseAddrPort("127.0.0.1:7077")
	files, err := forkexec.Listen(sb.init, []forkexec.Endpoint{{Addr: at}, {Addr: netip.MustParseAddrPort("127.0.0.1:53"), UDP: true}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, f := range files {
		defer f.Close()
	}
	if c, err := net.Dial("tcp", at.String()); err == nil {
		_ = c.Close()
		t.Error("it listens outside too")
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("hello from outside\n"))
			_ = c.Close()
		}
	}()
	r := run(t, sb, Request{Args: []string{"bash", "-c", "cat </dev/tcp/127.0.0.1/7077"}})
	if r.ExitCode != 0 || !strings.Contains(r.Stdout, "hello from outside") {
		t.Errorf("%+v", r)
	}
	// An address that is not there is an error, and nothing is left open.
	_, err = forkexec.Listen(sb.init, []forkexec.Endpoint{{Addr: netip.MustParseAddrPort("192.0.2.1:80")}})
	if !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("got %v", err)
	}
	// Where it may be left out, as ::1 is where there is no IPv6 (claude-code#65003), the others are made.
	files, err = forkexec.Listen(sb.init, []forkexec.Endpoint{
		{Addr: netip.MustParseAddrPort("[2001:db8::1]:80"), Optional: true}, {Addr: netip.MustParseAddrPort("[::1]:7079")},
	})
	if err != nil || files[0] != nil || files[1] == nil {
		t.Fatalf("%v, %v", files, err)
	}
	files[1].Close()
}
