package trust

import (
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

func TestExposedIn(t *testing.T) {
	state := hostfs.Location{Dev: "8:1", Path: "/home/u/state"}
	const root, home, ro = "1 0 0:5 / / ro - tmpfs t rw\n", "2 1 8:1 /home/u /w rw,nosuid - ext4 /dev/x rw\n", "2 1 8:1 /home/u /w ro - ext4 /dev/x rw\n"
	for lines, want := range map[string]string{
		root:        "",
		ro:          "",
		root + home: "/w/state",
		home + "3 2 8:1 /other /w/state ro - ext4 /dev/x rw\n":                             "", // the mask
		home + "3 2 8:1 /home/u/state /w/state rw - ext4 /dev/x rw\n":                      "/w/state",
		home + "3 2 8:1 /other /w/stat ro - ext4 /dev/x rw\n":                              "/w/state",
		home + "3 2 8:1 /other /w/state/t ro - ext4 /dev/x rw\n":                           "/w/state",
		"2 1 8:1 /home /w rw - ext4 /dev/x rw\n3 2 8:1 /home/u /w/u rw - ext4 /dev/x rw\n": "/w/u/state", // a pin
		"2 1 8:1 /home /w rw - ext4 /dev/x rw\n3 2 0:9 / /w/u ro - tmpfs t rw\n":           "",           // a mask above
		"2 1 8:1 /home/u/state/t1 /w rw - ext4 /dev/x rw\n":                                "",
		"2 1 8:2 /home/u /w rw - ext4 /dev/x rw\n":                                         "",
		// As pins are: below a mount that another one covers.
		"2 1 0:9 / /proc rw - tmpfs t rw\n3 2 8:1 /home/u /proc/7 rw - ext4 /dev/x rw\n4 3 8:1 /home/u /proc/7 rw - ext4 /dev/x rw\n5 2 0:8 / /proc rw - proc p rw\n": "",
		"2 1 0:9 / /proc rw - tmpfs t rw\n3 2 8:1 /home/u /proc/7 rw - ext4 /dev/x rw\n":                                                                              "/proc/7/state",
		home + "3 2 8:1 /other /w/state ro - ext4 /dev/x rw\n4 1 8:1 / /second rw - ext4 /dev/x rw\n":                                                                 "/second/home/u/state",
	} {
		if got, err := exposedIn([]byte(lines), state); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", lines, got, err, want)
		}
	}
}
