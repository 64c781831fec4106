package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// TestLimitFile: the largest file; what goes into a pipe is none.
func TestLimitFile(t *testing.T) {
	flavours(t, func(b *box) {
		ws := b.mkdir("ws")
		p := b.policy(object{"workdir": ws, "files": object{"write": []string{ws}}, "limits": object{"file": "8M"}})
		r := b.outcome(call{}, p, "dd", "if=/dev/zero", "of=big", "bs=1M", "count=64")
		b.expect(r, result.FileExceeded, result.FindingFile, 153)
		b.expect(b.outcome(call{}, p, "sh", "-c", "truncate -s 1T sparse; exit $?"), result.FileExceeded, result.FindingFile, 153)
		b.expect(b.outcome(call{}, p, "sh", "-c", "dd if=/dev/zero of=/tmp/big bs=1M count=64; exit $?"), result.FileExceeded, result.FindingFile, 153)
		if info, err := os.Stat(filepath.Join(ws, "big")); err != nil || info.Size() != 8<<20 {
			b.t.Errorf("the file has %v: %v", info, err)
		}
		r = b.outcome(call{}, p, "head", "-c", "20m", "/dev/zero")
		b.expect(r, result.Exited, "null", 0)
		same(b.t, "bytes through a pipe", 20<<20, r.StdoutBytes)
	})
}

// TestLimitNofile: as asked in every exec; the caller's own where the policy is silent.
func TestLimitNofile(t *testing.T) {
	flavours(t, func(b *box) {
		b.create("asked", b.limits(object{"nofile": 77}))
		b.create("silent", b.limits(object{}))
		for _, way := range []string{"on", "off"} {
			c := call{env: []string{"SANDBOXRUN_PLAIN_EXEC=" + way}}
			for range 3 {
				b.call(c, "exec", "asked", "sh", "-c", "ulimit -Sn; ulimit -Hn").prints("77\n77\n")
			}
			c.wrap = []string{"sh", "-c", `ulimit -Sn 321; exec "$@"`, "sh"}
			b.call(c, "exec", "silent", "sh", "-c", "ulimit -Sn").prints("321\n")
			b.call(c, "exec", "asked", "sh", "-c", "ulimit -Sn").prints("77\n")
		}
	})
}

// TestLimitWallAndIdle: time on the clock, and time without a word.
func TestLimitWallAndIdle(t *testing.T) {
	flavours(t, func(b *box) {
		idle := b.limits(object{"idle": "0.4s", "wall": "10s"})
		r := b.outcome(call{}, idle, "sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done; sleep 20")
		b.expect(r, result.IdleTimeout, result.FindingWall, 124)
		if r.Stdout != "1\n2\n3\n4\n5\n6\n" || !r.TimedOut || r.Usage.WallMS > 4000 {
			b.t.Errorf("%+v", r)
		}
		r = b.outcome(call{}, b.limits(object{"wall": "0.4s"}), "sh", "-c", "while :; do echo x; sleep 0.05; done")
		b.expect(r, result.Timeout, result.FindingWall, 124)
		if r.Usage.WallMS < 400 || r.Usage.WallMS > 1500 || !strings.HasPrefix(r.Stdout, "x\nx\n") {
			b.t.Errorf("%+v", r)
		}
	})
}

// TestLimitDisk: what is added to writable grants, in blocks.
func TestLimitDisk(t *testing.T) {
	flavours(t, func(b *box) {
		ws := b.mkdir("ws")
		b.file("ws/there", strings.Repeat("x", 5<<20))
		policy := func() string {
			return b.policy(object{"workdir": ws, "files": object{"write": []string{ws}}, "limits": object{"disk": "32M", "wall": "30s"}})
		}
		b.expect(b.outcome(call{}, policy(), "sh", "-c", "truncate -s 1T sparse; head -c 20m /dev/zero >a; rm a; head -c 20m /dev/zero >a"), result.Exited, "null", 0)
		r := b.outcome(call{}, policy(), "sh", "-c", "while :; do head -c 1m /dev/zero >>more; done; echo no")
		b.expect(r, result.DiskExceeded, result.FindingDisk, 137)
		info, err := os.Stat(filepath.Join(ws, "more"))
		if err != nil || info.Size() < 30<<20 || info.Size() > (32+64)<<20 {
			b.t.Errorf("it wrote %v: %v", info, err)
		}
		// What has no name any more, and what the launcher may not look into, takes space all the same.
		for _, hidden := range []string{"exec 3>gone; rm gone; while :; do head -c 1m /dev/zero >&3; done", "mkdir d; exec 3>d/f; chmod 0 d; while :; do head -c 1m /dev/zero >&3; done"} {
			r = b.outcome(call{}, policy(), "timeout", "10", "sh", "-c", hidden)
			b.expect(r, result.DiskExceeded, result.FindingDisk, 137)
			b.run("run", "--policy", policy(), "--", "sh", "-c", "chmod 700 d; rm -rf d more")
		}
		// Over before anybody looked: told all the same, with the program's own status.
		r = b.outcome(call{}, policy(), "sh", "-c", "fallocate -l 40M at-once; exit 3")
		if r.ExitCode != 137 { // nobody was quicker
			b.expect(r, result.DiskExceeded, result.FindingDisk, 3)
		}
		same(b.t, "after a quick one", result.DiskExceeded, r.Outcome)
		// The limit is the sandbox's: execs add up.
		b.create("box", policy())
		for i, want := range []string{result.Exited, result.Exited, result.DiskExceeded} {
			r := b.result("box", "sh", "-c", fmt.Sprintf("head -c 14m /dev/zero >part%d", i))
			same(b.t, fmt.Sprintf("exec %d", i), want, r.Outcome)
		}
	})
}
