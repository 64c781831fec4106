package rootfs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// view makes one of mounts: "rw HOST INSIDE", "ro HOST INSIDE" or "mask INSIDE".
func viewOf(t *testing.T, mounts ...string) *View {
	t.Helper()
	v := &View{}
	for i, text := range mounts {
		m := Mount{Kind: MountBind, Dir: true, From: fmt.Sprint(i)}
		var kind string
		switch n, _ := fmt.Sscan(text, &kind, &m.Source, &m.Target); {
		case kind == "mask" && n == 2:
			m.Kind, m.Source, m.Target = MountMask, "", m.Source
		case n != 3:
			t.Fatal(text)
		}
		m.Writable = kind == "rw"
		v.Mounts = append(v.Mounts, m)
	}
	return v
}

func TestBeyond(t *testing.T) {
	list := func(l ...string) []string { return l }
	for name, c := range map[string]struct{ mine, theirs, want []string }{
		"the same":                        {list("ro /a /a"), list("ro /a /a"), nil},
		"a part":                          {list("ro /a/b /a/b"), list("ro /a /a"), nil},
		"under another name":              {list("ro /a/b /x"), list("ro /a /y"), nil},
		"more":                            {list("ro /a /a"), list("ro /a/b /a/b"), list("/a")},
		"beside by name":                  {list("ro /ab /ab"), list("ro /a /a"), list("/ab")},
		"writable":                        {list("rw /a /a"), list("ro /a /a"), list("/a writable")},
		"a writable part":                 {list("rw /a/b /a/b"), list("ro /a /a", "rw /a/b /a/b"), nil},
		"a read-only part":                {list("rw /a /a"), list("rw /a /a", "ro /a/b /a/b"), list("/a/b writable")},
		"the same, moved":                 {list("rw /a /x"), list("rw /a /a", "ro /a/b /a/b"), list("/a/b writable")},
		"a hidden part":                   {list("ro /a /a"), list("ro /a /a", "mask /a/b"), list("/a/b")},
		"a hidden part, hidden here too":  {list("ro /a /x", "mask /x/b"), list("ro /a /a", "mask /a/b"), nil},
		"a hidden part by its own name":   {list("ro /a /a", "mask /a/b", "ro /a/b /x"), list("ro /a /a", "mask /a/b"), list("/a/b")},
		"a part of what is hidden":        {list("ro /a/b/c /x"), list("ro /a /a", "mask /a/b"), list("/a/b/c")},
		"a part that is covered by more":  {list("ro /a /a", "ro /b /a/c"), list("ro /a /a"), list("/b")},
		"two names, one of them writable": {list("rw /a /y"), list("ro /a /x", "rw /a /y"), nil},
		"nothing":                         {nil, list("ro /a /a"), nil},
	} {
		var got []string
		for _, e := range viewOf(t, c.mine...).Beyond(viewOf(t, c.theirs...)) {
			text := e.Host
			if e.Writable {
				text += " writable"
			}
			got = append(got, text)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestBeyondIsAll compares with what every path inside shows, one by one, of made-up views.
func TestBeyondIsAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that does the same each time
	paths := func(depth int) []string {
		list, last := []string{"/"}, []string{""}
		for range depth {
			var next []string
			for _, dir := range last {
				next = append(next, dir+"/a", dir+"/b")
			}
			list, last = append(list, next...), next
		}
		return list
	}
	places, all := paths(3), paths(9)
	some := func() *View {
		v := &View{}
		for range 1 + r.IntN(4) {
			m := Mount{Kind: MountBind, Dir: true, Source: places[r.IntN(len(places))], Target: places[r.IntN(len(places))], Writable: r.IntN(2) == 0}
			if r.IntN(4) == 0 {
				m.Kind, m.Source = MountMask, ""
			}
			if !slices.ContainsFunc(v.Mounts, func(o Mount) bool { return o.Target == m.Target }) {
				v.Mounts = append(v.Mounts, m)
			}
		}
		return v
	}
	shows := func(v *View) map[string]Access {
		is := map[string]Access{}
		for _, inside := range all {
			if host, writable, ok := v.HostOf(inside); ok && writable {
				is[host] = Writable
			} else if ok {
				is[host] = max(is[host], Readable)
			}
		}
		return is
	}
	within, hosts := 0, paths(6) // deeper than each source, and what can be covered below it
	for range 600 {
		mine, theirs := some(), some()
		want, may, its := true, shows(theirs), shows(mine)
		for _, host := range hosts {
			want = want && its[host] <= may[host]
		}
		if want {
			within++
		}
		if got := len(mine.Beyond(theirs)) == 0; got != want {
			t.Fatalf("%+v\nbelow %+v: %v, want %v: %v", mine.Mounts, theirs.Mounts, got, want, mine.Beyond(theirs))
		}
	}
	if within < 100 {
		t.Errorf("only %d views were within another", within)
	}
}

// BenchmarkBeyond compares views that a client has made to be as dear as they can.
func BenchmarkBeyond(b *testing.B) {
	v, name := &View{}, ""
	for range 128 {
		name += "/a"
		v.Mounts = append(v.Mounts, Mount{Kind: MountBind, Dir: true, Source: name, Target: name})
	}
	for b.Loop() {
		v.Beyond(v)
	}
}
