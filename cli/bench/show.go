package bench

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// report is what was measured.
type report struct {
	Processors int      `json:"processors"`
	Kernel     string   `json:"kernel"`
	Root       bool     `json:"root"`
	Rounds     int      `json:"rounds"`
	Rows       []figure `json:"rows"`
	Missing    []string `json:"left_out"` // and why
}

// figure is a row: milliseconds from start to end, and what the median is of others'.
type figure struct {
	Name    string   `json:"name"`
	Median  float64  `json:"median_ms"`
	P10     float64  `json:"p10_ms"`
	P90     float64  `json:"p90_ms"`
	OfBare  *float64 `json:"of_bare"`  // null: there is none to compare with
	OfBwrap *float64 `json:"of_bwrap"` // the same
}

func (b *bench) report(rounds int) *report {
	kernel, _ := machine() // the figures are good without it
	r := &report{Processors: runtime.NumCPU(), Kernel: kernel, Root: os.Geteuid() == 0, Rounds: rounds, Missing: b.missing}
	medians := map[string]float64{}
	for _, row := range b.rows {
		slices.Sort(row.times)
		medians[row.name] = percentile(row.times, 50)
	}
	of := func(name, other string) *float64 {
		m, ok := medians[other]
		if !ok || m == 0 {
			return nil
		}
		ratio := medians[name] / m
		return &ratio
	}
	for _, row := range b.rows {
		r.Rows = append(r.Rows, figure{
			row.name, medians[row.name], percentile(row.times, 10), percentile(row.times, 90), of(row.name, rowBare), of(row.name, rowBwrap),
		})
	}
	return r
}

// percentile is that of sorted numbers.
func percentile(sorted []float64, p int) float64 {
	const all = 100
	at := float64(p) / all * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func (r *report) head() string {
	who := "an unprivileged user"
	if r.Root {
		who = "root"
	}
	return fmt.Sprintf("%d processors, Linux %s, as %s, %d rounds", r.Processors, r.Kernel, who, r.Rounds)
}

func ratio(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *f)
}

func (r *report) table(w io.Writer) error {
	var s strings.Builder
	fmt.Fprintf(&s, "%s\n\n%-28s%10s%9s%9s%8s%9s\n", r.head(), "", "median ms", "p10", "p90", "x bare", "x bwrap")
	for _, f := range r.Rows {
		fmt.Fprintf(&s, "%-28s%10.2f%9.2f%9.2f%8s%9s\n", f.Name, f.Median, f.P10, f.P90, ratio(f.OfBare), ratio(f.OfBwrap))
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&s, "left out: %s\n", m)
	}
	_, err := io.WriteString(w, s.String())
	return err
}

func (r *report) markdown(w io.Writer) error {
	var s strings.Builder
	fmt.Fprintf(&s, "%s.\n\n| | median ms | p10 | p90 | × bare | × bwrap |\n|---|---|---|---|---|---|\n", r.head())
	for _, f := range r.Rows {
		fmt.Fprintf(&s, "| %s | %.2f | %.2f | %.2f | %s | %s |\n", f.Name, f.Median, f.P10, f.P90, ratio(f.OfBare), ratio(f.OfBwrap))
	}
	_, err := io.WriteString(w, s.String())
	return err
}

func (r *report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// svg draws a bar for each median, with a line from the 10th to the 90th percentile.
func (r *report) svg() string {
	const left, right, line, width = 220, 90, 24, 520 // pixels
	most := 0.0
	for _, f := range r.Rows {
		most = max(most, f.P90)
	}
	at := func(ms float64) float64 { return left + ms/most*width }
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n",
		left+width+right, (len(r.Rows)+2)*line)
	fmt.Fprintf(&s, `<text x="8" y="17">%s, milliseconds</text>`+"\n", html.EscapeString(r.head()))
	for i, f := range r.Rows {
		y := (i + 1) * line
		colour := "#9aa5b1"
		if f.OfBare != nil && !slices.ContainsFunc([]string{"bare", "bwrap", "runc", "crun", "nsjail"}, func(p string) bool { return strings.HasPrefix(f.Name, p) }) {
			colour = "#3b82c4"
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+16, html.EscapeString(f.Name))
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, left, y+4, at(f.Median)-left, line-8, colour)
		fmt.Fprintf(&s, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222"/>`, at(f.P10), y+line/2, at(f.P90), y+line/2)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d">%.2f</text>`+"\n", at(f.P90)+6, y+16, f.Median)
	}
	return s.String() + "</svg>\n"
}
