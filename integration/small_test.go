package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSmallExecutable: where the launcher has not the privilege to protect its binary in another way, it executes a sealed file that is
// small, which libcontainer then does not copy. It keeps its name. TestBinaryStaysWhole says that it
// protects the binary all the same.
func TestSmallExecutable(t *testing.T) {
	flavours(t, func(b *box) {
		cmd, _ := b.launch(b.policy(object{"version": 1}), nil, "sh", "-c", "echo READY; exec sleep 30")
		proc := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
		f, err := os.Open(proc + "exe")
		if err != nil {
			b.t.Fatal(err)
		}
		defer f.Close()
		const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
		seals, _ := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0) // no file on a disk has any
		info, err := f.Stat()
		if err != nil {
			b.t.Fatal(err)
		}
		user := os.Getuid() != 0
		if sealed := seals >= 0 && seals&all == all; sealed != user || user && info.Size() > 4096 {
			b.t.Errorf("the launcher executes a file of %d bytes with the seals %#x", info.Size(), seals)
		}
		if comm := strings.TrimSpace(b.read(proc + "comm")); comm != filepath.Base(w.binary) {
			b.t.Errorf("the launcher is called %q", comm)
		}
		if user {
			_, err := os.OpenFile(proc+"exe", os.O_RDWR, 0)
			if err == nil {
				b.t.Error("the launcher's file can be written")
			}
		}
		// A command line that does not begin with the command stays as it is.
		b.run("--log-level", "error", "run", "true").exits(0)
	})
}
