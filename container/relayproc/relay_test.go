package relayproc

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// No two sockets of a relay's may want the same port of overlapping addresses: then one of them would need SO_REUSEPORT.
func TestRelayListeners(t *testing.T) {
	listener := func(kind, at, target string) spec.Listener {
		return spec.Listener{Kind: kind, Listen: netip.MustParseAddrPort(at), Target: target}
	}
	_, listeners := relayListeners([]spec.Listener{
		listener(spec.ListenForward, "127.0.0.1:443", "127.0.0.1:9"), listener(spec.ListenForward, "[::1]:443", "127.0.0.1:9"),
		listener(spec.ListenForward, "127.0.0.2:443", "unix:/s"), listener(spec.ListenForward, "127.0.0.1:443", "127.0.0.1:8"),
		listener(spec.ListenForward, "127.0.0.1:8000", "127.0.0.1:7"), listener(spec.ListenProxy, "127.0.0.1:3128", ""),
		listener(spec.ListenDNS, "127.0.0.53:53", ""), listener(spec.ListenDNSTCP, "127.0.0.53:53", ""),
		listener(spec.ListenDirect, "0.0.0.0:53", ""), listener(spec.ListenDirect, "0.0.0.0:443", ""),
	})
	var got []string
	for _, l := range listeners {
		text := fmt.Sprintf("%s:%d%s", l.Kind, l.Port, l.Target)
		var at []string
		for a, o := range l.At {
			at = append(at, fmt.Sprintf("+%s=%s%s", a, o.Kind, o.Target))
		}
		slices.Sort(at)
		got = append(got, text+strings.Join(at, ""))
	}
	want := "forward:443127.0.0.1:9 forward:8000127.0.0.1:7 proxy:3128 dns:53 direct:53+127.0.0.53=dns-tcp " +
		"direct:443+127.0.0.1=forward127.0.0.1:9+127.0.0.2=forwardunix:/s"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// The ports of a relay that has stopped are nobody else's while its sandbox lives: connections are refused.
func TestKeepPorts(t *testing.T) {
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(free.Addr().String())
	_ = free.Close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) // as listen.c makes it: Go would set SO_REUSEADDR
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}), unix.Listen(fd, 9)); err != nil {
		t.Fatal(err)
	}
	sandbox := exec.Command("sleep", "60")
	if err := sandbox.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(sandbox.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() {
		keepPorts([]int{fd}, lock, os.NewFile(uintptr(pidfd), "sandbox"))
		close(ended)
	}()
	refused := func() bool {
		c, err := net.Dial("tcp4", at.String())
		if err == nil {
			_ = c.Close()
		}
		return errors.Is(err, unix.ECONNREFUSED)
	}
	for tries := 0; !refused(); tries++ {
		if tries == 200 {
			t.Fatal("connections are not refused")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if l, err := net.Listen("tcp4", at.String()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("listen on a port that is kept: %v, %v", l, err)
	}
	select {
	case <-ended:
		t.Error("it has not waited")
	default:
	}
	_ = sandbox.Process.Kill()
	_ = sandbox.Wait()
	<-ended
}
