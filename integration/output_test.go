package integration

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// TestHugeOutput: however much a program prints, and whatever, the launcher keeps a bounded part and gives valid JSON.
func TestHugeOutput(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.policy(object{"limits": object{"output": "1M"}}))
		// Not from our own rusage of it: that begins with the memory of the process that has forked, which is this one.
		peakFile := b.path("peak")
		measured := []string{"python3", "-c", `
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)`, peakFile}
		needProgram(t, "python3")
		cmd := b.command(call{wrap: measured}, "exec", "--json", "box", "sh", "-c", "head -c 200000000 /dev/zero | tr '\\0' y; echo end >&2; exit 3")
		out, err := cmd.Output()
		same(t, "exit status", 3, statusOf(t, cmd, err))
		var r result.Result
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatal(err)
		}
		if r.StdoutBytes != 200000000 || !r.StdoutTruncated || r.StderrTruncated || r.Stderr != "end\n" || len(r.Stdout) > 1<<20+100 {
			t.Errorf("%d bytes, cut: %v, kept %d; %q", r.StdoutBytes, r.StdoutTruncated, len(r.Stdout), r.Stderr)
		}
		if peak, err := strconv.Atoi(b.read(peakFile)); err != nil || peak > 200<<10 {
			t.Errorf("the launcher took %d KiB: %v", peak, err)
		}

		r = b.result("box", "printf", `\377\376ok\nna\303\257ve\000z\n\302`)
		data, err := base64.StdEncoding.DecodeString(r.StdoutBase64)
		if r.Encoding != "utf-8" || err != nil || string(data) != "\xff\xfeok\nna\xc3\xafve\x00z\n\xc2" || r.Stdout != "\ufffdok\nnaïve\x00z\n\ufffd" {
			t.Errorf("binary: %+v", r)
		}
		needProgram(t, "python3")
		r = b.result("box", "python3", "-c", "print('a' + 'é' * 3000000)")
		if r.Encoding != "utf-8" || !r.StdoutTruncated || !strings.Contains(r.Stdout, "é\n[... ") || !strings.Contains(r.Stdout, " bytes left out ...]\né") {
			t.Errorf("cut inside a character: %s, %v", r.Encoding, r.StdoutTruncated)
		}
		r = b.result("box", "sh", "-c", "head -c 3000000 /dev/zero >&2; echo ok")
		same(t, "after a full stderr", "ok\n", r.Stdout)
	})
}

// TestFullTmpfs: a file system in memory is full when it is full, by bytes and by number of files.
func TestFullTmpfs(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		small := b.policy(object{"files": object{"tmpfs": []object{{"path": "/tmp", "size": "16M", "inodes": 1000}}}})
		b.sh(small, "dd if=/dev/zero of=/tmp/x bs=1M count=64").exits(1).complains("No space left")
		b.sh(small, "i=0; while [ $i -lt 5000 ] && echo >/tmp/f$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 1000 ]").exits(0)
		// Where the policy does not say, it follows from the memory limit.
		limited := b.policy(object{"limits": object{"memory": "128M"}})
		b.sh(limited, "df -m /tmp /dev/shm | awk 'NR > 1 { print $2 }'").prints("64\n64\n")
		b.sh(b.policy(object{}), "df -m /tmp | awk 'NR > 1 { print $2 }'").prints("1024\n")
		if _, err := os.Stat(filepath.Join(b.dir, "x")); err == nil {
			t.Error("it was written outside")
		}
	})
}
