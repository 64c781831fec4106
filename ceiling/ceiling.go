// Package ceiling holds policies that nobody trusts below one that somebody does. What the ceiling restricts, it adds to such a policy; what
// the policy asks for beyond the ceiling it refuses, by key and value. It makes no system call but those of hostfs.Tree, by which links
// are followed, and imports what makes policies: spec, spec/policy, rootfs, rootfs/hostfs, rootfs/pathname, netpolicy, fault.
//
// A policy is held twice. Narrow compares it key by key, before anything of it is looked for on the host, so that a refusal reveals nothing
// of the host. Check compares what it has become: the mounts, with every link followed, the forwarded ports and the files that
// may be executed. What a rule of Narrow has missed, or a link that a program has moved meanwhile, is found there.
package ceiling

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Ceiling is a policy that others may not go beyond.
type Ceiling struct {
	policy *policy.Policy
	plan   *spec.Plan
	rules  *netpolicy.Rules
	tree   hostfs.Tree
}

// New makes a ceiling of a policy and of what it is on this host.
func New(p *policy.Policy, plan *spec.Plan, tree hostfs.Tree) (*Ceiling, error) {
	rules, err := netpolicy.Compile(&p.Network)
	if err != nil {
		return nil, fmt.Errorf("read ceiling: %w", err)
	}
	return &Ceiling{p, plan, rules, tree}, nil
}

// Paths are the files of the ceiling's policy. No sandbox may change them.
func (c *Ceiling) Paths() []string { return c.policy.Paths }

// narrowing is one policy that is held below the ceiling.
type narrowing struct {
	*Ceiling
	asked  *policy.Policy
	beyond []string
}

func (n *narrowing) refuse(key string, value any, most string) {
	text := fmt.Sprintf("%s = %v", key, value)
	if s, ok := value.(string); ok {
		text = fmt.Sprintf("%s = %q", key, s)
	}
	if most != "" {
		text += " (" + most + ")"
	}
	if !slices.Contains(n.beyond, text) {
		n.beyond = append(n.beyond, text)
	}
}

func (n *narrowing) err() error {
	if len(n.beyond) == 0 {
		return nil
	}
	return fault.New(fault.BeyondCeiling, "leave it out, or ask for less", "the policy asks for more than the server's ceiling allows: %s", strings.Join(n.beyond, "; "))
}

// Narrow adds to a policy what the ceiling restricts and the policy says nothing of, and refuses what goes beyond. Then the policy is
// another, and has another digest.
func (c *Ceiling) Narrow(p *policy.Policy) error {
	n := &narrowing{Ceiling: c, asked: p}
	files, others := entries(p)
	if files > maxFiles || others > maxOthers {
		n.refuse("entries of its lists", files+others, fmt.Sprintf("at most %d of files and %d others", maxFiles, maxOthers))
		return n.err()
	}
	rules := rules()
	for _, key := range policy.Keys() {
		if r := rules[key]; r.narrow != nil {
			r.narrow(n, key)
		}
	}
	p.Redigest()
	return n.err()
}

// These bound the work that a policy makes for the server, and the mounts and sockets that it has.
const (
	maxFiles  = 64 // files are compared each with each
	maxOthers = 256
)

// entries counts what a policy has in its lists.
func entries(p *policy.Policy) (files, others int) {
	f, n := &p.Files, &p.Network
	files = len(f.Read) + len(f.Write) + len(f.Denies()) + len(f.Tmpfs) + len(f.Secrets) + len(f.Binds) + len(p.Processes.Execute)
	for _, v := range p.Views {
		files += 1 + len(v.Read) + len(v.Binds)
	}
	others = len(p.Interpreters.Show) + len(p.Interpreters.Packages) + len(p.Interpreters.HideModules)
	others += len(n.Ports) + len(n.Services) + len(n.AllowedHosts) + len(n.AllowPrivate) + len(n.NoProxy)
	return files, others + len(p.Env.Allow) + len(p.Env.Deny) + len(p.Env.Set)
}

// Check refuses a plan that shows, forwards or executes more than the ceiling's.
func (c *Ceiling) Check(plan *spec.Plan) error {
	n := &narrowing{Ceiling: c}
	for _, e := range plan.View.Beyond(c.plan.View) {
		if e.From == connector && e.Host == c.self(plan) {
			continue
		}
		most := "not shown"
		if e.Writable {
			most = "read-only"
		}
		n.refuse(keyOf(e.From), e.Host, most)
	}
	n.memory(plan)
	n.forwards(plan)
	n.execute(plan)
	return n.err()
}

// keyOf is the key of a place such as "task.toml:12:9: files.read". An option is its own.
func keyOf(from string) string {
	if strings.HasPrefix(from, "--") {
		return from
	}
	if i := strings.LastIndex(from, ": "); i >= 0 {
		return from[i+2:]
	}
	return "files.base"
}

const connector = "default"

// self is this binary, which a plan with a proxy shows at a path of its own and for reading alone.
func (c *Ceiling) self(plan *spec.Plan) string {
	for _, m := range plan.View.Mounts {
		if m.Target == spec.ConnectPath && m.From == connector && !m.Writable {
			return m.Source
		}
	}
	return ""
}

// memory compares file systems in memory.
func (n *narrowing) memory(plan *spec.Plan) {
	var size, inodes int64
	for _, m := range n.plan.View.Mounts {
		if m.Kind == rootfs.MountTmpfs {
			size, inodes = max(size, m.Size), max(inodes, m.Inodes)
		}
	}
	for _, m := range plan.View.Mounts {
		key := strings.TrimSuffix(keyOf(m.From), ".source")
		switch {
		case m.Kind != rootfs.MountTmpfs:
		case m.Size > size:
			n.refuse(key+".size", m.Size, fmt.Sprintf("at most %d", size))
		case m.Inodes > inodes:
			n.refuse(key+".inodes", m.Inodes, fmt.Sprintf("at most %d", inodes))
		}
	}
}

// forwards compares forwarded ports by where they lead.
func (n *narrowing) forwards(plan *spec.Plan) {
	if plan.Relay == nil {
		return
	}
	allowed := map[string]string{} // target to socket
	if n.plan.Relay != nil {
		for _, d := range n.plan.Relay.Listeners {
			allowed[d.Target] = d.Socket
		}
	}
	host := n.policy.Network.Mode == netpolicy.Host
	for _, d := range plan.Relay.Listeners {
		if d.Kind != spec.ListenForward || host && d.Socket == "" {
			continue
		}
		if socket, ok := allowed[d.Target]; ok && socket == d.Socket {
			continue
		}
		value := fmt.Sprintf("%d=%s", d.Listen.Port(), d.Target)
		if d.Variable != "" {
			n.refuse(d.Key, value, "of the variable "+d.Variable)
			continue
		}
		n.refuse(d.Key, value, "")
	}
}

// execute compares the files that may be executed by what they are on the host: a path inside may show another.
func (n *narrowing) execute(plan *spec.Plan) {
	if len(n.plan.Exec.Execute) == 0 {
		return
	}
	files, own, asked := map[string]bool{}, n.plan.View.Shown(), plan.View.Shown()
	for _, name := range n.plan.Exec.Execute {
		if host, _, ok := own.HostOf(name); ok {
			files[host] = true
		}
	}
	for _, name := range plan.Exec.Execute {
		if host, _, ok := asked.HostOf(name); !ok || !files[host] {
			n.refuse("processes.execute", name, "")
		}
	}
	if len(plan.Exec.Execute) == 0 {
		n.refuse("processes.execute", "[]", "not every file")
	}
}
