package result

import "slices"

// This file has the tables of a result's keys, outcomes and exit statuses. The JSON Schema, docs/result.md and the manual page
// are made from them. A test compares them with the type Result.

// resultKey is a key of a result.
type resultKey struct {
	name     string
	kind     string // type in the JSON Schema: string, integer, number, boolean, object, array
	null     bool   // the value may be null
	optional bool   // the key may be left out
	unit     string
	meaning  string
	enum     func() []string
	inner    []resultKey // keys of an object, or of each object in an array
}

// resultOutcome is a way in which an exec ends.
type resultOutcome struct{ name, finding, status, meaning string }

func resultKeys() []resultKey {
	return []resultKey{
		{name: "sandbox", kind: "string", meaning: "The ID of the sandbox. Empty if there is no sandbox."},
		{name: "exec", kind: "string", meaning: "The name of the exec, such as e000001. Empty if no exec began."},
		{name: "outcome", kind: "string", enum: outcomeNames, meaning: "How the exec ended: see Outcomes."},
		{name: "finding", kind: "string", null: true, enum: findingNames, meaning: "What the outcome means to a harness. Null if the program exited with 0."},
		{name: "exit_code", kind: "integer", meaning: "The exit status: the program's, 128 + n if signal n ended the program, or the launcher's: see Exit statuses."},
		{name: "signal", kind: "string", null: true, meaning: "The signal that ended the program, such as SIGKILL. Null if a limit ended it."},
		{name: "timed_out", kind: "boolean", meaning: "The launcher killed the exec, because its time was over or because the program wrote no output for too long."},
		{name: "isolated", kind: "boolean", meaning: "The checks at the sandbox's start showed that it is isolated: all checks that every sandbox needs were held, and no check was broken. False on the host's network, and if there is no sandbox."},
		{name: "stdout", kind: "string", meaning: "The program's standard output as text: the first and the last half of limits.output. Empty if the output went to the caller's streams."},
		{name: "stderr", kind: "string", meaning: "The program's standard error, like stdout. Empty with --tty, because both streams then go to the terminal."},
		{name: "stdout_bytes", kind: "integer", unit: "bytes", meaning: "How much the program wrote to standard output."},
		{name: "stderr_bytes", kind: "integer", unit: "bytes", meaning: "How much the program wrote to standard error."},
		{name: "stdout_truncated", kind: "boolean", meaning: "A part of stdout is missing. A line in its place says how much."},
		{name: "stderr_truncated", kind: "boolean", meaning: "A part of stderr is missing, as for stdout."},
		{name: "encoding", kind: "string", enum: func() []string { return []string{Encoding} }, meaning: "The encoding of stdout and stderr. Bytes that are not UTF-8 are U+FFFD."},
		{name: "stdout_base64", kind: "string", optional: true, meaning: "The bytes of stdout in base64, if they are not UTF-8."},
		{name: "stderr_base64", kind: "string", optional: true, meaning: "The bytes of stderr in base64, if they are not UTF-8."},
		{name: "merged", kind: "boolean", optional: true, meaning: "The caller's standard output and standard error are one file, so the program had one pipe for both. stdout_bytes counts both."},
		{name: "answer", kind: "object", null: true, optional: true, meaning: "What the program wrote to file descriptor 3, with --answer.", inner: []resultKey{
			{name: "bytes", kind: "integer", unit: "bytes", meaning: "How much the program wrote."},
			{name: "truncated", kind: "boolean", meaning: "The program wrote more than 1 MiB. The rest is missing."},
			{name: "text", kind: "string", meaning: "The answer. Bytes that are not UTF-8 are U+FFFD."},
			{name: "base64", kind: "string", optional: true, meaning: "All bytes in base64, if they are not UTF-8."},
		}},
		{name: "collected", kind: "array", optional: true, meaning: "Each file that --collect read.", inner: collectedKeys()},
		{name: "dropped", kind: "array", optional: true, meaning: "What was left out of the collected files: symlinks that leave the directory, special files, set-user-id bits.", inner: []resultKey{
			{name: "path", kind: "string", meaning: "The path, relative to the working directory."},
			{name: "why", kind: "string", meaning: "The reason as a sentence."},
		}},
		{name: "warm", kind: "boolean", null: true, optional: true, meaning: "Of an exec of serve that asked for a warm interpreter: whether it had one."},
		{name: "warm_why", kind: "string", optional: true, meaning: "Why it had an interpreter of its own."},
		{name: "view", kind: "object", null: true, optional: true, meaning: "What this exec alone saw besides what its sandbox shows, or did not see, with --view, --read, --bind and --deny. All paths are the host's.", inner: []resultKey{
			{name: "name", kind: "string", optional: true, meaning: "The name of the view in the policy."},
			{name: "read", kind: "array", optional: true, meaning: "Paths that it saw at their own place, those of the policy's view first."},
			{name: "bind", kind: "array", optional: true, meaning: "Paths that it saw at other places: SOURCE:TARGET."},
			{name: "deny", kind: "array", optional: true, meaning: "Paths that were hidden from it."},
		}},
		{name: "usage", kind: "object", meaning: "What the exec used. All values are 0 if the program did not start.", inner: usageKeys()},
		{name: "limits", kind: "array", optional: true, meaning: "Each limit of the exec.", inner: limitKeys()},
		{name: "warnings", kind: "array", optional: true, meaning: "Warnings for the caller, such as a denied file that appeared, or output that could not be stored."},
		{name: "error", kind: "object", null: true, meaning: "Why the program did not start, why its sandbox was lost, or which of the caller's streams could not be read or written.", inner: errorKeys()},
	}
}

func collectedKeys() []resultKey {
	return []resultKey{
		{name: "path", kind: "string", meaning: "The path, relative to the working directory."},
		{name: "bytes", kind: "integer", unit: "bytes", meaning: "The size. 0 if the file was written to the host."},
		{name: "text", kind: "string", meaning: "The content. Bytes that are not UTF-8 are U+FFFD."},
		{name: "base64", kind: "string", optional: true, meaning: "All bytes in base64, if they are not UTF-8."},
		{name: "to", kind: "string", optional: true, meaning: "Where the file was written on the host."},
		{name: "error", kind: "object", null: true, optional: true, meaning: "Why the file could not be read, such as file_too_large.", inner: errorKeys()},
	}
}

func errorKeys() []resultKey {
	return []resultKey{
		{name: "code", kind: "string", meaning: "A stable word, such as program_not_found."},
		{name: "message", kind: "string", meaning: "The error as a sentence."},
		{name: "hint", kind: "string", meaning: "What the caller can do. May be empty."},
	}
}

func usageKeys() []resultKey {
	return []resultKey{
		{name: "wall_ms", kind: "number", unit: "milliseconds", meaning: "From the start of the exec to its end."},
		{name: "cpu_ms", kind: "number", unit: "milliseconds", meaning: "Processor time of every process that another process waited for."},
		{name: "max_rss_bytes", kind: "integer", unit: "bytes", meaning: "The peak of memory. With limits.memory it is the peak of all processes together, else of the largest process. Where that ends before anybody has looked, within some 5 ms, it is an estimate by its page faults."},
		{name: "written_bytes", kind: "integer", unit: "bytes", meaning: "Bytes written to block devices, as getrusage(2) counts them."},
		{name: "processes", kind: "integer", meaning: "Number of processes and threads that were started."},
		{name: "steps", kind: "integer", optional: true, meaning: "The steps that the guard has counted, if the policy has processes.steps."},
	}
}

func limitKeys() []resultKey {
	return []resultKey{
		{name: "limit", kind: "string", meaning: "The key of the limit in the policy's limits."},
		{name: "value", kind: "number", unit: "seconds, bytes or a number", meaning: "The value of the limit."},
		{name: "enforced_by", kind: "string", meaning: "The mechanism that enforces it: a cgroup, an rlimit, the launcher."},
		{name: "verified", kind: "boolean", meaning: "The launcher read the limit back from the kernel, or enforces it itself."},
	}
}

func resultOutcomes() []resultOutcome {
	const programs = "the program's"
	return []resultOutcome{
		{Exited, FindingFailed, programs, "The program ended by itself. The finding is null if its status is 0."},
		{Signaled, FindingFailed, "128 + n", "Signal n ended the program."},
		{Timeout, FindingWall, "124", "The time of limits.wall or --timeout was over."},
		{IdleTimeout, FindingWall, "124", "The program wrote no output for the time of limits.idle."},
		{CPUExceeded, FindingCPU, "152", "The program used more processor time than limits.cpu."},
		{MemoryExceeded, FindingMemory, "137", "The program used more memory than limits.memory."},
		{PidsExceeded, FindingPids, programs, "The program tried to start more processes and threads than limits.pids."},
		{DiskExceeded, FindingDisk, programs, "The writable grants grew by more than limits.disk. If the launcher killed the program, the status is 137."},
		{FileExceeded, FindingFile, programs, "The program tried to write a file larger than limits.file."},
		{OutputExceeded, FindingOutput, "137", "The program wrote more than limits.output to one stream, and --on-output-limit is kill."},
		{StepsExceeded, FindingSteps, "121", "The program was to take more steps than processes.steps. The guard in the interpreter says so: see processes.guard in sandboxrun-security."},
		{Cancelled, FindingCancelled, "137", "The caller of serve or of the Go API cancelled the exec. The result has everything until then."},
		{NotStarted, FindingFailed, "126, 127", "The program does not exist (127) or cannot be executed (126)."},
		{NotStarted, FindingUnavailable, "125", "The launcher could not start the program, because of the policy, the machine or the sandbox."},
		{SandboxLost, FindingUnavailable, "125", "The sandbox ended while the program ran."},
		{StillRunning, "", "125", "Only from wait --timeout: the exec has not ended yet."},
	}
}

func outcomeNames() []string {
	var names []string
	for _, o := range resultOutcomes() {
		if !slices.Contains(names, o.name) {
			names = append(names, o.name)
		}
	}
	return names
}

func findingNames() []string {
	var names []string
	for _, o := range resultOutcomes() {
		if o.finding != "" && !slices.Contains(names, o.finding) {
			names = append(names, o.finding)
		}
	}
	return names
}
