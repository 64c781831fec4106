package policy

import "testing"

// BenchmarkLoad is what every run without --policy pays.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(Default("/work")); err != nil {
			b.Fatal(err)
		}
	}
}
