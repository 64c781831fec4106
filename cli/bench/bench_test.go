package bench

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		p    int
		want float64
	}{{0, 1}, {10, 1.4}, {50, 3}, {90, 4.6}, {100, 5}} {
		if got := percentile([]float64{1, 2, 3, 4, 5}, c.p); got != c.want {
			t.Errorf("percentile %d is %g, want %g", c.p, got, c.want)
		}
	}
}

// TestReport: every form has every row, and is what it says that it is.
func TestReport(t *testing.T) {
	b := &bench{missing: []string{"nsjail: not installed"}}
	for name, ms := range map[string]float64{rowBare: 1, rowBwrap: 5, "run <in> a pool": 3} {
		b.rows = append(b.rows, &row{name: name, times: []float64{ms, ms, ms, ms, ms}})
	}
	r := b.report(5)
	for _, f := range r.Rows {
		if *f.OfBare != f.Median || *f.OfBwrap != f.Median/5 {
			t.Errorf("%+v", f)
		}
	}
	var table, markdown, object strings.Builder
	if r.table(&table) != nil || r.markdown(&markdown) != nil || r.json(&object) != nil {
		t.Fatal("cannot be written")
	}
	for what, text := range map[string]string{"table": table.String(), "markdown": markdown.String(), "svg": r.svg()} {
		if n := strings.Count(text, "bwrap"); n == 0 || !strings.Contains(text, "a pool") {
			t.Errorf("%s: %s", what, text)
		}
	}
	var back report
	if err := json.Unmarshal([]byte(object.String()), &back); err != nil || len(back.Rows) != 3 || back.Missing[0] != b.missing[0] {
		t.Errorf("%v %+v", err, back)
	}
	for d := xml.NewDecoder(strings.NewReader(r.svg())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
