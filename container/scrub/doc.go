// Package scrub takes the values of key-like variables out of files that are kept, in place. The files are hostile input: a program
// may have made them, and may still run. Every entry is opened below its directory (openat2), no symlink is followed, no mount is
// crossed, and nothing but a regular file is opened to be read.
//
// A file with a value is written anew beside itself, synced, and renamed over itself, so that a reader sees the whole old file or the
// whole new one. What could not be done is in Report.Left: only an empty list means that no value is left.
//
// Of ours it imports record, which knows the values.
package scrub
