package build

import (
	"fmt"
	"testing"
)

func TestMade(t *testing.T) {
	var m made
	m.add("/")
	m.add("/etc")
	m.add("/etc/hosts")
	m.mount("/usr/lib/x")
	for path, want := range map[string]bool{
		"/": true, "/etc": true, "/etc/hosts": true, "/etc/host": false, "/usr": false, "/usr/lib/x": true, "/usr/lib/x/y": false,
	} {
		if m.has(path) != want {
			t.Errorf("%s: %v, want %v", path, !want, want)
		}
	}
	m.mount("/usr") // covers /usr/lib/x, though nothing was made between the two
	m.mount("/etc")
	for path, want := range map[string]bool{"/etc": true, "/etc/hosts": false, "/usr": true, "/usr/lib/x": false} {
		if m.has(path) != want {
			t.Errorf("under mounts: %s: %v, want %v", path, !want, want)
		}
	}
}

// BenchmarkMade shows nanoseconds for each of many mounts: the same whatever their number is.
func BenchmarkMade(b *testing.B) {
	for _, n := range []int{100, 1_000, 4_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				var m made
				for i := range n {
					m.mount(fmt.Sprintf("/w/in/f%d", i))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/each")
		})
	}
}
