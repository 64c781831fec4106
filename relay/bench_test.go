package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// helper is the variable that makes this test binary a server or a relay in a process of its own, as in reality.
const helper = "SANDBOXRUN_RELAY_HELPER"

// TestHelper is that process: it prints its address, and ends with its standard input.
func TestHelper(t *testing.T) {
	role, arg, _ := strings.Cut(os.Getenv(helper), " ")
	var addr string
	switch role {
	case "":
		t.Skip("only for the benchmarks")
	case "server":
		addr = tcpServer(t, benchServer)
	case "forward":
		files, addrs := sockets(t, []Listener{{Kind: Forward}})
		addr = addrs[0]
		go func() {
			cfg := Config{Listeners: []Listener{{Kind: Forward, Port: 1, Target: arg}}}
			cfg.Policy.Mode = netpolicy.Isolated
			fmt.Println(Serve(context.Background(), cfg, files, nil))
		}()
	case "proxy":
		files, addrs := sockets(t, []Listener{{Kind: Proxy}})
		addr = addrs[0]
		cfg := Config{Listeners: []Listener{{Kind: Proxy}}}
		cfg.Policy.Mode, cfg.Policy.AllowedHosts, cfg.Policy.AllowPrivate = netpolicy.Allowlist, []string{arg}, []string{"127.0.0.1"}
		go func() { fmt.Println(Serve(context.Background(), cfg, files, nil)) }()
	}
	fmt.Println("at " + addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// benchServer answers "GET" requests of a kept connection, and sends or takes 64 MiB.
func benchServer(c *net.TCPConn) {
	r := bufio.NewReader(c)
	block := make([]byte, 1<<20)
	for {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			return
		case line == "down\n":
			for range 64 {
				_, _ = c.Write(block)
			}
			return
		case line == "\r\n":
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nServer: bench\r\n\r\nHello, world")
		}
	}
}

func startHelper(b *testing.B, role string) string {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelper$", "-test.v")
	cmd.Env = append(os.Environ(), helper+"="+role)
	in, err := cmd.StdinPipe()
	check(b, err)
	out, err := cmd.StdoutPipe()
	check(b, err)
	check(b, cmd.Start())
	b.Cleanup(func() { pipe.Shut(in); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, addr, ok := strings.Cut(lines.Text(), "at 127."); ok {
			return "127." + addr
		}
	}
	b.Fatal("it does not start")
	return ""
}

// startSocat gives socat's way to a server: one process for each connection, or two, as in sandboxes that put it on both sides
// of a Unix socket.
func startSocat(b *testing.B, hops int, server string) string {
	b.Helper()
	if _, err := exec.LookPath("socat"); err != nil {
		b.Skip(err)
	}
	start := func(from, to string) {
		cmd := exec.Command("socat", from, to)
		check(b, cmd.Start())
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	check(b, err)
	addr := ln.Addr().String()
	check(b, ln.Close())
	listen := "TCP-LISTEN:" + strconv.Itoa(port(addr)) + ",bind=127.0.0.1,fork,reuseaddr,backlog=512"
	if hops == 2 {
		path := filepath.Join(b.TempDir(), "s")
		start("UNIX-LISTEN:"+path+",fork,backlog=512", "TCP:"+server)
		start(listen, "UNIX-CONNECT:"+path)
	} else {
		start(listen, "TCP:"+server)
	}
	for range 100 {
		if c, err := net.Dial("tcp4", addr); err == nil {
			pipe.Shut(c)
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return addr
}

// ways are the ways to a server that are compared.
func ways(b *testing.B, bench func(b *testing.B, addr string)) {
	b.Helper()
	server := startHelper(b, "server")
	b.Run("direct", func(b *testing.B) { bench(b, server) })
	b.Run("forward", func(b *testing.B) { bench(b, startHelper(b, "forward "+server)) })
	b.Run("socat1", func(b *testing.B) { bench(b, startSocat(b, 1, server)) })
	b.Run("socat2", func(b *testing.B) { bench(b, startSocat(b, 2, server)) })
}

func BenchmarkKeepAlive(b *testing.B) {
	for _, conns := range []int{1, 64} {
		b.Run(fmt.Sprint("c=", conns), func(b *testing.B) {
			ways(b, func(b *testing.B, addr string) {
				b.Helper()
				keepAlive(b, addr, conns, "GET / HTTP/1.1\r\nHost: "+addr+"\r\nUser-Agent: bench\r\n\r\n")
			})
		})
	}
}

// BenchmarkProxy asks through the HTTP proxy, each request in absolute form and judged.
func BenchmarkProxy(b *testing.B) {
	server := startHelper(b, "server")
	proxy := startHelper(b, "proxy "+server)
	for _, conns := range []int{1, 64} {
		b.Run(fmt.Sprint("c=", conns), func(b *testing.B) {
			keepAlive(b, proxy, conns, "GET http://"+server+"/ HTTP/1.1\r\nHost: "+server+"\r\nUser-Agent: bench\r\n\r\n")
		})
	}
}

func keepAlive(b *testing.B, addr string, conns int, request string) {
	b.Helper()
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range conns {
		wg.Go(func() {
			c, err := net.Dial("tcp4", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer pipe.Shut(c)
			buf := make([]byte, 4096)
			for range (b.N + i) / conns {
				_, _ = io.WriteString(c, request)
				if n, err := c.Read(buf); err != nil || !strings.HasSuffix(string(buf[:n]), "Hello, world") {
					b.Errorf("%q, %v", buf[:n], err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

func BenchmarkNewConnection(b *testing.B) {
	ways(b, func(b *testing.B, addr string) {
		b.Helper()
		for range b.N {
			c, err := net.Dial("tcp4", addr)
			check(b, err)
			_, _ = io.WriteString(c, "\r\n")
			_, err = c.Read(make([]byte, 4096))
			check(b, err)
			pipe.Shut(c)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "conn/s")
	})
}

func BenchmarkBulk(b *testing.B) {
	ways(b, func(b *testing.B, addr string) {
		b.Helper()
		b.SetBytes(64 << 20)
		buf := make([]byte, 1<<20)
		for range b.N {
			c, err := net.Dial("tcp4", addr)
			check(b, err)
			_, _ = io.WriteString(c, "down\n")
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf)
			if n != 64<<20 || err != nil {
				b.Fatalf("%d bytes, %v", n, err)
			}
			pipe.Shut(c)
		}
	})
}
