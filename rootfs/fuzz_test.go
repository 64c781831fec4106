package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"reflect"
	"testing"
)

// randomPath gives a path of up to four components from few names, so that rules meet often.
func randomPath(r *rand.Rand) string {
	names := []string{"a", "b", "ab", "tmp", "home", "u"}
	p := ""
	for range 1 + r.Intn(4) {
		p += "/" + names[r.Intn(len(names))]
	}
	return p
}

func randomHost(t testing.TB, r *rand.Rand) *fakeTree {
	t.Helper()
	tree := host(t)
	for range 5 + r.Intn(25) {
		p := randomPath(r)
		if up := tree.nodes[parent(p)]; tree.nodes[p] != nil || up != nil && !up.mode.IsDir() || !canMake(tree, p) {
			continue
		}
		switch r.Intn(6) {
		case 0, 1:
			tree.add(p, 0o644)
		case 2:
			tree.add(p, 0o755|1<<31) // fs.ModeDir
		case 3:
			tree.add(p, 1<<27|0o777).text = randomPath(r) // fs.ModeSymlink
		case 4:
			tree.add(p, 1<<27|0o777).text = []string{"..", "a", "../b", ".", "b/a", "../../u"}[r.Intn(6)]
		case 5:
			files := tree.paths()
			other := tree.nodes[files[r.Intn(len(files))]]
			if other.mode.IsRegular() {
				tree.add(p, 0o644)
				tree.nodes[p] = other
				other.more++
			}
		}
	}
	if r.Intn(3) == 0 {
		all := tree.paths()
		if p := all[r.Intn(len(all))]; tree.nodes[p].mode.IsDir() && p != "/" {
			tree.mount("0:2", "/", p)
		}
	}
	if r.Intn(3) == 0 {
		all := tree.paths()
		source, at := all[r.Intn(len(all))], randomPath(r)
		if up := tree.nodes[parent(at)]; tree.nodes[at] == nil && (up == nil || up.mode.IsDir()) && canMake(tree, at) &&
			!within(at, source) && tree.nodes[source].mode&fs.ModeSymlink == 0 {
			tree.bind(at, source)
		}
	}
	return tree
}

// canMake reports whether every parent of p is, or can become, a directory.
func canMake(tree *fakeTree, p string) bool {
	for up := range ups(parent(p)) {
		if n := tree.nodes[up]; n != nil && !n.mode.IsDir() {
			return false
		}
	}
	return true
}

func randomPolicy(r *rand.Rand, tree *fakeTree) Policy {
	all := tree.paths()
	pick := func() string {
		if p := all[r.Intn(len(all))]; r.Intn(4) > 0 && p != "/" {
			return p
		}
		return randomPath(r)
	}
	p := Policy{Base: Base{Kind: []string{BaseNone, BaseNone, BaseHost, BaseSystem}[r.Intn(4)]}, Missing: "skip"}
	for i := range 1 + r.Intn(8) {
		g := Grant{pick(), fmt.Sprint("rule ", i)}
		switch r.Intn(7) {
		case 0:
			p.Read = append(p.Read, g)
		case 1:
			p.Write = append(p.Write, g)
		case 2, 3:
			p.Deny = append(p.Deny, g)
		case 4:
			p.Tmpfs = append(p.Tmpfs, Tmpfs{Path: g.Path, From: g.From})
		case 5:
			p.Binds = append(p.Binds, Bind{g.Path, randomPath(r), r.Intn(2) == 0, false, g.From})
		case 6:
			if r.Intn(3) == 0 {
				p.Secrets = append(p.Secrets, g)
			}
		}
	}
	return p
}

func shuffled(r *rand.Rand, p Policy) Policy {
	mix := func(n int, list any) { r.Shuffle(n, reflect.Swapper(list)) }
	p.Read, p.Write = append([]Grant{}, p.Read...), append([]Grant{}, p.Write...)
	p.Deny, p.Secrets = append([]Grant{}, p.Deny...), append([]Grant{}, p.Secrets...)
	p.Tmpfs, p.Binds = append([]Tmpfs{}, p.Tmpfs...), append([]Bind{}, p.Binds...)
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
		tree := randomHost(t, r)
		p := randomPolicy(r, tree)
		v, err := Compile(request(tree, p))
		other, otherErr := Compile(request(tree, shuffled(r, p)))
		if fmt.Sprint(err) != fmt.Sprint(otherErr) || !reflect.DeepEqual(v, other) {
			t.Errorf("order matters:\n%+v, %v\n%+v, %v", v, err, other, otherErr)
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Code == "" {
				t.Errorf("error %v", err)
			}
			return
		}
		checkView(t, tree, v)
		names := allNames(tree, v)
		var denied []string
		for _, g := range p.Deny {
			denied = append(denied, g.Path)
		}
		for _, g := range p.Secrets { // where a program's link leads is no secret for that
			tr, _ := follow(tree, g.Path)
			if _, redirects := newCompiler(request(tree, p)).hands.first(tr.links); !redirects {
				denied = append(denied, g.Path)
			}
		}
		checkNames(t, tree, v, p.Deny)
		checkDenied(t, tree, v, denied, names)
		checkPins(t, tree, v)
		if t.Failed() {
			t.Logf("host mounts %+v, host %q\npolicy %+v\nmounts %q", tree.mounts, tree.paths(), p, mounts(v))
			for n, node := range tree.nodes {
				t.Logf("  %s %v %s", n, node.mode, node.text)
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
		tree := randomHost(t, r)
		p := randomPolicy(r, tree)
		p.Deny, p.Secrets, p.Binds, p.Tmpfs = nil, nil, nil, nil
		v, err := Compile(request(tree, p))
		if err != nil {
			continue
		}
		writable := map[string]bool{}
		for _, g := range p.Read {
			if tr, err := follow(tree, g.Path); err == nil {
				writable[tr.real] = false
			}
		}
		for _, g := range p.Write {
			if tr, err := follow(tree, g.Path); err == nil {
				writable[tr.real] = true
			}
		}
		for _, g := range append(append([]Grant{}, p.Read...), p.Write...) {
			tr, err := follow(tree, g.Path)
			if err != nil {
				continue
			}
			want := false
			for up := range ups(tr.real) {
				if w, ok := writable[up]; ok {
					want = w
					break
				}
			}
			spot, err := v.Lookup(tree, g.Path)
			if err != nil || spot.Host != tr.real || spot.Writable != want {
				t.Errorf("seed %d: %q (%q) is at %+v, %v; want writable %v\n%+v\n%q", seed, g.Path, tr.real, spot, err, want, p, mounts(v))
			}
			reached++
		}
	}
	if reached < 1000 {
		t.Errorf("only %d grants tried", reached)
	}
}
