// Package warm keeps Python interpreters ready in a sandbox: each is started ahead, in an exec of its own, waits for a program, runs that one,
// and ends. Nothing is shared between two programs.
//
//	program.go   which command lines can be given to a waiting interpreter, and which variables it was started with
//	boot.py      what it runs until it has its program; stub.py is its command line, and the one frame below the program's
//	channel.go   the socket between the two: descriptor 5 of the interpreter until the program begins
//	files.go     what it has read: nothing that a program could write, and the same as when it was read
//	keeper.go    starts, hands over, replaces, ends
//
// Until it has its program an interpreter has read its own files alone, knows no variable that is not about its start, and holds its channel and
// ends of a pipe of its own. Where anything is not as it was the answer of Take is why, and the caller starts the program as any other.
//
// It imports of ours container/lookup, container/procfs, forkexec and rootfs/hostfs.
package warm
