package survey

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// TestProgramDataNames: names that are never shown, although everybody may read what they have.
func TestProgramDataNames(t *testing.T) {
	for _, name := range neverShown {
		name = strings.ReplaceAll(name, "*", "x")
		tree := roottest.Host(t, "d /usr/share/"+name, "f /etc/"+name+"/a", "f /var/lib/"+name+"/a", "f /var/cache/"+name+"/a")
		for _, d := range Data(roottest.Host(t, "d /usr/share/"+name, "f /usr/bin/"+name, "f /etc/"+name+".d/a")) {
			t.Errorf("%s is shown", d.Path)
		}
		for _, d := range Data(tree) {
			if strings.HasSuffix(d.Path, "/"+name) && !slices.Contains(PackageData, d.Path) {
				t.Errorf("%s is shown", d.Path)
			}
		}
	}
	tree := roottest.Host(t, "d /usr/share/other", "f /etc/other/a")
	if list := Data(tree); len(list) != 1 || list[0].Path != "/etc/other" {
		t.Errorf("a name that may be shown: %+v", list)
	}
}
