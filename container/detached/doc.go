// Package detached keeps execs that go on without the command that started them. It owns the directory of such an exec, which its monitor fills
// (execdir.go) and others read: its state and result (detached.go) and its output so far (logs.go). It imports of ours fault,
// container/flock, container/journal, container/result, container/stream and forkexec. What a monitor does is container's.
//
// The directory is ID/exec/NAME in the state. A monitor makes it under another name, with all of its files, and renames it once the exec has a
// name. It holds the lock in it for as long as it lives, and the result appears whole or not at all: so a reader that finds the lock free and no
// result knows that the exec was lost with its monitor. Readers take the lock shared.
package detached
