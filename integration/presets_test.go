package integration

import (
	"os/exec"
	"strings"
	"testing"
)

// presetJobs are what runtimes do with threads and processes.
var presetJobs = map[string]struct {
	args      []string
	processes bool // it starts some
}{
	"multiprocessing": {[]string{"python3", "-c", `
import multiprocessing as m
if __name__ == "__main__":
    for way in "fork", "spawn", "forkserver":
        with m.get_context(way).Pool(3) as p: print(sum(p.map(abs, range(-100, 0))))
`}, true},
	"futures of processes": {[]string{"python3", "-c", `
import concurrent.futures as f
with f.ProcessPoolExecutor(3) as p: print(sum(p.map(abs, range(-100, 0))))`}, true},
	"futures of threads": {[]string{"python3", "-c", `
import concurrent.futures as f
with f.ThreadPoolExecutor(16) as p: print(sum(p.map(abs, range(-100, 0))))`}, false},
	"worker threads": {[]string{"node", "-e", `
const { Worker } = require("worker_threads"); let sum = 0, left = 4
for (let i = 0; i < 4; i++) new Worker("require('worker_threads').parentPort.postMessage(1262.5)", { eval: true })
  .on("message", n => { sum += n }).on("exit", () => { if (--left == 0) console.log(sum) })`}, false},
	"child of node": {[]string{"node", "-e", `console.log(require("child_process").execFileSync("echo", ["5050"]).toString())`}, true},
	"java":          {[]string{"java", "-Xshare:auto", "--version"}, false},
	"java threads":  {[]string{"java", "Sum.java"}, false},
}

const sumJava = `
import java.util.stream.*;
public class Sum { public static void main(String[] a) { System.out.println(IntStream.rangeClosed(1, 100).parallel().sum()); } }
`

// TestPresetsRunRuntimes: what the pages of docs/presets say of threads and processes.
func TestPresetsRunRuntimes(t *testing.T) {
	flavours(t, func(b *box) {
		ws := b.mkdir("work")
		b.file("work/Sum.java", sumJava)
		for _, preset := range []string{"agent", "default", "kernel", "program", "tool"} {
			p := b.policy(object{"extends": preset, "workspace": object{"source": ws}})
			for name, job := range presetJobs {
				if _, err := exec.LookPath(job.args[0]); err != nil {
					need(b.t, job.args[0], false)
				}
				b.t.Run(preset+"/"+name, func(t *testing.T) {
					a := b.on(t).run(append([]string{"run", "-p", p, "--"}, job.args...)...)
					switch {
					case job.processes && preset == "program":
						if a.status == 0 || strings.Contains(a.stdout, "5050") {
							t.Error(a)
						}
					case name == "java":
						a.exits(0)
					default:
						a.exits(0).prints("5050")
					}
				})
			}
		}
	})
}
