// Package template makes the texts of an exec's result and events with holes in them, for the short way (forkexec/answer.c), which fills
// them in before Go starts. Each text is what Go itself writes, of values that stand for the holes: so there is one place that knows the form.
// It imports of ours forkexec, journal and result.
package template

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// standsFor is more than any number that a template has, and less than what JSON rounds.
const standsFor = 9_007_199_254_740_000

// Time stands for a length of time that is not known yet.
const Time = 3_333_333_333 * time.Second

func number(hole string) int64 { return standsFor + int64(hole[1]) }

// Text stands for a hole while a template is made.
func Text(hole string) string { return strconv.FormatInt(number(hole), 10) }

// put puts holes where something stands for them. Each must be found once; else the template is empty.
func put(text []byte, list map[string]string) string {
	t := strings.TrimSuffix(string(text), "\n")
	for is, hole := range list {
		if strings.Count(t, is) != 1 {
			return ""
		}
		t = strings.Replace(t, is, hole, 1)
	}
	return t
}

func standing(holes ...string) map[string]string {
	list := map[string]string{}
	for _, h := range holes {
		is := Text(h)
		if h == forkexec.HoleFinding {
			is = strconv.Quote(is) // it may be null
		}
		list[is] = h
	}
	return list
}

// Result is the template of the result of a program that has exited. r is one of an exec whose name is Text(forkexec.HoleExec); more are other
// texts of it that stand for holes.
func Result(r *result.Result, more map[string]string) (string, error) {
	r.ExitCode = int(number(forkexec.HoleStatus))
	r.SetFinding(Text(forkexec.HoleFinding))
	r.Stdout, r.Stderr = Text(forkexec.HoleStdout), Text(forkexec.HoleStderr)
	r.StdoutBytes, r.StderrBytes = number(forkexec.HoleStdoutBytes), number(forkexec.HoleStderrBytes)
	r.Usage = result.Usage{
		WallMS: float64(number(forkexec.HoleWall)), CPUMS: float64(number(forkexec.HoleCPU)), MaxRSSBytes: number(forkexec.HoleRSS),
		WrittenBytes: number(forkexec.HoleWritten), Processes: int(number(forkexec.HoleTasks)),
	}
	list := standing(forkexec.HoleExec, forkexec.HoleStatus, forkexec.HoleFinding, forkexec.HoleStdout, forkexec.HoleStderr, forkexec.HoleStdoutBytes,
		forkexec.HoleStderrBytes, forkexec.HoleWall, forkexec.HoleCPU, forkexec.HoleRSS, forkexec.HoleWritten, forkexec.HoleTasks)
	maps.Copy(list, more)
	data, err := r.Encode()
	return put(data, list), err
}

// Started is the template of the event that an exec has started.
func Started() (string, error) {
	return event(journal.Event{Event: journal.Started, ExecStart: &journal.ExecStart{Command: Text(forkexec.HoleCommand)}}, forkexec.HoleCommand)
}

// Ended is that of the event that its program has exited.
func Ended() (string, error) {
	finding := Text(forkexec.HoleFinding)
	return event(journal.Event{Event: journal.Ended, ExecEnd: &journal.ExecEnd{
		Outcome: result.Exited, Finding: &finding, ExitCode: int(number(forkexec.HoleStatus)), WallMS: float64(number(forkexec.HoleWall)),
		CPUMS: float64(number(forkexec.HoleCPU)), MaxRSSBytes: number(forkexec.HoleRSS),
	}}, forkexec.HoleFinding, forkexec.HoleStatus, forkexec.HoleWall, forkexec.HoleCPU, forkexec.HoleRSS)
}

func event(e journal.Event, holes ...string) (string, error) {
	e.Exec, e.Time = Text(forkexec.HoleExec), time.Unix(0, 0)
	list := standing(append(holes, forkexec.HoleExec)...)
	list[e.Time.UTC().Format(journal.TimeForm)] = forkexec.HoleTime
	data, err := e.Encode()
	return put(data, list), err
}
