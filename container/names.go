package container

import (
	"path/filepath"

	"github.com/sandboxrun/sandboxrun/rootfs"
)

// Names translate paths of the host to those inside.
func (sb *Sandbox) Names() rootfs.Names {
	if sb.view != nil {
		return sb.view.Shown()
	}
	return sb.state.Paths
}

// ResolveSoFar resolves the symlinks in the part of a path of the host that exists.
func ResolveSoFar(name string) string {
	rest := ""
	for dir := name; ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == "/" || dir == "." {
			return filepath.Clean(name)
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// translate gives the command, the working directory and the caller's variables their names inside.
func (sb *Sandbox) translate(req Request) Request {
	names, follow := sb.Names(), req.Follow
	if follow == nil {
		follow = ResolveSoFar
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
