package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/container/stats"
)

const (
	warning = "\x1b[33m"
	normal  = "\x1b[0m"
	// scarce is the part of a limit above which a figure is highlighted.
	scarce = 0.9
)

// figure is one row of the table.
type figure struct {
	name, used, limit string
	near              bool // near its limit
	each              bool // the limit holds for each exec
}

// figures are the rows. Live figures include rates, which need two measurements.
func figures(s *stats.Stats, live bool) []figure {
	list := []figure{
		measure("memory", &s.MemoryBytes, s.MemoryLimit, aboutSize),
		measure("cpu", &s.CPUMS, s.CPULimitMS, aboutTime),
	}
	if live {
		list = append(list, measure("cpu now", s.CPUPercent, s.CPULimitPercent, func(n float64) string { return fmt.Sprintf("%.0f%%", n) }))
		list[len(list)-1].near = false // a busy processor is normal
	}
	pids := int64(s.Pids)
	list = append(list, measure("pids", &pids, s.PidsLimit, func(n int64) string { return strconv.FormatInt(n, 10) }))
	if s.DiskBytes != nil {
		list = append(list, measure("disk", s.DiskBytes, s.DiskLimit, aboutSize))
	}
	for i := range list {
		list[i].each = slices.Contains(s.EachExec, list[i].name)
	}
	if n := s.Network; n != nil {
		list = append(list, figure{name: "sent", used: aboutSize(n.Sent)}, figure{name: "received", used: aboutSize(n.Received)},
			figure{name: "allowed", used: strconv.FormatInt(n.Allowed, 10)}, figure{name: "refused", used: strconv.FormatInt(n.Refused+n.Failed, 10)})
	}
	return append(list, figure{name: "execs", used: strconv.Itoa(s.Execs)})
}

func measure[T int64 | float64](name string, used, limit *T, text func(T) string) figure {
	f := figure{name: name, used: "-"}
	if used != nil {
		f.used = text(*used)
	}
	if limit != nil {
		f.limit = text(*limit)
		f.near = used != nil && float64(*used) >= scarce*float64(*limit)
	}
	return f
}

// statsTable is a line for each row, below a header.
func (p *program) statsTable(s *stats.Stats, live bool) []string {
	const row = "%-8s %8s %8s"
	colours := p.colours(p.out.f)
	lines := []string{fmt.Sprintf(row, "", "USED", "LIMIT")}
	for _, f := range figures(s, live) {
		limit := f.limit
		if limit == "" {
			limit = "-"
		}
		line := fmt.Sprintf(row, f.name, f.used, limit)
		if f.near && colours {
			line = warning + line + normal
		}
		if f.each && f.limit != "" {
			line += "  each exec"
		}
		lines = append(lines, line)
	}
	return lines
}

// statsLine is all figures in one line.
func statsLine(s *stats.Stats) string {
	parts := []string{s.Time.Local().Format("15:04:05.000")}
	for _, f := range figures(s, true) {
		part := f.name + " " + f.used
		if f.limit != "" {
			part += "/" + f.limit
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "  ")
}

// aboutSize formats a number of bytes with at most four digits: "100.3M".
func aboutSize(bytes int64) string {
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

// aboutTime formats milliseconds as seconds, minutes or hours.
func aboutTime(ms float64) string {
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
