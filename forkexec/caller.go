package forkexec

/*
#include "forkexec.h"
*/
import "C"

// CallerLimits are the resource limits that the caller of this command had set, which programs are to have. The command may have
// raised its own.
func CallerLimits() []Rlimit {
	list := make([]Rlimit, 0, C.FX_CALLER_LIMITS)
	for _, l := range &C.fx_caller_limits {
		list = append(list, Rlimit{Resource: int(l.resource), Cur: uint64(l.cur), Max: uint64(l.max)})
	}
	return list
}

// SetCallerLimits has programs get the limits of somebody else's caller: a monitor's is the command that started it. What
// is not in the list stays as it is. It must not be called while programs are being started.
func SetCallerLimits(list []Rlimit) {
	for _, want := range list {
		for i := range C.fx_caller_limits {
			if l := &C.fx_caller_limits[i]; int(l.resource) == want.Resource {
				l.cur, l.max = C.uint64_t(want.Cur), C.uint64_t(want.Max)
			}
		}
	}
}
