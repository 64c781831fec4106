package rootfs

import (
	"math/rand/v2"
	"path"
	"path/filepath"
	"testing"
)

// TestCover compares the index with a look at each mount.
func TestCover(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() string {
		p := "/"
		for range r.IntN(5) {
			p = path.Join(p, string(rune('a'+r.IntN(3))))
		}
		return p
	}
	kinds := []MountKind{MountBind, MountMask, MountTmpfs}
	for range 500 {
		v := &View{}
		targets := map[string]bool{}
		for range r.IntN(12) {
			m := Mount{Target: random(), Kind: kinds[r.IntN(len(kinds))]}
			if targets[m.Target] {
				continue
			}
			targets[m.Target] = true
			if m.Kind == MountBind && r.IntN(4) > 0 {
				m.Source = path.Join("/host", random())
			}
			v.Mounts = append(v.Mounts, m)
		}
		cover := v.ByTarget()
		for range 50 {
			inside := random()
			wantMount, wantHost := coverSlowly(v, inside)
			if got := cover.Cover(inside); got != wantMount {
				t.Fatalf("%q: %+v, want %+v of %+v", inside, got, wantMount, v.Mounts)
			}
			if got := cover.HostPath(inside); got != wantHost {
				t.Fatalf("%q: %q, want %q of %+v", inside, got, wantHost, v.Mounts)
			}
		}
	}
}

func coverSlowly(v *View, inside string) (mount *Mount, host string) {
	longest := -1
	for i := range v.Mounts {
		m := &v.Mounts[i]
		rel, err := filepath.Rel(m.Target, inside)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if mount == nil || len(m.Target) > len(mount.Target) {
			mount = m
		}
		if m.Kind == MountMask || len(m.Target) <= longest {
			continue
		}
		longest, host = len(m.Target), ""
		if m.Kind == MountBind && m.Source != "" {
			host = filepath.Join(m.Source, rel)
		}
	}
	return mount, host
}
