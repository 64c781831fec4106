// Package bench measures this machine: what a program in a sandbox costs, beside the same program bare and in whichever other launchers are
// installed. All commands are run in turns, in an order that changes, so what else the machine does falls on all of them alike: the ratios
// count, not the milliseconds.
//
//	rows.go    what is run        peers.go   other launchers        show.go   table, Markdown, JSON, SVG
//
// It runs the commands of this binary and of others like any caller; it knows nothing of their insides.
package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/fault"
)

const defaultRounds = 40

// Command is the command bench.
func Command(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "bench", Usage: "measure sandboxes on this machine, beside other launchers that are installed",
		Description: "Runs /bin/true bare, in sandboxes and in other launchers (bwrap, crun, runc, nsjail), in turns, and prints the median, the\n" +
			"10th and the 90th percentile of the milliseconds from start to end. The ratios count: run it while the machine is quiet.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "rounds", Value: defaultRounds, Usage: "run each command `N` times"},
			&cli.BoolFlag{Name: "options", Usage: "also measure an exec with each of its options, with limits and with denied paths"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON"},
			&cli.BoolFlag{Name: "markdown", Usage: "print the table in Markdown"},
			&cli.StringFlag{Name: "svg", Usage: "also draw the medians in `FILE`"},
		},
		Action: func(c *cli.Context) error { return run(p, c) },
	}
}

func run(p *caller.Caller, c *cli.Context) (err error) {
	if c.NArg() > 0 {
		return fault.Usage(fmt.Sprintf("unexpected argument %q", c.Args().First()), "sandboxrun bench --help")
	}
	const fewest = 5 // for a percentile
	if c.Int("rounds") < fewest {
		return fault.Usage(fmt.Sprintf("--rounds %d: at least %d", c.Int("rounds"), fewest), "")
	}
	b, err := newBench(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.addRows(c.Bool("options")); err != nil {
		return err
	}
	b.addPeers()
	if err := b.measure(c.Int("rounds")); err != nil {
		return err
	}
	report := b.report(c.Int("rounds"))
	if name := c.String("svg"); name != "" {
		if err := os.WriteFile(name, []byte(report.svg()), 0o644); err != nil {
			return fmt.Errorf("draw medians: %w", err)
		}
	}
	switch {
	case c.Bool("json"):
		return report.json(p.Out)
	case c.Bool("markdown"):
		return report.markdown(p.Out)
	}
	return report.table(p.Out)
}

// row is a command that is measured.
type row struct {
	name   string
	args   []string
	env    []string     // beside the bench's
	before func() error // not measured; may change args
	after  func() error
	times  []float64 // milliseconds
}

type bench struct {
	caller  *caller.Caller
	self    string // this binary
	scratch string // the workspace and the state are in it
	env     []string
	null    *os.File
	rows    []*row
	missing []string // what could not be measured, and why
	closers []func() error
	made    int
}

func newBench(p *caller.Caller) (*bench, error) {
	b := &bench{caller: p}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if b.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if b.scratch, err = os.MkdirTemp("", "sandboxrun-bench-"); err != nil {
		return nil, err
	}
	for name, value := range p.Env {
		if name != "SANDBOXRUN_POOL" && name != "SANDBOXRUN_ROOT" && name != "PWD" {
			b.env = append(b.env, name+"="+value)
		}
	}
	b.env = append(b.env, "SANDBOXRUN_ROOT="+filepath.Join(b.scratch, "state"))
	b.closers = append(b.closers, func() error { return os.RemoveAll(b.scratch) }, b.null.Close)
	return b, os.Mkdir(b.work(), 0o700)
}

// work is the directory that everything is run in.
func (b *bench) work() string { return filepath.Join(b.scratch, "work") }

func (b *bench) close() error {
	var all error
	for _, closer := range slices.Backward(b.closers) {
		all = errors.Join(all, closer())
	}
	return all
}

// name makes a new id.
func (b *bench) name() string {
	b.made++
	return fmt.Sprintf("bench-%d-%d", os.Getpid(), b.made)
}

// add adds a row if it can be run at all.
func (b *bench) add(r *row) {
	if _, err := b.once(r); err != nil {
		b.missing = append(b.missing, r.name+": "+err.Error())
		return
	}
	b.rows = append(b.rows, r)
}

// once runs a row and says what time it took.
func (b *bench) once(r *row) (time.Duration, error) {
	if r.before != nil {
		if err := r.before(); err != nil {
			return 0, err
		}
	}
	took, err := b.timed(r.args, r.env)
	if err == nil && r.after != nil {
		err = r.after()
	}
	return took, err
}

func (b *bench) timed(args, env []string) (time.Duration, error) {
	start := time.Now()
	process, err := os.StartProcess(args[0], args, &os.ProcAttr{
		Dir: b.work(), Env: append(slices.Clip(b.env), env...), Files: []*os.File{b.null, b.null, b.null},
	})
	if err != nil {
		return 0, err
	}
	state, err := process.Wait()
	took := time.Since(start)
	if err == nil && !state.Success() {
		err = fmt.Errorf("%s: %s", strings.Join(args[:min(len(args), 4)], " "), state)
	}
	return took, err
}

func (b *bench) measure(rounds int) error {
	order := slices.Clone(b.rows)
	for range rounds {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, r := range order {
			took, err := b.once(r)
			if err != nil {
				return fault.New("bench_failed", "", "measure %s: %w", r.name, err)
			}
			r.times = append(r.times, float64(took.Microseconds())/1000)
		}
	}
	return nil
}

// machine is what the figures are of.
func machine() (kernel string, err error) {
	var u unix.Utsname
	err = unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:]), err
}
