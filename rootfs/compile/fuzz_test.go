package compile

import (
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

func shuffled(r *rand.Rand, p rootfs.Policy) rootfs.Policy {
	mix := func(n int, list any) { r.Shuffle(n, reflect.Swapper(list)) }
	p.Read, p.Write = append([]rootfs.Grant{}, p.Read...), append([]rootfs.Grant{}, p.Write...)
	p.Deny, p.Secrets = append([]rootfs.Grant{}, p.Deny...), append([]rootfs.Grant{}, p.Secrets...)
	p.Tmpfs, p.Binds = append([]rootfs.Tmpfs{}, p.Tmpfs...), append([]rootfs.Bind{}, p.Binds...)
	mix(len(p.Read), p.Read)
	mix(len(p.Write), p.Write)
	mix(len(p.Deny), p.Deny)
	mix(len(p.Secrets), p.Secrets)
	mix(len(p.Tmpfs), p.Tmpfs)
	mix(len(p.Binds), p.Binds)
	return p
}

// FuzzPathRules tries random policies on random hosts: order never matters, every mount target exists, and no name
// leads to a denied file or, unless refused, to a secret.
func FuzzPathRules(f *testing.F) {
	for seed := range int64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		r := rand.New(rand.NewSource(seed))
		tree := roottest.RandomHost(t, r)
		p := roottest.RandomPolicy(r, tree)
		v, err := Compile(request(tree, p))
		other, otherErr := Compile(request(tree, shuffled(r, p)))
		if fmt.Sprint(err) != fmt.Sprint(otherErr) || !reflect.DeepEqual(v, other) {
			t.Errorf("order matters:\n%+v, %v\n%+v, %v", v, err, other, otherErr)
		}
		if err != nil {
			var e *fault.Error
			if !errors.As(err, &e) || e.Code == "" {
				t.Errorf("error %v", err)
			}
			return
		}
		checkView(t, tree, v)
		names := roottest.AllNames(tree, v)
		var denied []string
		for _, g := range p.Deny {
			denied = append(denied, g.Path)
		}
		for _, g := range p.Secrets { // where a program's link leads is no secret for that
			tr, _ := hostfs.Follow(tree, g.Path)
			if _, redirects := newCompiler(request(tree, p)).writables.First(tr.Links); !redirects {
				denied = append(denied, g.Path)
			}
		}
		checkNames(t, tree, v, p.Deny)
		checkDenied(t, tree, v, denied, names)
		checkPins(t, tree, v)
		if t.Failed() {
			t.Logf("host mounts %+v, host %q\npolicy %+v\nmounts %q", tree.Table, tree.Paths(), p, roottest.Mounts(v))
			for n, node := range tree.Nodes {
				t.Logf("  %s %v %s", n, node.Mode, node.Text)
			}
		}
	})
}

// TestGrantsReachable tries random grants and nothing else: each leads, by the name the policy gives, to the host path,
// writable exactly if the nearest grant around it is.
func TestGrantsReachable(t *testing.T) {
	reached := 0
	for seed := range int64(4000) {
		r := rand.New(rand.NewSource(seed))
		tree := roottest.RandomHost(t, r)
		p := roottest.RandomPolicy(r, tree)
		p.Deny, p.Secrets, p.Binds, p.Tmpfs = nil, nil, nil, nil
		v, err := Compile(request(tree, p))
		if err != nil {
			continue
		}
		writable := map[string]bool{}
		for _, g := range p.Read {
			if tr, err := hostfs.Follow(tree, g.Path); err == nil {
				writable[tr.Real] = false
			}
		}
		for _, g := range p.Write {
			if tr, err := hostfs.Follow(tree, g.Path); err == nil {
				writable[tr.Real] = true
			}
		}
		for _, g := range append(append([]rootfs.Grant{}, p.Read...), p.Write...) {
			tr, err := hostfs.Follow(tree, g.Path)
			if err != nil {
				continue
			}
			want := false
			for up := range pathname.Ups(tr.Real) {
				if w, ok := writable[up]; ok {
					want = w
					break
				}
			}
			spot, err := v.Lookup(tree, g.Path)
			if err != nil || spot.Host != tr.Real || spot.Writable != want {
				t.Errorf("seed %d: %q (%q) is at %+v, %v; want writable %v\n%+v\n%q", seed, g.Path, tr.Real, spot, err, want, p, roottest.Mounts(v))
			}
			reached++
		}
	}
	if reached < 1000 {
		t.Errorf("only %d grants tried", reached)
	}
}
