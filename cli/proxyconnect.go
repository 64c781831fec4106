package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/fault"
)

// proxyConnectCommand is for programs inside, mostly ssh. It does what nc -X connect does, for images without nc.
func proxyConnectCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "proxy-connect", Usage: "connect standard input and output to a host through the proxy", ArgsUsage: "HOST PORT",
		Description: "For programs in a sandbox: ssh -o ProxyCommand='/.sandboxrun proxy-connect %h %p' HOST. The proxy is that of\n" +
			"HTTPS_PROXY.",
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return fault.Usage("name a host and a port", flags.Help(c))
			}
			return proxyConnect(p, net.JoinHostPort(strings.Trim(c.Args().Get(0), "[]"), c.Args().Get(1)))
		},
	}
}

func proxyConnect(p *caller.Caller, target string) error {
	text := cmp.Or(p.Env["HTTPS_PROXY"], p.Env["https_proxy"])
	proxy, err := url.Parse(text)
	if err != nil || proxy.Scheme != "http" || proxy.Host == "" {
		return fault.Usage(fmt.Sprintf("HTTPS_PROXY %q is no http:// proxy", text), "this command is for programs in a sandbox")
	}
	const patience = 30 * time.Second
	conn, err := net.DialTimeout("tcp", proxy.Host, patience)
	if err != nil {
		return fmt.Errorf("connect to proxy: %w", err)
	}
	defer conn.Close() //nolint:errcheck // no error matters any more
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return fmt.Errorf("ask proxy: %w", err)
	}
	in := textproto.NewReader(bufio.NewReader(conn))
	answer, err := in.ReadLine()
	if err == nil {
		_, err = in.ReadMIMEHeader()
	}
	if err != nil {
		return fmt.Errorf("read answer of proxy: %w", err)
	}
	if _, status, _ := strings.Cut(answer, " "); !strings.HasPrefix(status, "200 ") {
		why, _ := io.ReadAll(io.LimitReader(in.R, 4<<10)) // without the body the status is enough
		return fmt.Errorf("connect to %s: %s", target, cmp.Or(strings.TrimSpace(string(why)), status))
	}
	go func() {
		_, _ = io.Copy(conn, p.In)
		if t, ok := conn.(*net.TCPConn); ok {
			_ = t.CloseWrite() // the other direction stays open
		}
	}()
	if _, err := io.Copy(p.Out, in.R); err != nil && !errors.Is(err, net.ErrClosed) {
		return caller.UnlessClosed(err)
	}
	return nil
}
