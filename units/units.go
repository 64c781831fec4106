// Package units reads and writes sizes and durations in the one form that policies, flags and messages have. It imports none of ours.
package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds that keep sums of sizes and of times far from overflow.
const (
	MaxSize     = 1 << 60                   // 1 EiB
	MaxDuration = 10 * 365 * 24 * time.Hour // ten years
)

// The patterns that a size and a duration match, for a JSON Schema.
const (
	SizePattern     = `^[1-9][0-9]*[KMGT]?$`
	DurationPattern = `^([0-9]+(\.[0-9]*)?|\.[0-9]+|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
)

// Size formats a number of bytes as in a policy: "256M". A number without a unit gets the word: "1000 bytes".
func Size(n int64) string {
	unit := 0
	for unit < len("KMGT") && n > 0 && n%1024 == 0 {
		n /= 1024
		unit++
	}
	switch {
	case unit > 0:
		return strconv.FormatInt(n, 10) + "KMGT"[unit-1:unit]
	case n == 1:
		return "1 byte"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// ParseSize reads a number of bytes: a whole number above 0, with K, M, G or T for powers of 1024; at most 2^60.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMGT")
	n, err := strconv.ParseUint(digits, 10, 63)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("parse size %q: it is above 2^60 bytes", s)
	}
	if err != nil || len(s)-len(digits) > 1 || strings.HasPrefix(digits, "0") && n > 0 {
		return 0, fmt.Errorf("parse size %q: want bytes, or a whole number with K, M, G or T", s)
	}
	shift := 0
	if unit := s[len(digits):]; unit != "" {
		shift = 10 * (1 + strings.Index("KMGT", unit))
	}
	if n > MaxSize>>shift {
		return 0, fmt.Errorf("parse size %q: it is above 2^60 bytes", s)
	}
	if n == 0 {
		return 0, fmt.Errorf("parse size %q: it must be above 0", s)
	}
	return int64(n) << shift, nil
}

// CheckSize refuses a number of bytes that ParseSize would refuse.
func CheckSize(n int64) error {
	if n <= 0 || n > MaxSize {
		return fmt.Errorf("want 1 to 2^60 bytes, got %d", n)
	}
	return nil
}

// ParseDuration reads a duration in Go's form ("1m30s"); a bare number is seconds. It is never negative, and at most ten years. A
// duration between zero and a nanosecond is an error, because zero means no limit.
func ParseDuration(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("parse duration %q: %w", s, err)
	}
	return d, nil
}

func parseDuration(s string) (time.Duration, error) {
	bad := errors.New(`want something like "1m30s", or a number of seconds`)
	if strings.Trim(s, "0123456789.") == "" {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, bad
		}
		return Seconds(f)
	}
	if strings.HasPrefix(s, "-") {
		return 0, errors.New("it must not be negative")
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || strings.HasPrefix(s, "+"):
		return 0, bad
	case d > MaxDuration:
		return 0, errors.New("it is above ten years")
	case d == 0 && strings.ContainsAny(s, "123456789"):
		return 0, errors.New("it is below a nanosecond")
	}
	return d, nil
}

// Seconds converts a bare number to a duration, as ParseDuration does.
func Seconds(f float64) (time.Duration, error) {
	switch {
	case math.IsNaN(f):
		return 0, errors.New("it is not a number")
	case f < 0:
		return 0, errors.New("it must not be negative")
	case f > MaxDuration.Seconds():
		return 0, errors.New("it is above ten years")
	case f > 0 && f < 1e-9:
		return 0, errors.New("it is below a nanosecond")
	}
	return time.Duration(math.Round(f * 1e9)), nil
}
