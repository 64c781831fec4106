package spec

import (
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/compile"
)

// compileView compiles the view without the state directories, and checks that it has none of the trusted files.
func compileView(req compile.Request, connector *rootfs.Bind, g Ground) (*rootfs.View, error) {
	v, err := view(req, connector)
	if err != nil {
		return nil, err
	}
	in, err := inspect(v, g)
	if err != nil {
		return nil, err
	}
	if req.Hidden = in.hide(); len(req.Hidden) > 0 {
		if v, err = view(req, connector); err != nil {
			return nil, err
		}
		return v, CheckTrusted(v, g)
	}
	return v, in.check()
}

// view compiles the view. It leaves the connector out if a mount of the policy takes its place.
func view(req compile.Request, connector *rootfs.Bind) (*rootfs.View, error) {
	if connector != nil {
		with := req
		with.Policy.Binds = append(slices.Clone(req.Policy.Binds), *connector)
		if v, err := compile.Compile(with); err == nil {
			return v, nil
		}
	}
	return compile.Compile(req)
}
