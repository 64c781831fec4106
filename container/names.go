package container

import (
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Names translate paths of the host to those inside.
func (sb *Sandbox) Names() rootfs.Names {
	if sb.view != nil {
		return sb.view.Shown()
	}
	return sb.state.Paths
}

// translate gives the command, the working directory and the caller's variables their names inside.
func (sb *Sandbox) translate(req Request) Request {
	names, follow := sb.Names(), req.Follow
	if follow == nil {
		follow = hostfs.ResolveSoFar
	}
	inside := func(text string) string { return names.Translate(text, follow) }
	args := make([]string, len(req.Args))
	for i, arg := range req.Args {
		args[i] = inside(arg)
	}
	env := make(map[string]string, len(req.Env))
	for name, value := range req.Env {
		env[name] = inside(value)
	}
	passed := map[string]string{}
	for name, value := range req.Caller {
		if passed[name] = value; sb.state.Launch.Allows(name) {
			passed[name] = inside(value)
		}
	}
	req.Args, req.Dir, req.Env, req.passed = args, inside(req.Dir), env, passed
	return req
}
