package container

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/launch"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// TestInitConfig holds what libcontainer's configuration may ask of the start of process 1: forkexec/init.c does nothing else. Look
// there before you add anything here.
func TestInitConfig(t *testing.T) {
	known := []string{ // done, or done by nsexec and the launcher
		"rootfs", "readonlyfs", "mounts", "hostname", "namespaces", "networks", "uid_mappings", "gid_mappings", "no_new_privileges",
		// without a meaning there: devices, since /dev is the host's; no capability is named; no cgroup is entered
		"devices", "capabilities", "cgroups", "rootless_cgroups", "rootless_euid", "no_new_keyring", "labels", "version",
	}
	p, err := policy.Load(policy.Default(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	plan := planFor(t, p, policy.Limits{})
	for _, withHost := range []bool{false, true} {
		p := launch.Process1{Base: "/base", Cgroup: "sandboxrun-test", Host: withHost, Frame: plan.Frame()}
		config, err := p.Config()
		if err != nil {
			t.Fatal(err)
		}
		for key := range fields(t, config) {
			if !slices.Contains(known, key) {
				t.Errorf("%s: forkexec/init.c does not know it", key)
			}
		}
		if caps := fields(t, config.Capabilities); len(caps) != 0 || config.Umask != nil || !config.NoNewPrivileges || !config.Readonlyfs {
			t.Errorf("capabilities %v, umask %v, no_new_privs %v, read-only %v", caps, config.Umask, config.NoNewPrivileges, config.Readonlyfs)
		}
		checkInitMounts(t, config.Mounts, withHost)
		if len(config.Networks) > 1 || len(config.Networks) == 1 && config.Networks[0].Type != "loopback" {
			t.Errorf("networks %v", config.Networks)
		}
	}
}

func checkInitMounts(t *testing.T, mounts []*configs.Mount, withHost bool) {
	t.Helper()
	want := []string{"/proc", "/dev"}
	if withHost {
		want = append(want, "/host")
	}
	var got []string
	for _, m := range mounts {
		got = append(got, m.Destination)
		flags, propagation := unix.MS_BIND|unix.MS_REC, []int{unix.MS_PRIVATE | unix.MS_REC}
		if m.Destination == "/proc" {
			flags, propagation = unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, nil
		}
		if m.Flags != flags || !slices.Equal(m.PropagationFlags, propagation) || m.Data != "" {
			t.Errorf("%s: flags %#x, propagation %#x, data %q", m.Destination, m.Flags, m.PropagationFlags, m.Data)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("mounts %v, want %v", got, want)
	}
}

// fields are what is set in a value.
func fields(t *testing.T, v any) map[string]json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestInitVersion fails when libcontainer changes. Compare forkexec/init.c with the new standard_init_linux.go, rootfs_linux.go,
// init_linux.go and sync.go, from StartInitialization on; then write the new version here.
func TestInitVersion(t *testing.T) {
	const seen = "github.com/opencontainers/runc v1.5.3"
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), seen) {
		t.Errorf("go.mod does not have %s", seen)
	}
}
