package relay

import "testing"

func TestFit(t *testing.T) {
	for _, test := range []struct {
		conns int
		files uint64
		want  int
	}{
		{1024, 1 << 20, 1024}, {1024, 4096, 666}, {1024, 1024, 154}, {1024, 256, 26}, {1024, 20, 8}, {1024, 0, 8}, {1, 1 << 20, 1}, {1024, 1<<64 - 1, 1024},
	} {
		if got := fit(test.conns, test.files); got != test.want {
			t.Errorf("%d connections, %d descriptors: %d, want %d", test.conns, test.files, got, test.want)
		}
	}
}
