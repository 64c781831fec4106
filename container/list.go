package container

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Info is one line of List.
type Info struct {
	ID      string       `json:"id"`
	Status  string       `json:"status"` // "creating", "running", "stopped" or "changed"
	PID     int          `json:"pid,omitempty"`
	Created time.Time    `json:"created,omitzero"`
	Name    string       `json:"name,omitempty"`
	Policy  string       `json:"policy,omitempty"`
	Owner   *owner.Owner `json:"owner,omitempty"`
	// Isolated is what the checks at its start have shown.
	Isolated bool `json:"isolated"`
	// Detached is how many detached execs run.
	Detached int `json:"detached,omitempty"`
}

// Statuses of a sandbox.
const (
	StatusCreating = "creating"
	StatusRunning  = "running"
	StatusStopped  = "stopped"
	StatusChanged  = "changed" // its state directory has been changed: see fault.StateChanged
)

// List lists every sandbox of the store, with dead ones that nobody has swept.
func (s *Store) List() ([]Info, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	list := make([]Info, 0, len(ids))
	for _, id := range ids {
		if info, err := s.Info(id); err == nil { // else it has been deleted since
			list = append(list, info)
		}
	}
	return list, nil
}

// Info is one sandbox in a list.
func (s *Store) Info(id string) (Info, error) {
	if err := CheckID(id); err != nil {
		return Info{}, err
	}
	info := s.info(id)
	if _, err := s.root.Lstat(id); err != nil { // looked for last: it may be deleted at any moment
		return Info{}, s.noState(id)
	}
	return info, nil
}

func (s *Store) info(id string) Info {
	info := Info{ID: id, Status: StatusStopped}
	st, err := s.load(id)
	if s.alive(id) {
		info.Status = StatusCreating
		if err == nil {
			info.Status = StatusRunning
		}
		if s.isChanged(id) {
			info.Status = StatusChanged
			return info
		}
	}
	if err == nil {
		info.PID, info.Created, info.Name, info.Policy, info.Owner = st.PID, st.Created, st.Name, st.Policy, st.Owner
		info.Detached, info.Isolated = s.detached(id).Count(), st.Isolated()
	}
	return info
}

func (s *Store) isChanged(id string) bool {
	sb, err := s.Open(id)
	if err == nil {
		sb.Close()
		return false
	}
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == fault.StateChanged
}

// Description is what the state command prints: an OCI state with what we know besides.
type Description struct {
	Version     string              `json:"ociVersion"`
	ID          string              `json:"id"`
	Status      string              `json:"status"`
	PID         int                 `json:"pid,omitempty"`
	Bundle      string              `json:"bundle"`
	Created     time.Time           `json:"created,omitzero"`
	Owner       *owner.Owner        `json:"owner,omitempty"`
	Pool        *journal.Pooled     `json:"pool,omitempty"`     // where it was built before it was asked for
	Detached    int                 `json:"detached,omitempty"` // execs that run
	Isolated    bool                `json:"isolated"`           // what its checks have shown
	Policy      string              `json:"policy,omitempty"`
	Digest      string              `json:"policy_digest,omitempty"`
	Network     string              `json:"network,omitempty"`
	Relay       *relayproc.Info     `json:"relay,omitempty"`
	Record      *recording.Location `json:"record,omitempty"`
	Limits      []spec.Limit        `json:"limits,omitempty"`
	Weaker      []spec.Weakness     `json:"weaker,omitempty"`
	Warnings    []string            `json:"warnings,omitempty"`
	Checks      []hooks.Result      `json:"checks,omitempty"` // of its isolation, at its start
	Annotations map[string]string   `json:"annotations,omitempty"`
}

// Describe returns all of a sandbox that callers can use.
func (s *Store) Describe(id string) (*Description, error) {
	info, err := s.Info(id)
	if err != nil {
		return nil, err
	}
	d := &Description{
		Version: specs.Version, ID: id, Status: info.Status, PID: info.PID, Bundle: filepath.Join(s.path, id),
		Created: info.Created, Owner: info.Owner, Policy: info.Policy,
		Detached: info.Detached,
	}
	switch d.Status {
	case StatusStopped:
		d.PID = 0
	case StatusChanged:
		_, err := s.Open(id)
		return nil, err
	}
	if st, err := s.load(id); err == nil {
		d.Relay, d.Record = relayproc.InfoOf(s.root, st.ID, st.Relay), st.Record
		d.Digest, d.Network, d.Limits, d.Weaker, d.Warnings = st.Digest, st.Network, st.Limits, st.Weaker, st.Warnings
		d.Checks, d.Isolated, d.Pool = st.Checks, st.Isolated(), st.Pool
	}
	return d, nil
}
