package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// TestExecuteNeedsLandlock: nothing else holds the key, so no policy gets less.
func TestExecuteNeedsLandlock(t *testing.T) {
	for version, says := range map[int]string{0: "it needs Landlock 2, and this machine has 0", 1: "has 1", MinLandlock: "is no file that can be executed"} {
		for _, enforce := range []string{policy.EnforceRequired, policy.EnforceBestEffort} {
			_, err := resolve(t, "version = 1\nenforce = '"+enforce+"'\n[processes]\nexecute = ['/etc/services']", func(h *Host) { h.Landlock = version })
			var e *fault.Error
			if !errors.As(err, &e) || !strings.Contains(e.Error(), says) {
				t.Errorf("Landlock %d, %s: got %v, want %q", version, enforce, err, says)
			}
		}
	}
}
