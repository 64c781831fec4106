package procfs

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

func TestReadMounts(t *testing.T) {
	text := `24 30 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw
61 30 8:1 /srv/a\040b /mnt/c\134d rw - ext4 /dev/sda1 rw
nonsense
62 30 8:1
63 30 8:2 / / rw - ext4 /dev/sda2 rw
`
	got, err := ReadMounts(strings.NewReader(text))
	want := []Mount{{24, 30, spec.Place{Dev: "0:22", Path: "/"}, "/sys", true, "sysfs"}, {61, 30, spec.Place{Dev: "8:1", Path: "/srv/a b"}, `/mnt/c\d`, true, "ext4"}, {63, 30, spec.Place{Dev: "8:2", Path: "/"}, "/", true, "ext4"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for s, want := range map[string]string{`a`: "a", `\040`: " ", `\04`: `\04`, `\999x`: `\999x`, `\134040`: `\040`} {
		if got := hostfs.Unescape(s); got != want {
			t.Errorf("%s: got %q, want %q", s, got, want)
		}
	}
}
