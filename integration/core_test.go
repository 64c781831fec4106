package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// crash says its limit of core files, tries to change it, says it again, and crashes.
const crash = `
import os, resource
print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
for f in (lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)), lambda: resource.prlimit(0, resource.RLIMIT_CORE, (0, 0)),
          lambda: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))):
    try: f()
    except OSError: pass
print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
if os.fork() == 0: os.abort()
os.wait(); os.abort()`

// TestNoCoreHandler: a program that crashes has no program of the host's run.
func TestNoCoreHandler(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		p := b.policy(object{})
		b.create("box", p)
		const limits = "(1, 1)\n(1, 1)\n"
		same(t, "run", limits, b.run("run", "-p", p, "--", "python3", "-c", crash).exits(134).stdout)
		for _, plain := range []string{"on", "off"} {
			a := b.call(call{env: []string{"SANDBOXRUN_PLAIN_EXEC=" + plain}}, "exec", "box", "--", "python3", "-c", crash)
			same(t, "exec, plain "+plain, limits, a.exits(134).stdout)
		}
	})
}

// TestCoreHandler gives the kernel a handler. The control is the same crash outside.
func TestCoreHandler(t *testing.T) {
	if w.uid != 0 || os.Getenv(envThrowaway) == "" {
		t.Skip("it changes kernel.core_pattern")
	}
	const pattern = "/proc/sys/kernel/core_pattern"
	before, err := os.ReadFile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t)
	ran, handler := b.path("ran"), b.file("handler", "")
	b.mustDo(os.WriteFile(handler, []byte("#!/bin/sh\n/bin/cat >/dev/null; echo x >"+ran+"\n"), 0o755), os.Chmod(handler, 0o755))
	b.mustDo(os.WriteFile(pattern, []byte("|"+handler), 0o644))
	t.Cleanup(func() { _ = os.WriteFile(pattern, before, 0o644) })
	handled := func() bool {
		time.Sleep(300 * time.Millisecond)
		_, err := os.Stat(ran)
		_ = os.Remove(ran)
		return err == nil
	}
	_ = exec.Command("python3", "-c", "import os; os.abort()").Run()
	if !handled() {
		t.Skip("no handler runs outside either")
	}
	p := b.policy(object{})
	b.run("run", "-p", p, "--", "python3", "-c", crash).exits(134)
	same(t, "the handler has run for a program in a sandbox", false, handled())
	// Nothing can raise a hard limit of 0 without privilege.
	refused := exec.Command("setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "sh", "-c",
		"ulimit -Hc 0; exec \"$@\"", "sh", w.binary, "run", "-p", p, "--", "true")
	refused.Env = b.env
	out, err := refused.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "limit_unenforceable: a program that crashes") {
		t.Errorf("with a hard limit of 0: %v\n%s", err, out)
	}
}
