package units

import (
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"1": 1, "512": 512, "1K": 1 << 10, "512M": 512 << 20, "3G": 3 << 30, "2T": 2 << 40, "1048576T": 1 << 60,
		"1152921504606846976": 1 << 60,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "want bytes", "M": "want bytes", "512m": "want bytes", "512MB": "want bytes", "512MM": "want bytes",
		"1.5G": "want bytes", "-1": "want bytes", "+1": "want bytes", " 1": "want bytes", "1 ": "want bytes", "01": "want bytes",
		"0x10": "want bytes", "1_000": "want bytes", "1KiB": "want bytes", "1e3": "want bytes",
		"0": "must be above 0", "0K": "must be above 0", "1048577T": "above 2^60", "99999999999999999999": "above 2^60",
		"9223372036854775807K": "above 2^60", "1152921504606846977": "above 2^60",
	} {
		if got, err := ParseSize(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSize(%q) = %d, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "30": 30 * time.Second, "1.5": 1500 * time.Millisecond, ".5": 500 * time.Millisecond,
		"5.": 5 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "1h0m0.5s": time.Hour + time.Second/2,
		"1µs": time.Microsecond, "1ns": 1, "0.000000001": 1, "87600h": MaxDuration, "007": 7 * time.Second,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "want something", ".": "want something", "1..2": "want something", "s": "want something", "1 s": "want something",
		"1d": "want something", "+5s": "want something", "1e3": "want something", "inf": "want something", "nan": "want something",
		"0x10": "want something", "1_0": "want something", "999999999999h": "want something",
		"-1": "negative", "-1s": "negative", "-0s": "negative", "87601h": "ten years", "315360001": "ten years",
		strings.Repeat("9", 400): "ten years", "0.1ns": "below a nanosecond", "0.00000000001": "below a nanosecond",
	} {
		if got, err := ParseDuration(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseDuration(%q) = %v, %v; want %q", in, got, err, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 1: "1 byte", 1000: "1000 bytes", 1023: "1023 bytes", 1024: "1K", 1025: "1025 bytes", 1536: "1536 bytes", 256 << 20: "256M",
		1 << 30: "1G", 5 << 40: "5T", 1 << 60: "1048576T",
	} {
		got := Size(n)
		if got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
		if n == 0 {
			continue
		}
		number, _, _ := strings.Cut(got, " ")
		if back, err := ParseSize(number); err != nil || back != n {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", number, back, err, n)
		}
	}
}
