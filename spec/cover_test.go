package spec

import (
	"math/rand/v2"
	"path"
	"path/filepath"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
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
	kinds := []rootfs.MountKind{rootfs.MountBind, rootfs.MountMask, rootfs.MountTmpfs}
	for range 500 {
		v := &rootfs.View{}
		for range r.IntN(12) {
			m := rootfs.Mount{Target: random(), Kind: kinds[r.IntN(len(kinds))]}
			if m.Kind == rootfs.MountBind && r.IntN(4) > 0 {
				m.Source = "/host" + random()
			}
			v.Mounts = append(v.Mounts, m)
		}
		cover := CoverOf(v)
		for range 50 {
			inside := random()
			wantMount, wantHost := coverSlowly(v, inside)
			if got := cover.Mount(inside); got != wantMount {
				t.Fatalf("%q: %+v, want %+v of %+v", inside, got, wantMount, v.Mounts)
			}
			if got := cover.HostPath(inside); got != wantHost {
				t.Fatalf("%q: %q, want %q of %+v", inside, got, wantHost, v.Mounts)
			}
		}
	}
}

func coverSlowly(v *rootfs.View, inside string) (mount *rootfs.Mount, host string) {
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
		if m.Kind == rootfs.MountMask || len(m.Target) <= longest {
			continue
		}
		longest, host = len(m.Target), ""
		if m.Kind == rootfs.MountBind && m.Source != "" {
			host = filepath.Join(m.Source, rel)
		}
	}
	return mount, host
}
