package spec

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// growth are policies that name many things. What one more of them costs may not depend on how many there are.
var growth = []struct {
	name  string
	files func(paths string) string // the section of a policy
	host  func(h *Host, path string)
	time  int // microseconds that each may take, on this project's machines: for the benchmark's reader
}{
	{name: "denies", time: 50, files: func(paths string) string { return `read = ["/home/ada/many"]` + "\ndeny = [" + paths + "]\n" }},
	{name: "grants", time: 20, files: func(paths string) string { return "read = [" + paths + "]\n" }},
	{
		name: "sockets", time: 20, files: func(paths string) string { return "read = [" + paths + "]\n" },
		host: func(h *Host, path string) { h.Sockets = append(h.Sockets, path+".sock", "/run/other/"+path[1:]) },
	},
}

// many makes the i-th policy of growth with n paths, and its host.
func many(t testing.TB, i, n int) (*policy.Policy, *Host) {
	t.Helper()
	h := madeUpHost()
	tree := h.Tree.(roottest.Files)
	tree["/home/ada/many"] = "/"
	paths := make([]string, n)
	for j := range paths {
		path := fmt.Sprintf("/home/ada/many/f%d", j)
		tree[path] = "x"
		paths[j] = strconv.Quote(path)
		if growth[i].host != nil {
			growth[i].host(h, path)
		}
	}
	text := "version = 1\n[files]\n" + growth[i].files(strings.Join(paths, ", "))
	p, err := policy.Load(policy.Input{Name: "p.toml", Data: []byte(text), Dir: "/home/ada"})
	if err != nil {
		t.Fatal(err)
	}
	return p, h
}

// BenchmarkGrowth shows microseconds for each of many denies, grants and sockets: the same whatever their number is.
func BenchmarkGrowth(b *testing.B) {
	for i := range growth {
		for _, n := range []int{100, 1_000, 4_000} {
			b.Run(fmt.Sprintf("%s/%d", growth[i].name, n), func(b *testing.B) {
				p, h := many(b, i, n)
				for b.Loop() {
					if _, err := Resolve(p, h); err != nil {
						b.Fatal(err)
					}
				}
				each := float64(b.Elapsed().Microseconds()) / float64(b.N*n)
				b.ReportMetric(each, "us/each")
				if each > float64(growth[i].time) {
					b.Logf("more than the %d us that each may take on a quiet machine", growth[i].time)
				}
			})
		}
	}
}

// TestGrowth counts allocations, which unlike time are the same on every machine.
func TestGrowth(t *testing.T) {
	for i := range growth {
		each := func(n int) float64 {
			p, h := many(t, i, n)
			return testing.AllocsPerRun(1, func() {
				if _, err := Resolve(p, h); err != nil {
					t.Fatal(err)
				}
			}) / float64(n)
		}
		if few, lot := each(200), each(1_600); lot > few {
			t.Errorf("%s: %.1f allocations for each of 1,600 and %.1f of 200", growth[i].name, lot, few)
		}
	}
}

// planAllocations is how often Resolve may allocate for the default policy. Without a reason that is worth it, lower it only.
const planAllocations = 2_300

func TestPlanAllocations(t *testing.T) {
	h := madeUpHost()
	p, err := policy.Load(policy.Default("/home/ada/work"))
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(10, func() {
		if _, err := Resolve(p, h); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.0f allocations", n)
	if n > planAllocations {
		t.Errorf("a plan for the default policy takes %.0f allocations, more than %d", n, planAllocations)
	}
}
