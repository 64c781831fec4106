package inspect

import (
	"fmt"

	"github.com/sandboxrun/sandboxrun/hooks"
)

// printChecks prints the table of the checks at each start.
func (p *Commands) printChecks(json bool) {
	table := hooks.Checks()
	if json {
		p.PrintJSON(table)
		return
	}
	bold, off := "", ""
	if p.Colours(p.Out.File) {
		bold, off = "\x1b[1m", "\x1b[0m"
	}
	for _, c := range table {
		fmt.Fprintf(p.Out, "%s%s%s (%s)\n", bold, c.Name, off, c.Layer)
		for _, line := range [][2]string{
			{"claim", c.Claim}, {"must work", c.Positive}, {"must fail", c.Negative}, {"control", c.Control},
		} {
			if line[1] != "" {
				fmt.Fprintf(p.Out, "    %-10s %s\n", line[0], line[1])
			}
		}
	}
}
