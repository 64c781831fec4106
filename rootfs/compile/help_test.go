package compile

import (
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

func request(tree hostfs.Tree, p rootfs.Policy) Request {
	return Request{
		Policy: p, Tree: tree, Hostname: "box", ResolvConf: "nameserver 127.0.0.1\n",
		User: Identity{UID: 1000, GID: 1000, Name: "u", Group: "g", Home: "/home/u"},
	}
}

func compileOK(t testing.TB, tree hostfs.Tree, lines ...string) *rootfs.View {
	t.Helper()
	v, err := Compile(request(tree, roottest.Rules(t, lines...)))
	if err != nil {
		t.Fatalf("Compile(%q): %v", lines, err)
	}
	return v
}
