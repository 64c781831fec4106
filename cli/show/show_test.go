package show

import "testing"

func TestAboutSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1K", 1536: "1.5K", 1000 * 1024: "1M", 512 << 20: "512M", 105119744: "100.2M",
		1 << 30: "1G", 5 << 40: "5T", 4096 << 40: "4096T",
	} {
		if got := AboutSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestAboutTime(t *testing.T) {
	for ms, want := range map[float64]string{
		0: "0s", 4: "0s", 12: "0.01s", 1200: "1.20s", 2000: "2s", 12_340: "12.3s", 60_000: "60s", 900_000: "15m", 36_000_000: "10h",
	} {
		if got := AboutTime(ms); got != want {
			t.Errorf("%v: %q, want %q", ms, got, want)
		}
	}
}
