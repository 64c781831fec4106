package serve

import (
	"context"
	"crypto/rand"
	"os"
	"strings"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/container/warm"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rpc"
	"github.com/sandboxrun/sandboxrun/spec"
)

type createParams struct {
	policyParams
	ID     string `json:"id"`
	Record string `json:"record"`

	Warm map[string]int `json:"warm"` // how many interpreters are kept ready, by their names
}

type created struct {
	ID       string          `json:"id"`
	Isolated bool            `json:"isolated"`
	Weaker   []spec.Weakness `json:"weaker"`
	Checks   []hooks.Result  `json:"checks"`
	Limits   []spec.Limit    `json:"limits"`
	Paths    []shownPath     `json:"paths"`
	Workdir  string          `json:"workdir"`
	Warnings []string        `json:"warnings,omitempty"`
}

// shownPath is a path of the host that is inside.
type shownPath struct {
	Inside   string `json:"inside"`
	Host     string `json:"host"`
	Writable bool   `json:"writable"`
}

func (n *session) create(_ context.Context, r *rpc.Request) (any, error) {
	q, err := params[createParams](r)
	if err != nil {
		return nil, err
	}
	if q.ID == "" {
		q.ID = "serve-" + strings.ToLower(rand.Text())
	}
	if err := container.CheckID(q.ID); err != nil {
		return nil, err
	}
	if err := warm.Check(q.Warm); err != nil {
		return nil, badParams("create: %v", err)
	}
	from, err := q.source()
	if err != nil {
		return nil, err
	}
	p, warnings := n.collecting()
	o := container.Options{Owner: &owner.Owner{PID: os.Getpid()}}
	if q.Record != "" {
		if o.Record, err = p.OnHost("record", q.Record); err != nil {
			return nil, err
		}
	}
	from.Trust, from.Ceiling = trust.Known{State: n.state, Record: o.Record}, n.ceiling
	if err := n.take(); err != nil {
		return nil, err
	}
	sb, planned, err := n.sandbox(p, q, from, o)
	if err != nil {
		n.drop()
		return nil, err
	}
	st := sb.State()
	n.mu.Lock()
	n.boxes[q.ID] = &served{sb: sb}
	n.mu.Unlock()
	sb.Warm(q.Warm, n.Env)
	return created{
		ID: q.ID, Isolated: st.Isolated(), Weaker: st.Weaker, Checks: st.Checks, Limits: st.Limits, Paths: shownPaths(planned.View),
		Workdir: st.Launch.Dir, Warnings: *warnings,
	}, nil
}

// sandbox takes one that is ready, or makes it.
func (n *session) sandbox(p *caller.Caller, q createParams, from plan.Source, o container.Options) (*container.Sandbox, *spec.Plan, error) {
	if n.ready != nil && q.Record == "" {
		key, err := q.key()
		if err != nil {
			return nil, nil, err
		}
		if sb, d := n.ready.take(key, from, q.ID, o); sb != nil {
			for _, w := range sb.State().Warnings {
				p.Warn(w)
			}
			return sb, d.Plan, nil
		}
	}
	n.making.Lock()
	defer n.making.Unlock()
	n.creating.Lock()
	defer n.creating.Unlock()
	sb, d, err := plan.NewSandbox(p, n.store, from, q.ID, o)
	if err != nil {
		return nil, nil, err
	}
	return sb, d.Plan, nil
}

func shownPaths(v *rootfs.View) []shownPath {
	list := []shownPath{}
	for _, m := range v.Mounts {
		if m.Kind == rootfs.MountBind && m.Source != "" && !m.Pin {
			list = append(list, shownPath{m.Target, m.Source, m.Writable})
		}
	}
	return list
}
