// Package result says how an exec ended. It owns the type Result with its outcomes, findings and exit statuses, the judgement of what
// the kernel has said of a program (Result.Judge), and the tables that the JSON Schema, docs/result.md and the manual page are made of. It
// imports of ours fault, container/lookup, forkexec, rootfs, spec and transfer, and makes no system call.
//
// An exec is judged once, when all of its processes are gone: forkexec.Status says how the program ended and by which limit it was
// ended, if it was, and Judge finds the outcome in one order for every exec, also for one that has run before Go started. A program
// that was not started has a result too (FromError). Names and meanings in the JSON are fixed; keys may be added.
package result
