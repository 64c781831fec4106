package integration

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRecordFullDisk: what cannot be recorded does not run.
func TestRecordFullDisk(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		d := b.disk()
		where := filepath.Dir(filepath.Dir(d.call.env[0][len("SANDBOXRUN_ROOT="):])) // the box's
		rec := filepath.Join(where, "disk", "rec")
		d.call.env = nil // the state has room elsewhere
		ws := b.mkdir("ws")
		p := b.policy(object{"files": object{"write": []string{ws}}, "network": object{"ports": []int{9}}})
		d.state = filepath.Join(d.root, where, "disk", "state")

		d.fill(8)
		d.do("run", "-p", p, "--record", rec, "--", "touch", filepath.Join(ws, "ran")).says("record_unusable", "no space left on device", "hint: make room")
		absent(t, filepath.Join(ws, "ran"))
		absent(t, filepath.Join(d.root, rec))

		// It was there when the sandbox was made, and is gone when the next exec would need it.
		if err := os.Remove(filepath.Join(d.root, where, "disk", "fill")); err != nil {
			t.Fatal(err)
		}
		d.do("create", "-p", p, "--record", rec, "box").exits(0)
		d.do("exec", "box", "--", "true").exits(0)
		d.fill(0)
		for range 150 { // the room that was set aside is for what has been started
			if d.do("exec", "box", "--", "true").status != 0 {
				break
			}
		}
		d.do("exec", "box", "--", "touch", filepath.Join(ws, "ran")).says("record_unusable", "no space left on device")
		absent(t, filepath.Join(ws, "ran"))
		d.do("delete", "box").exits(0)
		d.do("verify", rec).exits(0).prints("deleted, 0 litter, 0 orphans")
	})
}
