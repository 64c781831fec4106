package container

import "slices"

// What a result may say, in tables: the JSON Schema, docs/result.md and the manual page are made of them, and a test compares
// them with Result.

// resultKey is a key of a result.
type resultKey struct {
	name     string
	kind     string // of the JSON Schema: string, integer, number, boolean, object, array
	null     bool   // it may be null
	optional bool   // it is left out where it has nothing to say
	unit     string
	meaning  string
	enum     func() []string
	inner    []resultKey // of an object, or of each object of an array
}

// resultOutcome is a way in which an exec ends.
type resultOutcome struct{ name, finding, status, meaning string }

func resultKeys() []resultKey {
	return []resultKey{
		{name: "sandbox", kind: "string", meaning: "The sandbox's ID. Empty where none was made or found."},
		{name: "exec", kind: "string", meaning: "The exec's name, such as e000001. Empty where none was begun."},
		{name: "outcome", kind: "string", enum: outcomeNames, meaning: "How the exec ended: see Outcomes."},
		{name: "finding", kind: "string", null: true, enum: findingNames, meaning: "What the outcome means to whoever grades it; null where the program exited with 0."},
		{name: "exit_code", kind: "integer", meaning: "The exit status: the program's, 128 + n where signal n ended it, or the launcher's: see Exit statuses."},
		{name: "signal", kind: "string", null: true, meaning: "The signal that ended the program, such as SIGKILL. Null where a limit ended it."},
		{name: "timed_out", kind: "boolean", meaning: "The exec was ended by the wall clock, or because the program wrote nothing."},
		{name: "isolated", kind: "boolean", meaning: "The checks at the sandbox's start have shown it to be isolated: every check that each sandbox needs was held, none was broken. False on the host's network, and where no sandbox was made."},
		{name: "stdout", kind: "string", meaning: "The program's standard output as text: the first and last halves of limits.output. Empty where the streams were passed through."},
		{name: "stderr", kind: "string", meaning: "The same of standard error. Empty with --tty: then both go to the terminal."},
		{name: "stdout_bytes", kind: "integer", unit: "bytes", meaning: "How much the program wrote, kept or not."},
		{name: "stderr_bytes", kind: "integer", unit: "bytes", meaning: "The same of standard error."},
		{name: "stdout_truncated", kind: "boolean", meaning: "Something is missing in stdout, and a line in its place says how much."},
		{name: "stderr_truncated", kind: "boolean", meaning: "The same of stderr."},
		{name: "encoding", kind: "string", enum: func() []string { return []string{encodingText} }, meaning: "The encoding of stdout and stderr. What was not UTF-8 in them is U+FFFD."},
		{name: "stdout_base64", kind: "string", optional: true, meaning: "The bytes that were kept of a standard output that is not UTF-8, in base64."},
		{name: "stderr_base64", kind: "string", optional: true, meaning: "The same of standard error."},
		{name: "merged", kind: "boolean", optional: true, meaning: "The caller's standard output and error are one file: the program had one pipe for both, and stdout_bytes counts both."},
		{name: "answer", kind: "object", null: true, optional: true, meaning: "What the program wrote to descriptor 3, where that was asked for.", inner: []resultKey{
			{name: "bytes", kind: "integer", unit: "bytes", meaning: "How much it wrote, kept or not."},
			{name: "truncated", kind: "boolean", meaning: "It wrote more than 1 MiB: the rest is missing."},
			{name: "text", kind: "string", meaning: "The answer. What is not UTF-8 in it is U+FFFD."},
			{name: "base64", kind: "string", optional: true, meaning: "All bytes of it in base64, where it is not UTF-8."},
		}},
		{name: "collected", kind: "array", optional: true, meaning: "Each file that was to be collected.", inner: collectedKeys()},
		{name: "dropped", kind: "array", optional: true, meaning: "What was not collected as it was: links that leave the directory, pipes, devices, set-user-id bits.", inner: []resultKey{
			{name: "path", kind: "string", meaning: "Where it was."},
			{name: "why", kind: "string", meaning: "What it was, for people."},
		}},
		{name: "usage", kind: "object", meaning: "What the exec used. All 0 where the program was not started.", inner: usageKeys()},
		{name: "limits", kind: "array", optional: true, meaning: "Each limit of the exec.", inner: limitKeys()},
		{name: "warnings", kind: "array", optional: true, meaning: "What the caller should know: a denied file that appeared, output that could not be kept."},
		{name: "error", kind: "object", null: true, meaning: "Why the program was not started, its sandbox lost, or one of the caller's streams could not be read or written.", inner: errorKeys()},
	}
}

func collectedKeys() []resultKey {
	return []resultKey{
		{name: "path", kind: "string", meaning: "Its path, relative to the working directory."},
		{name: "bytes", kind: "integer", unit: "bytes", meaning: "Its size; 0 where it was written to the host."},
		{name: "text", kind: "string", meaning: "Its content. What is not UTF-8 in it is U+FFFD."},
		{name: "base64", kind: "string", optional: true, meaning: "All bytes of it in base64, where it is not UTF-8."},
		{name: "to", kind: "string", optional: true, meaning: "Where it was written on the host."},
		{name: "error", kind: "object", null: true, optional: true, meaning: "Why it could not be read, such as file_too_large.", inner: errorKeys()},
	}
}

func errorKeys() []resultKey {
	return []resultKey{
		{name: "code", kind: "string", meaning: "A stable word, such as program_not_found."},
		{name: "message", kind: "string", meaning: "What is wrong, for people."},
		{name: "hint", kind: "string", meaning: "What to do; may be empty."},
	}
}

func usageKeys() []resultKey {
	return []resultKey{
		{name: "wall_ms", kind: "number", unit: "milliseconds", meaning: "From the start of the exec to its end."},
		{name: "cpu_ms", kind: "number", unit: "milliseconds", meaning: "Processor time of every process that was waited for."},
		{name: "max_rss_bytes", kind: "integer", unit: "bytes", meaning: "The peak of memory: of all processes together where memory is limited, else of the largest."},
		{name: "written_bytes", kind: "integer", unit: "bytes", meaning: "What was written to block devices, as getrusage(2) counts."},
		{name: "processes", kind: "integer", meaning: "Processes and threads that were started."},
	}
}

func limitKeys() []resultKey {
	return []resultKey{
		{name: "limit", kind: "string", meaning: "Its key in the policy's limits."},
		{name: "value", kind: "number", unit: "seconds, bytes or a number", meaning: "What the limit is."},
		{name: "enforced_by", kind: "string", meaning: "What holds it: a control group, an rlimit, the launcher."},
		{name: "verified", kind: "boolean", meaning: "It was read back from the kernel, or is the launcher's own."},
	}
}

func resultOutcomes() []resultOutcome {
	const programs = "the program's"
	return []resultOutcome{
		{Exited, FindingFailed, programs, "The program ended by itself. The finding is null where its status is 0."},
		{Signaled, FindingFailed, "128 + n", "Signal n ended the program."},
		{Timeout, FindingWall, "124", "limits.wall or --timeout was over."},
		{IdleTimeout, FindingWall, "124", "The program wrote nothing for limits.idle."},
		{CPUExceeded, FindingCPU, "152", "It used more processor time than limits.cpu."},
		{MemoryExceeded, FindingMemory, "137", "It used more memory than limits.memory."},
		{PidsExceeded, FindingPids, programs, "It wanted more processes and threads than limits.pids."},
		{DiskExceeded, FindingDisk, programs, "More than limits.disk was written to writable grants. A program that was ended for it has the status 137."},
		{FileExceeded, FindingFile, programs, "It wanted a file larger than limits.file."},
		{OutputExceeded, FindingOutput, "137", "It wrote more than limits.output to one stream, and was to be ended for that."},
		{NotStarted, FindingFailed, "126, 127", "The program is not there (127) or cannot be executed (126)."},
		{NotStarted, FindingUnavailable, "125", "The launcher could not start it: the policy, the machine or the sandbox is at fault."},
		{SandboxLost, FindingUnavailable, "125", "The sandbox ended under the program."},
		{StillRunning, "", "125", "Of wait --timeout alone: the exec has not ended yet."},
	}
}

// resultStatuses are the exit statuses that are not the program's own.
func resultStatuses() [][2]string {
	return [][2]string{
		{"124", "The time was over."},
		{"125", "The launcher failed; or the program exited with 0, but its input could not be read or its output not be written."},
		{"126", "The program cannot be executed."},
		{"127", "The program was not found."},
		{"128 + n", "Signal n ended the program. 141 (SIGPIPE) also where nobody reads standard output any more."},
		{"152", "The program used more processor time than it may."},
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
