package spec

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// fakeGround is a machine with one file system, and mounts of parts of it elsewhere.
type fakeGround struct {
	mounts  map[string]string // bind mounts: target → source
	trusted []Trusted
}

func (g fakeGround) place(p string) hostfs.Location {
	for target, source := range g.mounts {
		if p == target || strings.HasPrefix(p, target+"/") {
			return hostfs.Location{Dev: "8:1", Path: source + strings.TrimPrefix(p, target)}
		}
	}
	return hostfs.Location{Dev: "8:1", Path: p}
}

func (g fakeGround) Shown(p string) ([]Shown, error) {
	if p == "/gone" {
		return nil, fs.ErrNotExist
	}
	list := []Shown{{p, g.place(p)}}
	for target := range g.mounts {
		if strings.HasPrefix(target, strings.TrimSuffix(p, "/")+"/") {
			list = append(list, Shown{target, g.place(target)})
		}
	}
	return list, nil
}

func (g fakeGround) Trusted([]hostfs.Location) ([]Trusted, error) { return g.trusted, nil }

func bindOf(source, target string, writable bool) rootfs.Mount {
	return rootfs.Mount{Kind: rootfs.MountBind, Source: source, Target: target, Writable: writable, Dir: true, From: "p.toml:1:1: files"}
}

func TestCheckTrusted(t *testing.T) {
	ground := fakeGround{
		mounts: map[string]string{"/alias": "/srv/state", "/deep/mnt": "/srv", "/other": "/proj", "/part/in": "/srv/state/t1"},
		trusted: []Trusted{
			{What: "the state directory", Path: "/srv/state", Location: hostfs.Location{Dev: "8:1", Path: "/srv/state"}, State: true},
			{What: "the policy", Path: "/proj/p.toml", Location: hostfs.Location{Dev: "8:1", Path: "/proj/p.toml"}, Readable: true, Links: []hostfs.Location{{Dev: "8:1", Path: "/links"}}},
			{What: "output directory", Path: "/out", Location: hostfs.Location{Dev: "8:1", Path: "/out"}, Output: true},
			{What: "the state directory", Path: "/x", Location: hostfs.Location{Dev: "8:2", Path: "/home"}, State: true},
			{What: "the state directory", Path: "/usual/state", Location: hostfs.Location{Dev: "8:1", Path: "/usual/state"}, State: true, Absent: true},
			{What: "the signing key", Path: "/keys/key", Location: hostfs.Location{Dev: "8:1", Path: "/keys/key"}},
		},
	}
	mask := rootfs.Mount{Kind: rootfs.MountMask, Target: "/srv/state", Dir: true}
	partMask := rootfs.Mount{Kind: rootfs.MountMask, Target: "/p/in", Dir: true}
	file := rootfs.Mount{Kind: rootfs.MountBind, Source: "/proj/p.toml", Target: "/w/p.toml"}
	tests := map[string]struct {
		mounts []rootfs.Mount
		want   string // what the message holds; empty: no error
	}{
		"nothing near":                          {[]rootfs.Mount{bindOf("/home", "/home", true), bindOf("/srv/statex", "/s", true)}, ""},
		"the state itself":                      {[]rootfs.Mount{bindOf("/srv/state", "/s", false)}, "holds the state directory"},
		"a directory above it":                  {[]rootfs.Mount{bindOf("/srv", "/s", true)}, "holds the state directory"},
		"one above it, read-only":               {[]rootfs.Mount{bindOf("/srv", "/s", false)}, "holds the state directory"},
		"one below it":                          {[]rootfs.Mount{bindOf("/srv/state/t1", "/s", false)}, "lies in the state directory"},
		"by another name":                       {[]rootfs.Mount{bindOf("/alias", "/s", true)}, "holds the state directory"},
		"by a mount below the grant":            {[]rootfs.Mount{bindOf("/deep", "/s", false)}, "holds the state directory"},
		"masked in a read-only grant":           {[]rootfs.Mount{bindOf("/srv", "/srv", false), mask}, ""},
		"masked in a writable one":              {[]rootfs.Mount{bindOf("/srv", "/srv", true), mask}, ""},
		"a mount that covers it in a writable":  {[]rootfs.Mount{bindOf("/srv", "/srv", true), bindOf("/home", "/srv/state", false)}, "holds the state directory"},
		"a part of it by a mount below":         {[]rootfs.Mount{bindOf("/part", "/p", true)}, "lies in the state directory"},
		"that part masked":                      {[]rootfs.Mount{bindOf("/part", "/p", true), partMask}, ""},
		"an absent one, read-only":              {[]rootfs.Mount{bindOf("/usual", "/usual", false)}, ""},
		"an absent one, writable":               {[]rootfs.Mount{bindOf("/usual", "/usual", true)}, "holds the state directory"},
		"a key that is masked, writable":        {[]rootfs.Mount{bindOf("/keys", "/keys", true), {Kind: rootfs.MountMask, Target: "/keys/key"}}, "holds the signing key"},
		"a policy that can be written":          {[]rootfs.Mount{bindOf("/proj", "/w", true)}, "lets the program write the policy"},
		"by another mount":                      {[]rootfs.Mount{bindOf("/other", "/w", true)}, "lets the program write the policy"},
		"a policy that can be read":             {[]rootfs.Mount{bindOf("/proj", "/w", false)}, ""},
		"a policy that is mounted read-only":    {[]rootfs.Mount{bindOf("/proj", "/w", true), file}, ""},
		"the policy itself, writable":           {[]rootfs.Mount{bindOf("/proj/p.toml", "/p", true)}, "lets the program write the policy"},
		"a link on the way to it":               {[]rootfs.Mount{bindOf("/links", "/l", true)}, "holds a symlink on the way to the policy"},
		"a link that cannot be changed":         {[]rootfs.Mount{bindOf("/links", "/l", false)}, ""},
		"the output directory, read-only":       {[]rootfs.Mount{bindOf("/out", "/out", false)}, "is in what the program sees"},
		"a directory in the output directory":   {[]rootfs.Mount{bindOf("/out/ws", "/out/ws", true)}, ""},
		"what has gone since the view was made": {[]rootfs.Mount{bindOf("/gone", "/g", false)}, "look at"},
	}
	for name, tt := range tests {
		err := CheckTrusted(&rootfs.View{Mounts: tt.mounts}, ground)
		if got := errorText(err); (tt.want == "") != (err == nil) || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if e, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || e.Code == "" || e.Hint == "") {
			t.Errorf("%s: no code or hint: %v", name, err)
		}
	}
}

// TestHide: the launcher masks state directories that the program would see, and no grant itself.
func TestHide(t *testing.T) {
	ground := fakeGround{
		mounts: map[string]string{"/deep/mnt": "/srv", "/part/in": "/srv/state/t1"},
		trusted: []Trusted{
			{Path: "/srv/state", Location: hostfs.Location{Dev: "8:1", Path: "/srv/state"}, State: true},
			{Path: "/usual/state", Location: hostfs.Location{Dev: "8:1", Path: "/usual/state"}, State: true, Absent: true},
			{Path: "/keys/key", Location: hostfs.Location{Dev: "8:1", Path: "/keys/key"}},
		},
	}
	for name, tt := range map[string]struct {
		mounts []rootfs.Mount
		want   string
	}{
		"writable":            {[]rootfs.Mount{bindOf("/srv", "/s", true)}, "/srv/state"},
		"readable":            {[]rootfs.Mount{bindOf("/srv", "/s", false)}, "/srv/state"},
		"covered":             {[]rootfs.Mount{bindOf("/srv", "/s", false), bindOf("/home", "/s/state", false)}, ""},
		"masked":              {[]rootfs.Mount{bindOf("/srv", "/s", true), {Kind: rootfs.MountMask, Target: "/s/state"}}, ""},
		"by a mount below":    {[]rootfs.Mount{bindOf("/deep", "/s", true)}, "/deep/mnt/state"},
		"a part":              {[]rootfs.Mount{bindOf("/part", "/s", true)}, "/part/in"},
		"the grant itself":    {[]rootfs.Mount{bindOf("/srv/state", "/s", true), bindOf("/srv/state/t1", "/t", true)}, ""},
		"absent":              {[]rootfs.Mount{bindOf("/usual", "/s", true)}, "/usual/state"},
		"absent, read-only":   {[]rootfs.Mount{bindOf("/usual", "/s", false)}, ""},
		"what is no state":    {[]rootfs.Mount{bindOf("/keys", "/s", true)}, ""},
		"the root":            {[]rootfs.Mount{bindOf("/", "/", false)}, "/deep/mnt/state /part/in /srv/state"},
		"two names, one path": {[]rootfs.Mount{bindOf("/srv", "/s", true), bindOf("/srv", "/u", false)}, "/srv/state"},
	} {
		in, err := inspect(&rootfs.View{Mounts: tt.mounts}, ground)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(in.hide(), " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
