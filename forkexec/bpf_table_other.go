//go:build !amd64 && !arm64

package forkexec

// There is no table for this architecture: CompileSeccomp refuses every profile.
const (
	bpfArch      = ""
	bpfAuditArch = 0
)

func callNumbers() map[string]uint32 { return nil }
