// Package netpolicy decides which hosts a program may connect to. It is pure: it resolves no name and makes no connection. The relay
// asks it for every connection, and explain asks it the same questions. It imports no other package of this module.
package netpolicy

// Modes of the network.
const (
	Isolated  = "isolated"  // loopback only
	Allowlist = "allowlist" // the allowed hosts, through the relay
	Public    = "public"    // any public host, through the relay
	Host      = "host"      // the host's own network
)

// Modes lists the modes, the strictest first.
func Modes() []string { return []string{Isolated, Allowlist, Public, Host} }

// Policy is the [network] section.
type Policy struct {
	Mode         string
	Ports        []Port
	Services     []string // URLs, as ParseService takes them
	EnvURLs      bool     // loopback URLs in the passed environment are forwarded
	AllowedHosts []string // as Pattern.String writes them
	AllowPrivate []string // the same, never with a port
	Transparent  bool     // allowed hosts also work for programs that ignore proxy variables

	UpstreamProxy string   `json:",omitempty"` // a URL as ParseProxy reads it, without a password; FromEnvironment; or ""
	NoProxy       []string `json:",omitempty"` // as CheckNoProxy takes them
	Explain       bool     `json:",omitempty"` // the program gets a message for each host that was refused

	From string // where the policy says so, ready to print; "default" when it does not
}

// Port is a forwarded loopback port: connections to it inside end at Outside.
type Port struct {
	Inside  int    // 1 to 65535
	Outside string // "127.0.0.1:9001" or "unix:/run/pg.sock"
	From    string
}
