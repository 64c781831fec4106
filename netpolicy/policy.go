// Package netpolicy decides whom a sandboxed program may talk to. It is pure: it never resolves a name or dials.
package netpolicy

// Modes of the network.
const (
	Isolated  = "isolated"  // loopback only
	Allowlist = "allowlist" // the allowed hosts, through the relay
	Public    = "public"    // any public host, through the relay
	Host      = "host"      // the host's own network
)

// Policy is the [network] section.
type Policy struct {
	Mode         string
	Ports        []Port
	Services     []string // URLs
	EnvURLs      bool
	AllowedHosts []string // host[:port]
	AllowPrivate []string
	Transparent  bool
	From         string // where the policy says so, ready to print
}

// Port is a forwarded loopback port: connections to it inside end at Outside.
type Port struct {
	Inside  int    // 1 to 65535
	Outside string // "127.0.0.1:9001" or "unix:/run/pg.sock"
	From    string
}
