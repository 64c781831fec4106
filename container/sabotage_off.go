//go:build !sabotage

package container

import (
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Test builds take a layer away here, to see that a check notices (sabotage.go).
func sabotagePlan(plan *spec.Plan) *spec.Plan { return plan }

func sabotageCommand(*forkexec.Command) {}
