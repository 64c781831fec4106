package cli

import (
	"fmt"

	"github.com/sandboxrun/sandboxrun/hooks"
)

// printChecks prints the table of the checks at each start.
func (p *program) printChecks(json bool) {
	table := hooks.Checks()
	if json {
		p.printJSON(table)
		return
	}
	bold, off := "", ""
	if p.colours(p.out.f) {
		bold, off = "\x1b[1m", "\x1b[0m"
	}
	for _, c := range table {
		fmt.Fprintf(p.out, "%s%s%s (%s)\n", bold, c.Name, off, c.Layer)
		for _, line := range [][2]string{
			{"claim", c.Claim}, {"must work", c.Positive}, {"must fail", c.Negative}, {"control", c.Control},
		} {
			if line[1] != "" {
				fmt.Fprintf(p.out, "    %-10s %s\n", line[0], line[1])
			}
		}
	}
}
