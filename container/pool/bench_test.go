package pool

import (
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// BenchmarkTake measures what it takes to get a sandbox of the default policy from a pool of this process, against a bare spawn.
func BenchmarkTake(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("take", func(b *testing.B) {
		p, _ := poolOf(b, b.TempDir())
		n := 0
		for b.Loop() {
			b.StopTimer()
			full(b, p)
			time.Sleep(5 * time.Millisecond) // until the next one is being made: nobody has a pool of one
			b.StartTimer()
			n++
			sb, _, err := p.Take(fmt.Sprint("box-", n), mine())
			b.StopTimer()
			if err != nil {
				b.Fatal(err)
			}
			if err := sb.Delete(nil); err != nil {
				b.Fatal(err)
			}
			sb.Close()
			b.StartTimer()
		}
	})
}
