package spec

import "testing"

// BenchmarkLoad is what every run without --policy pays.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(DefaultPolicy("/work")); err != nil {
			b.Fatal(err)
		}
	}
}
