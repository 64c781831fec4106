package forkexec

/*
#include "forkexec.h"
*/
import "C"

import "os"

// Number takes the number of an exec whose program cannot be started, and gives its name.
func Number(state *os.File) (string, error) {
	m, err := openLimits(&Limits{State: state})
	if err != nil {
		return "", err
	}
	defer m.release()
	C.fx_limits_close(m.c)
	return m.name(), nil
}
