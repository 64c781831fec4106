package cgroup

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// machine is one as its /proc shows it, and what should be found: the directory of our own group in each hierarchy.
type machine struct {
	name, mountinfo, cgroup string
	dirs                    map[string]string // controller, "" for version 2; "-" where our own is not shown
}

func machines() []machine {
	return []machine{
		{
			"hybrid, without systemd",
			`31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`,
			`9:name=systemd:/
8:pids:/
4:memory:/process_api/019e6f5a29a13ac3ad38b87a1b8d2ca7
2:cpuacct:/
1:cpu:/
0::/
`,
			map[string]string{
				"memory":  "/sys/fs/cgroup/memory/process_api/019e6f5a29a13ac3ad38b87a1b8d2ca7",
				"pids":    "/sys/fs/cgroup/pids",
				"cpu":     "/sys/fs/cgroup/cpu",
				"cpuacct": "/sys/fs/cgroup/cpuacct",
				"":        "/sys/fs/cgroup/unified",
			},
		},
		{
			"version 2, a terminal of a desktop",
			`22 28 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
26 23 0:23 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
27 23 0:24 / /sys/fs/pstore rw,nosuid,nodev,noexec,relatime shared:10 - pstore pstore rw
`,
			"0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-x\\x2dterminal-2:1.scope\n",
			map[string]string{
				"": `/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-x\x2dterminal-2:1.scope`,
			},
		},
		{
			"Docker, version 2, a cgroup namespace of its own",
			`1207 1206 0:29 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot
`,
			"0::/\n",
			map[string]string{"": "/sys/fs/cgroup"},
		},
		{
			"Docker, version 1, the host's cgroup namespace: mounts begin at the container's group",
			`638 637 0:52 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
639 638 0:26 /docker/3fa1 /sys/fs/cgroup/systemd ro,nosuid,nodev,noexec,relatime master:11 - cgroup cgroup rw,xattr,name=systemd
641 638 0:33 /docker/3fa1 /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime master:16 - cgroup cgroup rw,cpu,cpuacct
642 638 0:34 /docker/3fa1 /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:17 - cgroup cgroup rw,memory
643 638 0:35 /docker/3fa1 /sys/fs/cgroup/pids ro,nosuid,nodev,noexec,relatime master:18 - cgroup cgroup rw,pids
`,
			`12:pids:/docker/3fa1
11:memory:/docker/3fa1/inner
4:cpu,cpuacct:/docker/3fa1
1:name=systemd:/docker/3fa1
0::/system.slice/containerd.service
`,
			map[string]string{
				"memory": "/sys/fs/cgroup/memory/inner", "pids": "/sys/fs/cgroup/pids",
				"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "": "-",
			},
		},
		{
			"version 1 with systemd, cpu and cpuacct together, the other order",
			`25 24 0:22 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
30 25 0:27 / /sys/fs/cgroup/cpuacct,cpu rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpuacct,cpu
31 25 0:28 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:16 - cgroup cgroup rw,memory
`,
			"4:memory:/user.slice\n3:cpuacct,cpu:/user.slice\n1:name=systemd:/user.slice/user-0.slice/session-1.scope\n",
			map[string]string{
				"memory": "/sys/fs/cgroup/memory/user.slice", "cpu": "/sys/fs/cgroup/cpuacct,cpu/user.slice",
				"cpuacct": "/sys/fs/cgroup/cpuacct,cpu/user.slice", "pids": "-", "": "-",
			},
		},
		{
			"a bind mount of a neighbour, whose name begins like ours",
			`9 8 0:9 /job /mnt/memory rw - cgroup cgroup rw,memory
`,
			"3:memory:/job2\n",
			map[string]string{"memory": "-"},
		},
		{
			"a cgroup namespace that is younger than the mounts",
			`9 8 0:9 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw
10 8 0:10 / /c1 rw - cgroup cgroup rw,pids
`,
			"3:pids:/../other\n0::/\n",
			map[string]string{"": "-", "pids": "-"},
		},
		{
			"odd names",
			`9 8 0:9 / /mnt/a\040b\134c rw - cgroup cgroup rw,pids
bad line
10 8 0:10 / /x rw -
11 8 0:11 / /y rw cgroup2 cgroup2 rw
`,
			"3:pids:/a: b\nbad\n",
			map[string]string{"pids": `/mnt/a b\c/a: b`, "": "-"},
		},
	}
}

func TestCgroupsAreFound(t *testing.T) {
	for _, tt := range machines() {
		t.Run(tt.name, func(t *testing.T) {
			mounts, own := cgroupMounts(hostfs.ParseMounts(tt.mountinfo)), ownGroups(tt.cgroup)
			for c, want := range tt.dirs {
				got := "-"
				for _, m := range mounts {
					if m.v2 != (c == "") || c != "" && !slices.Contains(m.controllers, c) {
						continue
					}
					if dir, ok := m.dir(own[c]); ok {
						got = dir
					}
				}
				if got != want {
					t.Errorf("%q: our own group is at %q, want %q", c, got, want)
				}
			}
		})
	}
}

// What is not what it is said to be is not used, however it is mounted.
func TestCgroupsMustBeSome(t *testing.T) {
	dir := t.TempDir()
	m := &hierarchies{
		mounts: []mountedAt{
			{root: "/", point: dir, controllers: []string{"memory", "pids", "cpu"}}, {root: "/", point: dir, v2: true},
		},
		own: map[string]string{"memory": "/", "pids": "/", "cpu": "/", "": "/"},
	}
	facts := m.probe()
	if facts.Kind != "" || len(facts.Controllers) > 0 {
		t.Errorf("%+v", facts)
	}
	if want := "cgroup v2 is not mounted; no systemd; cgroup v1: no hierarchy for memory, pids, cpu"; facts.Reason != want {
		t.Errorf("%q, want %q", facts.Reason, want)
	}
	if err := RemoveNoted([]string{filepath.Join(dir, "sandboxrun-x")}); err != nil {
		t.Error(err) // it is not there
	}
	if err := os.Mkdir(filepath.Join(dir, "sandboxrun-x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := RemoveNoted([]string{filepath.Join(dir, "sandboxrun-x")}); err == nil {
		t.Error("a directory that is no control group was removed")
	}
}

func TestCgroupsOnlyOursAreRemoved(t *testing.T) {
	for _, name := range []string{"sandboxrun-8f-a", "sandboxrun-8f-a.b_C-9", "sandboxrun-x.scope"} {
		if !shaped(name) {
			t.Errorf("%q is refused", name)
		}
	}
	bad := []string{
		"", "/", ".", "..", "sandboxrun-", "sandboxrun", "init", "user.slice", "sandboxrun-é", "sandboxrun-a b",
		"xsandboxrun-a",
		"sandboxrun-" + strings.Repeat("x", 200),
	}
	for _, name := range bad {
		if shaped(name) {
			t.Errorf("%q is taken for ours", name)
		}
	}
	for _, path := range []string{
		"", "/", "/sys/fs/cgroup", "/sys/fs/cgroup/memory", "sandboxrun-a", "/sys/fs/cgroup/sandboxrun-a/..",
		"/sys/fs/cgroup//sandboxrun-a", "/sys/fs/cgroup/sandboxrun-a/", "scope:", "scope:x.scope", "scope:sandboxrun-a", "scope:../sandboxrun-a.scope",
	} {
		if err := RemoveNoted([]string{path}); err == nil {
			t.Errorf("%q: no error", path)
		}
	}
	if _, err := Make(spec.Cgroups{Kind: spec.ByCgroup1}, "../x", 1, Limits{}, nil); err == nil {
		t.Error("a name that is none was taken")
	}
	if _, err := Make(spec.Cgroups{Reason: "there is none"}, "sandboxrun-x", 1, Limits{}, nil); err == nil ||
		!strings.Contains(err.Error(), "there is none") {
		t.Error(err)
	}
}

func TestCgroupsLimitsAsWritten(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, tt := range []struct {
		limits Limits
		pages  int64
		quota  int64
		needs  string
	}{
		{Limits{}, 0, 0, ""},
		{Limits{Memory: 512 << 20}, 512 << 20, 0, "memory"},
		{Limits{Memory: 10*page + 1, Pids: 3}, 10 * page, 0, "memory pids"},
		{Limits{Memory: 11*page - 1}, 10 * page, 0, "memory"},
		{Limits{CPUs: 0.01}, 0, 1000, "cpu"},
		{Limits{CPUs: 0.29}, 0, 29000, "cpu"}, // in floating point a little less
		{Limits{CPUs: 4096, Pids: 1}, 0, 409600000, "pids cpu"},
	} {
		l := tt.limits
		if l.pages() != strconv.FormatInt(tt.pages, 10) || l.quota() != tt.quota || strings.Join(l.needs(), " ") != tt.needs {
			t.Errorf("%+v: %s %d %q", l, l.pages(), l.quota(), l.needs())
		}
	}
}

func TestCgroupsScopeProperties(t *testing.T) {
	text := func(controllers []string, l Limits) map[string]string {
		got := map[string]string{}
		for _, p := range scopeProperties("sandboxrun-1-a.scope", 77, controllers, l) {
			got[p.Name] = p.Value.String()
		}
		return got
	}
	want := map[string]string{
		"Description": `"sandbox sandboxrun-1-a"`, "PIDs": "@au [77]", "Delegate": "true", "KillSignal": "9",
		"CollectMode": `"inactive-or-failed"`, "TasksMax": "@t 18446744073709551615",
	}
	if got := text(wanted(), Limits{}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	maps.Copy(want, map[string]string{
		"TasksMax": "@t 9", "MemoryMax": "@t 1048576", "MemorySwapMax": "@t 0", "CPUQuotaPerSecUSec": "@t 500000",
	})
	limits := Limits{Memory: 1 << 20, Pids: 9, CPUs: 0.5}
	if got := text(wanted(), limits); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	delete(want, "CPUQuotaPerSecUSec")
	if got := text([]string{"memory", "pids"}, limits); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func FuzzCgroupsFound(f *testing.F) {
	for _, m := range machines() {
		f.Add(m.mountinfo, m.cgroup)
	}
	f.Fuzz(func(t *testing.T, mountinfo, cgroup string) {
		own := ownGroups(cgroup)
		for _, m := range cgroupMounts(hostfs.ParseMounts(mountinfo)) {
			for c, group := range own {
				if strings.Contains(group, "..") || !filepath.IsAbs(m.point) {
					continue // the kernel's paths have no such component but at their beginning
				}
				point := filepath.Clean(m.point)
				if dir, ok := m.dir(group); ok && dir != point && !strings.HasPrefix(dir, strings.TrimSuffix(point, "/")+"/") {
					t.Errorf("%q: %q is not below %q", c, dir, m.point)
				}
			}
		}
	})
}
