package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/explain"
	"github.com/sandboxrun/sandboxrun/cli/inspect"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/doctor"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rpc"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// session is what one client has.
type session struct {
	*server

	making sync.Mutex // of its creates one waits for those of other clients, so each client has its turn
	mu     sync.Mutex
	boxes  map[string]*served
	execs  map[string]*servedExec // by the id of their request
}

// served is a sandbox of a client's.
type served struct {
	sb   *container.Sandbox
	use  sync.RWMutex // held while something is done in it
	gone bool
}

func newSession(s *server) *session {
	return &session{server: s, boxes: map[string]*served{}, execs: map[string]*servedExec{}}
}

// end removes the client's sandboxes. Its requests have returned.
func (n *session) end() {
	for _, b := range n.boxes {
		if err := n.removeBox(b); err != nil {
			n.Warn(err.Error())
		}
	}
}

func (n *session) removeBox(b *served) error {
	b.use.Lock()
	defer b.use.Unlock()
	if b.gone {
		return nil
	}
	b.gone = true
	err := b.sb.Delete(nil)
	b.sb.Close()
	n.drop()
	return err
}

type method func(n *session, ctx context.Context, r *rpc.Request) (any, error)

func methods() map[string]method {
	return map[string]method{
		"create": (*session).create, "delete": (*session).remove, "list": (*session).list,
		"exec": (*session).exec, "exec/stdin": (*session).stdin, "exec/resize": (*session).resize, "cancel": (*session).cancel,
		"put": (*session).put, "get": (*session).get, "path": (*session).path,
		"explain": (*session).explain, "doctor": (*session).doctor,
	}
}

// Call answers a request.
func (n *session) Call(ctx context.Context, r *rpc.Request) (any, error) {
	m := methods()[r.Method]
	if m == nil {
		return nil, &rpc.Error{Code: rpc.CodeMethod, Message: fmt.Sprintf("there is no method %q", r.Method)}
	}
	if err := n.admits(r); err != nil {
		return nil, rpcError(err)
	}
	result, err := m(n, ctx, r)
	if err != nil {
		return nil, rpcError(err)
	}
	return result, nil
}

// Urgent requests are those that an exec waits for, or that end one.
func (n *session) Urgent(method string) bool {
	return method == "exec/stdin" || method == "exec/resize" || method == "cancel"
}

func strictJSON(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// policyParams are the ways to say what a sandbox shows, as on the command line.
type policyParams struct {
	Policy     json.RawMessage `json:"policy"`      // the name of a preset, the path of a file, or the policy itself as an object
	PolicyText string          `json:"policy_text"` // the policy itself, TOML or JSON
	Read       []string        `json:"read"`
	Write      []string        `json:"write"`
	Bind       []string        `json:"bind"` // SOURCE:TARGET[:rw]
	Deny       []string        `json:"deny"`
	AllowHost  []string        `json:"allow_host"`
	Cwd        string          `json:"cwd"`
}

// flagsOf are lists of values as if they had been flags of a command line, in the order of their names.
func flagsOf(lists map[string][]string) plan.Grants {
	var flags plan.Grants
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		for _, v := range lists[name] {
			flags = append(flags, policy.Flag{Name: name, Value: v})
		}
	}
	return flags
}

// source is the policy that the parameters name.
func (q *policyParams) source() (plan.Source, error) {
	var from plan.Source
	from.Grants = flagsOf(map[string][]string{"read": q.Read, "write": q.Write, "bind": q.Bind, "deny": q.Deny, "allow-host": q.AllowHost})
	if q.Cwd != "" {
		from.Grants = append(from.Grants, policy.Flag{Name: "cwd", Value: q.Cwd})
	}
	switch {
	case q.PolicyText != "" && len(q.Policy) > 0:
		return from, badParams("policy and policy_text exclude each other")
	case q.PolicyText != "":
		from.Inline = []byte(q.PolicyText)
	case len(q.Policy) > 0 && q.Policy[0] == '{':
		from.Inline = q.Policy
	case len(q.Policy) > 0:
		if err := json.Unmarshal(q.Policy, &from.Name); err != nil || from.Name == "-" {
			return from, badParams("policy is a name, a path or an object")
		}
	}
	return from, nil
}

// collecting is the server's caller with a list for the warnings of one request.
func (s *server) collecting() (*caller.Caller, *[]string) {
	one, warnings := *s.Caller, []string{}
	one.Warnings = &warnings
	return &one, &warnings
}

// inSandbox does something in a sandbox of the client's, which meanwhile is not removed.
func (n *session) inSandbox(id string, do func(b *served) (any, error)) (any, error) {
	n.mu.Lock()
	b := n.boxes[id]
	n.mu.Unlock()
	if b != nil {
		b.use.RLock()
		defer b.use.RUnlock()
	}
	if b == nil || b.gone {
		return nil, fault.New(fault.NotFound, "it must have been made by create on this connection", "there is no sandbox %q", id)
	}
	return do(b)
}

type sandboxParams struct {
	Sandbox string `json:"sandbox"`
}

// remove ends the sandbox' execs first: they hold it.
func (n *session) remove(_ context.Context, r *rpc.Request) (any, error) {
	q, err := params[sandboxParams](r)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	b := n.boxes[q.Sandbox]
	for _, x := range n.execs {
		if x.sandbox == q.Sandbox {
			x.end()
		}
	}
	delete(n.boxes, q.Sandbox)
	n.mu.Unlock()
	if b == nil {
		return n.inSandbox(q.Sandbox, nil)
	}
	return nil, n.removeBox(b)
}

func (n *session) list(_ context.Context, _ *rpc.Request) (any, error) {
	all, err := n.store.List()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	own := []container.Info{}
	for _, i := range all {
		if n.boxes[i.ID] != nil {
			own = append(own, i)
		}
	}
	return map[string]any{"sandboxes": own}, nil
}

func (n *session) path(_ context.Context, r *rpc.Request) (any, error) {
	q, err := params[struct {
		Sandbox string `json:"sandbox"`
		Host    string `json:"host"`
		Inside  string `json:"inside"`
	}](r)
	if err != nil {
		return nil, err
	}
	if (q.Host == "") == (q.Inside == "") {
		return nil, badParams("path: one of host and inside is needed")
	}
	return n.inSandbox(q.Sandbox, func(b *served) (any, error) {
		if q.Host != "" {
			if !filepath.IsAbs(q.Host) {
				return nil, badParams("path: %q is not absolute", q.Host)
			}
			follow := hostfs.ResolveSoFar
			if n.ceiling != nil { // the answer would tell of links of the host
				follow = filepath.Clean
			}
			return explain.PathInside(b.sb.Names(), q.Host, follow), nil
		}
		return explain.PathOutside(b.sb.Names(), q.Inside, b.sb.State().Launch.Dir), nil
	})
}

func (n *session) explain(_ context.Context, r *rpc.Request) (any, error) {
	q, err := params[struct {
		policyParams
		Ask []string `json:"ask"`
	}](r)
	if err != nil {
		return nil, err
	}
	var asks []explain.Ask
	for _, text := range q.Ask {
		a, err := explain.Classify(text)
		if err != nil {
			return nil, err
		}
		asks = append(asks, a)
	}
	from, err := q.source()
	if err != nil {
		return nil, err
	}
	p, _ := n.collecting()
	from.Trust = trust.Known{State: n.state}
	d, err := plan.Decide(p, from)
	if err != nil {
		return nil, err
	}
	x, err := explain.New(p, d)
	if err != nil {
		return nil, err
	}
	answers, err := x.Each(asks)
	return map[string]any{"answers": answers}, err
}

func (n *session) doctor(ctx context.Context, _ *rpc.Request) (any, error) {
	report := doctor.Examine(ctx, doctor.Examination{State: n.state, Path: n.Env["PATH"]})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return inspect.DoctorJSON(report), nil
}
