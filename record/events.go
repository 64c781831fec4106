package record

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"time"
)

// Kinds of events.
const (
	KindSession = "SANDBOX_SESSION"
	KindCheck   = "SANDBOX_CHECK"
	KindRun     = "SANDBOX_RUN"
	KindNetwork = "SANDBOX_NETWORK"
	KindEnd     = "SANDBOX_END"
)

// Event is an event of a record: *Session, *Check, *Run, *Network and *End.
type Event interface {
	kind() string
	redacted(r *Redactor) Event // a copy without the values of keys
}

// newEvent makes an empty event of a kind, or nil if the kind is unknown.
func newEvent(kind string) Event {
	switch kind {
	case KindSession:
		return &Session{}
	case KindCheck:
		return &Check{}
	case KindRun:
		return &Run{}
	case KindNetwork:
		return &Network{}
	case KindEnd:
		return &End{}
	}
	return nil
}

// Session describes the sandbox. It is written once, when the sandbox has been made.
type Session struct {
	Format       int               `json:"format"`         // Append sets it
	Sandbox      string            `json:"sandbox"`        // its id
	Name         string            `json:"name,omitempty"` // the policy's
	PolicyFile   string            `json:"policy_file"`
	PolicyDigest string            `json:"policy_digest"` // spec.Policy.Digest
	SpecDigest   string            `json:"spec_digest"`   // of the OCI configuration as JSON, in hex
	Kernel       string            `json:"kernel"`        // its release
	Backend      string            `json:"backend"`       // the library that made the sandbox
	Process      *Process          `json:"process"`       // process 1, as the kernel describes it
	Network      string            `json:"network"`       // the mode
	Mounts       []Mount           `json:"mounts"`
	Limits       []Limit           `json:"limits"`
	Weaker       []Weakness        `json:"weaker"` // protections that are weaker than the policy asks for
	Versions     map[string]string `json:"versions"`
	Pool         *Pool             `json:"pool,omitempty"` // where it was made before it was asked for
}

// Pool says when a sandbox that came from a pool was made. The record begins when it was claimed.
type Pool struct {
	Built time.Time `json:"built"` // when its checks had been made
}

// Mount is one mount of the view.
type Mount struct {
	Target   string `json:"target"`
	Source   string `json:"source,omitempty"` // on the host
	Kind     string `json:"kind"`             // such as "bind", "tmpfs", "mask"
	Writable bool   `json:"writable"`
}

// Limit is a limit and what enforces it.
type Limit struct {
	Name       string  `json:"limit"`
	Value      float64 `json:"value"` // seconds, bytes or a count
	EnforcedBy string  `json:"enforced_by"`
	Verified   bool    `json:"verified"` // the launcher has read it back
}

// Weakness is a protection that this machine gives only in part, with the reason.
type Weakness struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Results of a check.
const (
	Held      = "held"
	Broken    = "broken"
	NotTested = "not_tested"
)

// Check is the result of one check.
type Check struct {
	Name    string `json:"name"`
	Layer   string `json:"layer"`   // the mechanism that was tested
	What    string `json:"what"`    // the claim
	Control string `json:"control"` // what worked, or existed, outside; without it the check could not fail
	Result  string `json:"result"`
	Why     string `json:"why,omitempty"` // why it is broken or was not tested
}

// Run is one exec. It is written when the exec has ended.
type Run struct {
	Exec       string    `json:"exec"`
	ArgvSHA256 string    `json:"argv_sha256"` // ArgvDigest
	Cwd        string    `json:"cwd"`
	View       *View     `json:"view,omitempty"` // as in the result
	Outcome    string    `json:"outcome"`        // these four are as in the result
	Finding    *string   `json:"finding"`
	ExitCode   int       `json:"exit_code"`
	Signal     *string   `json:"signal"`
	Error      string    `json:"error,omitempty"` // an error's code
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended"`
	Usage      Usage     `json:"usage"`
	Stdout     Stream    `json:"stdout"`
	Stderr     Stream    `json:"stderr"`
	Limits     []Limit   `json:"limits"`
	Network    Traffic   `json:"network"`
}

// View is what an exec alone saw besides, or did not see. Paths are the host's.
type View struct {
	Name string   `json:"name,omitempty"`
	Read []string `json:"read,omitempty"`
	Bind []string `json:"bind,omitempty"`
	Deny []string `json:"deny,omitempty"`
}

// Usage is what an exec used, as in its result.
type Usage struct {
	WallMS       float64 `json:"wall_ms"`
	CPUMS        float64 `json:"cpu_ms"`
	MaxRSSBytes  int64   `json:"max_rss_bytes"`
	WrittenBytes int64   `json:"written_bytes"`
	Processes    int     `json:"processes"`
}

// Stream is the length and digest of a program's output. With redaction both are of the redacted output.
type Stream struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of the whole stream, in hex
}

// Traffic is the sum of an exec's network events.
type Traffic struct {
	Allowed  int   `json:"allowed"`
	Refused  int   `json:"refused"`
	Failed   int   `json:"failed"`
	BytesIn  int64 `json:"bytes_in"` // to the program
	BytesOut int64 `json:"bytes_out"`
}

// Network is one connection, allowed or refused.
type Network struct {
	Exec       string  `json:"exec,omitempty"` // if it is known
	Way        string  `json:"way"`            // such as "forward", "http", "socks", "direct", "dns"
	Host       string  `json:"host"`
	Port       int     `json:"port,omitempty"`
	Address    string  `json:"address,omitempty"` // the address of the connection
	Via        string  `json:"via,omitempty"`     // the upstream proxy that made the connection
	Rule       string  `json:"rule,omitempty"`    // the rule that allowed it
	Verdict    string  `json:"verdict"`           // "allowed", "refused" or "failed"
	Reason     string  `json:"reason,omitempty"`
	BytesIn    int64   `json:"bytes_in"` // to the program
	BytesOut   int64   `json:"bytes_out"`
	DurationMS float64 `json:"duration_ms"`
}

// Ways in which a sandbox ends.
const (
	Deleted    = "deleted"
	OwnerEnded = "owner_ended"
	Lost       = "lost"
)

// End is the end of a sandbox.
type End struct {
	Why string `json:"why"`
	// Execs is the number of the last exec. There should be a Run for each number from 1 on; if one is missing, the record has no
	// event of an exec.
	Execs    uint64   `json:"execs"`
	Released []string `json:"released"` // resources that were released
	// Leftovers are mount points on the host, below grants, that exist now and did not exist before the sandbox. Nil, here and in
	// Orphans, means that nobody looked.
	Leftovers []string `json:"litter"`
	Orphans   []Orphan `json:"orphans"` // leftover processes
}

// Orphan is a process that still exists after its sandbox.
type Orphan struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

func (*Session) kind() string { return KindSession }
func (*Check) kind() string   { return KindCheck }
func (*Run) kind() string     { return KindRun }
func (*Network) kind() string { return KindNetwork }
func (*End) kind() string     { return KindEnd }

func (e *Session) redacted(r *Redactor) Event {
	c := *e
	c.Name, c.PolicyFile = r.String(e.Name), r.String(e.PolicyFile)
	c.Mounts = slices.Clone(e.Mounts)
	for i, m := range c.Mounts {
		c.Mounts[i].Target, c.Mounts[i].Source = r.String(m.Target), r.String(m.Source)
	}
	c.Weaker = slices.Clone(e.Weaker)
	for i, w := range c.Weaker {
		c.Weaker[i] = Weakness{r.String(w.What), r.String(w.Reason)}
	}
	return &c
}

func (e *Check) redacted(r *Redactor) Event {
	c := *e
	c.What, c.Control, c.Why = r.String(e.What), r.String(e.Control), r.String(e.Why)
	return &c
}

func (e *Run) redacted(r *Redactor) Event {
	c := *e
	c.Cwd, c.Error = r.String(e.Cwd), r.String(e.Error)
	return &c
}

func (e *Network) redacted(r *Redactor) Event {
	c := *e
	c.Host, c.Rule, c.Reason = r.String(e.Host), r.String(e.Rule), r.String(e.Reason)
	return &c
}

func (e *End) redacted(r *Redactor) Event {
	c := *e
	c.Released, c.Leftovers = r.Strings(e.Released), r.Strings(e.Leftovers)
	c.Orphans = slices.Clone(e.Orphans)
	for i, o := range c.Orphans {
		c.Orphans[i].Command = r.String(o.Command)
	}
	return &c
}

// Meter measures a stream that is written to it. It never fails.
type Meter struct {
	bytes int64
	sum   hash.Hash
}

// NewMeter makes a Meter of an empty stream.
func NewMeter() *Meter { return &Meter{sum: sha256.New()} }

// Write counts and hashes; it never fails.
func (m *Meter) Write(p []byte) (int, error) {
	m.bytes += int64(len(p))
	return m.sum.Write(p)
}

// Stream is the length and digest of the bytes written so far.
func (m *Meter) Stream() Stream { return Stream{m.bytes, hex.EncodeToString(m.sum.Sum(nil))} }
