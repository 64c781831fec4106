package policy

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaultPolicy(t *testing.T) {
	for _, dir := range []string{"/home/u/work", `/odd "name"` + "\n$HOME~", "/"} {
		p := mustLoad(t, Default(dir))
		w := p.Files.Workspace
		if w == nil || w.Source != dir || w.Path != dir || p.File != "preset default" {
			t.Errorf("workspace of %q is %+v, file %q", dir, w, p.File)
		}
		if !slices.Equal(p.Env.Allow, []string{"LANG", "LC_*", "TERM", "TZ", "NO_COLOR"}) || p.Limits != (Limits{Wall: 24 * time.Hour, Memory: 16 << 30, Pids: 4096, Output: 4 << 20}) {
			t.Errorf("got %+v", p)
		}
	}
	for _, dir := range []string{"/a\xffb", "relative", ""} {
		if _, err := Load(Default(dir)); err == nil {
			t.Errorf("directory %q is accepted", dir)
		}
	}
}

func TestPresetsLoad(t *testing.T) {
	if !slices.Equal(Presets(), []string{"agent", "default", "kernel", "program", "tool"}) {
		t.Errorf("presets are %q", Presets())
	}
	for _, name := range Presets() {
		data, ok := Preset(name)
		if !ok {
			t.Fatalf("preset %q is listed but not there", name)
		}
		p := mustLoad(t, Input{Name: "preset " + name, Data: data, Dir: "/"})
		if l := p.Limits; l.Wall == 0 || l.Memory == 0 || l.Pids == 0 || l.Output == 0 {
			t.Errorf("preset %s has no limit of one of wall, memory, pids and output: %+v", name, l)
		}
		checkPage(t, name, p.Limits)
	}
	if _, ok := Preset("../presets/default"); ok {
		t.Error("a preset is found under a path")
	}
}

// checkPage compares the table of limits of a preset's page with the preset.
func checkPage(t *testing.T, name string, l Limits) {
	t.Helper()
	page, err := os.ReadFile("../../docs/presets/" + name + ".md")
	if err != nil {
		t.Error(err)
		return
	}
	var table strings.Builder
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\S+) \\|$").FindAllStringSubmatch(string(page), -1) {
		value := row[2]
		if strings.Trim(value, "0123456789") != "" {
			value = fmt.Sprintf("%q", value)
		}
		fmt.Fprintf(&table, "%s = %s\n", row[1], value)
	}
	said := mustLoad(t, Input{Name: "page", Data: []byte("version = 1\n[limits]\n" + table.String()), Dir: "/"}).Limits
	if said != l {
		t.Errorf("docs/presets/%s.md says %+v, the preset %+v", name, said, l)
	}
}
