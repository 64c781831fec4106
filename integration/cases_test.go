package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// sharedCases are the scripts of public failure reports that must hold. What each shows is tested in this package's own
// words too: see the cases_*_test.go.
var sharedCases = []string{
	"fs01", "fs02", "fs03", "fs06", "fs07", "fs08", "fs09", "fs10", "fs11",
	"pr01", "pr02", "pr03", "pr04", "pr07", "pr08", "pr09", "pr10", "pr11", "pr12", "pr13", "dv01", "dv03", "us01", "us03", "st02", "st03", "st04", "kn02",
	"lm01", "lm02", "lm04", "nt01", "nt02", "nt04", "nt05", "nt07", "nt08", "nt09",
}

// TestSharedCases runs the shared scripts, where they are, against the binary. A script says by status 77 that it cannot
// be tried here.
func TestSharedCases(t *testing.T) {
	need(t, "cases", w.cases != "")
	needUserns(t)
	if w.uid != 0 {
		runCases(t, "user", "")
		return
	}
	runCases(t, "root", "")
	t.Run("user", func(t *testing.T) { need(t, "testuser", w.other != nil) })
	if w.other != nil {
		runCases(t, "user", w.other.Uid)
	}
}

func runCases(t *testing.T, flavour, uid string) {
	t.Helper()
	for _, id := range sharedCases {
		t.Run(flavour+"/"+id, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("bash", filepath.Join(w.cases, id+".sh"))
			cmd.Dir = w.scratch
			cmd.Env = []string{
				"PATH=" + systemPath, "HOME=/", "LANG=C.UTF-8", "SANDBOXRUN=" + w.binary, "SR_USER=" + uid, "TERM=xterm",
				"SANDBOXRUN_ROOT=", fmt.Sprintf("XDG_RUNTIME_DIR=%s", os.Getenv("XDG_RUNTIME_DIR")),
			}
			// A file, not a pipe: some leave a sleeper behind, which would hold a pipe open.
			f, err := os.CreateTemp(w.scratch, "case")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd.Stdout, cmd.Stderr = f, f
			err = cmd.Run()
			out, _ := os.ReadFile(f.Name())
			switch status := cmd.ProcessState.ExitCode(); {
			case status == 77:
				t.Skipf("%s", out)
			case err != nil:
				t.Errorf("%s: %v\n%s", id, err, out)
			}
		})
	}
}
