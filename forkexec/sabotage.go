//go:build sabotage

package forkexec

/*
#cgo CFLAGS: -DFX_SABOTAGE
#include <stdlib.h>
int fx_without(const char *layer);
*/
import "C"

import "unsafe"

// Without reports whether this build for tests is to leave a layer out.
func Without(layer string) bool {
	name := C.CString(layer)
	defer C.free(unsafe.Pointer(name))
	return C.fx_without(name) != 0
}
