// Package stream joins a program's standard streams to the caller's, and keeps what a result, files and the record have of them. It owns the
// pipes and the outer end of the terminal (streams.go, tty.go), the caller's input (input.go), the kept beginning and end of an output
// (keep.go), files beside it (streamfile.go), and descriptor 3 (answer.go). It imports of ours fault, container/journal, container/procfs, forkexec and
// record, and knows no sandbox: Ends says all that it is given.
//
// Connect makes the program's ends and puts them into its command; Start lets what is read and written flow, in threads that Wait waits for, when the
// program has been started. On its way an output is reported to the exec's supervision, guarded against growing too large, shown beside lines
// of ours, redacted, and then kept or counted and passed on. To keep never fails and is bounded; only what goes to the caller can fail, and the
// program hears of that as it would without us.
package stream
