package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container/stats"
)

const (
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
		measure("memory", &s.MemoryBytes, s.MemoryLimit, show.AboutSize),
		measure("cpu", &s.CPUMS, s.CPULimitMS, show.AboutTime),
	}
	if live {
		list = append(list, measure("cpu now", s.CPUPercent, s.CPULimitPercent, func(n float64) string { return fmt.Sprintf("%.0f%%", n) }))
		list[len(list)-1].near = false // a busy processor is normal
	}
	pids := int64(s.Pids)
	list = append(list, measure("pids", &pids, s.PidsLimit, func(n int64) string { return strconv.FormatInt(n, 10) }))
	if s.DiskBytes != nil {
		list = append(list, measure("disk", s.DiskBytes, s.DiskLimit, show.AboutSize))
	}
	for i := range list {
		list[i].each = slices.Contains(s.EachExec, list[i].name)
	}
	if n := s.Network; n != nil {
		list = append(list, figure{name: "sent", used: show.AboutSize(n.Sent)}, figure{name: "received", used: show.AboutSize(n.Received)},
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
func (p *Commands) statsTable(s *stats.Stats, live bool) []string {
	const row = "%-8s %8s %8s"
	colours := p.Colours(p.Out.File)
	lines := []string{fmt.Sprintf(row, "", "USED", "LIMIT")}
	for _, f := range figures(s, live) {
		limit := f.limit
		if limit == "" {
			limit = "-"
		}
		line := fmt.Sprintf(row, f.name, f.used, limit)
		if f.near && colours {
			line = show.Yellow + line + show.Normal
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
