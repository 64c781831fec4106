package policy

import (
	"slices"
	"testing"
)

func TestDefaultPolicy(t *testing.T) {
	for _, dir := range []string{"/home/u/work", `/odd "name"` + "\n$HOME~", "/"} {
		p := mustLoad(t, Default(dir))
		w := p.Files.Workspace
		if w == nil || w.Source != dir || w.Path != dir || p.File != "preset default" {
			t.Errorf("workspace of %q is %+v, file %q", dir, w, p.File)
		}
		if !slices.Equal(p.Env.Allow, []string{"LANG", "LC_*", "TERM", "TZ", "NO_COLOR"}) || p.Limits != (Limits{Pids: 4096, Output: 4 << 20}) {
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
	if !slices.Equal(Presets(), []string{"default"}) {
		t.Errorf("presets are %q", Presets())
	}
	for _, name := range Presets() {
		data, ok := Preset(name)
		if !ok {
			t.Fatalf("preset %q is listed but not there", name)
		}
		mustLoad(t, Input{Name: "preset " + name, Data: data, Dir: "/"})
	}
	if _, ok := Preset("../presets/default"); ok {
		t.Error("a preset is found under a path")
	}
}
