package spec

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Frame is the part of a plan that process 1 of a sandbox is started with.
type Frame struct {
	UIDs, GIDs []specs.LinuxIDMapping // of the sandbox's user namespace
	OwnNetwork bool                   // the sandbox has a network namespace of its own
}

// Equal reports whether a process 1 for one of the two frames is one for the other too.
func (f Frame) Equal(o Frame) bool {
	return slices.Equal(f.UIDs, o.UIDs) && slices.Equal(f.GIDs, o.GIDs) && f.OwnNetwork == o.OwnNetwork
}

// Frame is the frame of this plan.
func (p *Plan) Frame() Frame { return Frame{p.IDs.UIDs, p.IDs.GIDs, p.OwnNetwork()} }

// ForeseeFrame says which frame the plan of a policy is going to have, before the long part of Resolve. Resolve may decide on other ids
// where a grant cannot be idmapped, so whoever starts a process 1 early has to compare the two frames.
func ForeseeFrame(p *policy.Policy, h *Host) (Frame, error) {
	id, err := identify(p.User, h)
	return Frame{id.maps[0], id.maps[1], p.Network.Mode != netpolicy.Host}, err
}
