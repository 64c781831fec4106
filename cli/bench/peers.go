package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// addPeers adds the launchers that are installed. They show what a sandbox of the bench's policy shows: the system's programs read-only, a
// /tmp and the working directory, in namespaces of their own, without network.
func (b *bench) addPeers() {
	b.peer("bwrap", b.bwrap)
	b.peer("nsjail", b.nsjail)
	b.runtime("runc", nil)
	b.runtime("crun", older, "--cgroup-manager=disabled")
}

func (b *bench) peer(name string, args func(path string) []string) {
	if path := b.installed(name); path != "" {
		b.add(&row{name: name, args: args(path)})
	}
}

func (b *bench) installed(name string) string {
	for dir := range strings.SplitSeq(b.caller.Env["PATH"]+":/usr/sbin:/sbin", ":") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(path) {
			return path
		}
	}
	b.missing = append(b.missing, name+": not installed")
	return ""
}

// systemDirs are /usr and what leads there, or is beside it.
func systemDirs() (dirs []string, links map[string]string) {
	dirs, links = []string{"/usr", "/etc"}, map[string]string{}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64", "/lib32"} {
		if to, err := os.Readlink(dir); err == nil {
			links[dir] = to
		} else if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs, links
}

func (b *bench) bwrap(path string) []string {
	args := []string{path, "--unshare-all", "--die-with-parent"}
	dirs, links := systemDirs()
	for _, d := range dirs {
		args = append(args, "--ro-bind", d, d)
	}
	for link, to := range links {
		args = append(args, "--symlink", to, link)
	}
	return append(args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", b.work(), "/w", "--chdir", "/w", program)
}

func (b *bench) nsjail(path string) []string {
	args := []string{path, "-Mo", "-Q"}
	dirs, links := systemDirs()
	for _, d := range dirs {
		args = append(args, "-R", d)
	}
	for link, to := range links {
		args = append(args, "-s", to+":"+link)
	}
	return append(args, "-T", "/tmp", "-B", b.work()+":/w", "--cwd", "/w", "--", program)
}

// runtime adds an OCI runtime, with the bundle that spec makes of the same policy: the same files, namespaces and filter.
func (b *bench) runtime(name string, change func(bundle string) error, options ...string) {
	path := b.installed(name)
	if path == "" {
		return
	}
	bundle := filepath.Join(b.scratch, name+"-bundle")
	if _, err := b.timed([]string{b.self, "spec", "--policy", filepath.Join(b.scratch, "bench.toml"), "--bundle", bundle, "--", program}, nil); err != nil {
		b.missing = append(b.missing, name+": "+err.Error())
		return
	}
	if change != nil {
		if err := change(bundle); err != nil {
			b.missing = append(b.missing, name+": "+err.Error())
			return
		}
	}
	r := &row{name: name + " run"}
	r.before = func() error {
		r.args = append(append([]string{path, "--root", filepath.Join(b.scratch, name)}, options...), "run", "--bundle", bundle, b.name())
		return nil
	}
	b.add(r)
}

// older says a bundle in the words of version 1.0: a crun of before 2023 knows no other, nor recursive options on a file.
func older(bundle string) error {
	file := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config specs.Spec
	if err := json.Unmarshal(data, &config); err != nil {
		return err
	}
	config.Version = "1.0.2"
	plain := map[string]string{"rbind": "bind", "rprivate": "private", "rro": "ro", "rnosuid": "nosuid", "rnodev": "nodev", "rnoexec": "noexec"}
	for _, m := range config.Mounts {
		if info, err := os.Stat(m.Source); m.Type != "bind" || err != nil || info.IsDir() {
			continue
		}
		for i, o := range m.Options {
			if p, ok := plain[o]; ok {
				m.Options[i] = p
			}
		}
	}
	if data, err = json.Marshal(&config); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}
