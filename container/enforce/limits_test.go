package enforce

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

func TestLower(t *testing.T) {
	for _, c := range [][3]int64{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {5, 7, 5}, {7, 5, 5}, {5, -1, 5}, {0, -1, -1}} {
		if got := Lower(c[0], c[1]); got != c[2] && c[1] >= 0 {
			t.Errorf("Lower(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
	if Lower(5, -1) != 5 {
		t.Error("a negative limit lifts one")
	}
}

func TestRlimits(t *testing.T) {
	for _, c := range []struct {
		name string
		l    Limits
		want map[int]uint64
	}{
		{"none", Limits{}, nil},
		{"files", Limits{Limits: policy.Limits{File: 7, Nofile: 8}}, map[int]uint64{unix.RLIMIT_FSIZE: 7, unix.RLIMIT_NOFILE: 8}},
		{"processes that a group holds", Limits{Limits: policy.Limits{Pids: 9}}, nil},
		{"processes", Limits{Limits: policy.Limits{Pids: 9}, Nproc: true}, map[int]uint64{unix.RLIMIT_NPROC: 9}},
		// The kernel's is later than the watcher's, and in whole seconds.
		{"processor time", Limits{Limits: policy.Limits{CPU: 1500 * time.Millisecond}}, map[int]uint64{unix.RLIMIT_CPU: 3}},
		{"of which the policy says nothing", Limits{Limits: policy.Limits{CPU: time.Minute}, CPUFollows: true}, nil},
	} {
		got := map[int]uint64{}
		for _, r := range c.l.Rlimits() {
			if r.Cur != r.Max {
				t.Errorf("%s: a program could raise %+v", c.name, r)
			}
			got[r.Resource] = r.Max
		}
		if len(got) != len(c.want) || len(got) > 0 && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestChooseCPUs: as many as asked for, where there are so many, all of them the caller's own, and none twice.
func TestChooseCPUs(t *testing.T) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= allowed.Count()+2; n++ {
		for i := range 20 {
			list, err := ChooseCPUs(fmt.Sprint("sandbox", i), n)
			if err != nil || len(list) != min(n, allowed.Count()) {
				t.Fatal(list, err)
			}
			slices.Sort(list)
			if len(slices.Compact(list)) != min(n, allowed.Count()) || slices.ContainsFunc(list, func(c int) bool { return !allowed.IsSet(c) }) {
				t.Errorf("%d of %d: %v", n, allowed.Count(), list)
			}
		}
	}
}

func TestGroups(t *testing.T) {
	const memory, pids, cpu, acct = forkexec.GroupMemory, forkexec.GroupPids, forkexec.GroupCPU, forkexec.GroupCPUAcct
	for _, c := range []struct {
		name, kind string
		dirs       map[string]string
		want       []forkexec.Group
	}{
		{"none", spec.ByCgroup1, nil, nil},
		{"version 2: one directory", spec.ByCgroup2, map[string]string{"memory": "/u", "pids": "/u"}, []forkexec.Group{{Dir: "/u", Unified: true, Controllers: memory | pids | acct}}},
		{"systemd's", spec.BySystemd, map[string]string{"cpu": "/s"}, []forkexec.Group{{Dir: "/s", Unified: true, Controllers: cpu | acct}}},
		{
			"version 1: one each, and two together", spec.ByCgroup1,
			map[string]string{"memory": "/m", "cpu": "/c", "cpuacct": "/c", "pids": "/p"},
			[]forkexec.Group{{Dir: "/m", Controllers: memory}, {Dir: "/p", Controllers: pids}, {Dir: "/c", Controllers: cpu | acct}},
		},
		{"what nobody knows", spec.ByCgroup1, map[string]string{"rdma": "/r"}, nil},
	} {
		if got := Groups(c.kind, c.dirs); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestReach: only groups of version 2 need it.
func TestReach(t *testing.T) {
	if err := Reach([]forkexec.Group{{Dir: "/nowhere"}}); err != nil {
		t.Errorf("version 1 needs no nearness: %v", err)
	}
}
