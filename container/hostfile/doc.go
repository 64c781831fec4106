// Package hostfile makes the files of the host that the launcher writes while a program runs: the directory of whole streams or of a record
// (outputdir.go), and the file of a result (resultfile.go). It owns how these are found and made: out of the program's sight, by what the sandbox
// shows (trust.Shown), through no link that stands where a program could have put it, and as new files of the caller's alone. It imports of
// ours fault, container/stream, container/trust and forkexec.
package hostfile
