// Package lookup looks at the files of a sandbox as its programs see them: it finds the program that a command names, makes sure
// that what loads it is there, and otherwise says what would bring it. Every path is resolved by the kernel below the sandbox's
// root, and magic links are not followed, so nothing that a program has made can lead outside; nothing that is opened can block.
// It imports of ours fault and elf.
package lookup
