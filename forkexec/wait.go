package forkexec

/*
#include "forkexec.h"
#include "groups.h"
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// An exec may be started before there is a program for it (Limits.Waits): a waiting exec has its own namespaces, control groups and rlimits as
// any other, its processes count in the sandbox's limits, and its limits of CPU time, memory and processes hold. It has no number, and no clock runs.

// waiting tells the control groups of this process' waiting execs apart.
var waiting atomic.Int64 //nolint:gochecknoglobals // it counts in the process

// Begin begins a waiting exec: it gets its number, and from now on its time counts. l are its limits; those that were fixed by its start must be
// the same.
func (p *Process) Begin(l *Limits) error {
	before, err := p.used()
	if err != nil {
		return fmt.Errorf("read what the waiting exec has used: %w", err)
	}
	name, err := Number(l.State)
	if err != nil {
		return err
	}
	m, c := p.limits, p.limits.c
	p.Name = name
	c.wall_us, c.idle_us, c.cpu_us = micros(l.Wall), micros(l.Idle), micros(l.CPU)
	c.started_us = C.fx_now_us()
	if !l.Started.IsZero() {
		c.started_us -= micros(time.Since(l.Started))
	}
	c.cpu_before_us = micros(before)
	if counted := C.fx_counted(c, C.FX_COUNT_CPU); counted > 0 {
		c.counted_before_us = counted
	}
	c.cpu_used_us, c.cpu_last_us, c.cpu_gone_us = 0, 0, 0
	if m.check = l.Check; m.check != nil {
		m.ended.Go(func() { m.repeat(0, p.checkElsewhere, nil) })
	}
	select {
	case m.found <- struct{}{}: // the clock has another time to look at
	default:
	}
	return nil
}

// used is the processor time of the program's process until now.
func (p *Process) used() (time.Duration, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", p.program.Fd()))
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(string(info), "\nPid:")
	text, _, _ = strings.Cut(text, "\n")
	pid, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err == nil && pid <= 0 {
		err = unix.ESRCH
	}
	if err != nil {
		return 0, err
	}
	const sched = 2 // CPUCLOCK_SCHED: a process' clock has the complement of its number, see clock_getcpuclockid(3)
	var t unix.Timespec
	err = unix.ClockGettime(int32(^pid<<3|sched), &t)
	return time.Duration(t.Nano()), err
}
