// Package show writes figures and names for people. Names come from programs, policies and records, so none of them may control the
// terminal that shows it. It imports of ours units.
package show

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/units"
)

// Colours of a terminal.
const (
	Red    = "\x1b[31m"
	Alarm  = "\x1b[1;31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	Cyan   = "\x1b[36m"
	Normal = "\x1b[0m"
)

// OneLine replaces control characters in a line by "?", so that it cannot control the terminal.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// AboutSize formats a number of bytes with at most four digits: "100.3M".
func AboutSize(bytes int64) string {
	if bytes < 1024 {
		return strconv.FormatInt(bytes, 10)
	}
	n, unit := float64(bytes), ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if n < 1000 { // 1023 would need a fifth character
			break
		}
		n, unit = n/1024, u
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") + unit
}

// AboutTime formats milliseconds as seconds, minutes or hours.
func AboutTime(ms float64) string {
	const minute, hour = 60, 60 * 60
	text := func(format string, n float64, unit string) string {
		return strings.TrimSuffix(strings.TrimSuffix(fmt.Sprintf(format, n), ".00"), ".0") + unit
	}
	switch n := ms / 1000; {
	case n < 10:
		return text("%.2f", n, "s")
	case n < 10*minute:
		return text("%.1f", n, "s")
	case n < 10*hour:
		return text("%.1f", n/minute, "m")
	default:
		return text("%.1f", n/hour, "h")
	}
}

// Limit formats a limit as in a policy.
func Limit(name string, value float64) string {
	switch name {
	case "memory", "file", "disk", "output":
		return units.Size(int64(value))
	case "wall", "idle", "cpu":
		return fmt.Sprintf("%.6gs", value)
	}
	return fmt.Sprintf("%.6g", value)
}

// AboutWall formats the milliseconds that an exec or a connection took.
func AboutWall(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}
