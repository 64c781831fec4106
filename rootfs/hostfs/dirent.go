package hostfs

import (
	"bytes"
	"encoding/binary"
)

// Dirent is an entry of a directory, as getdents64(2) writes it.
type Dirent struct {
	Name string
	Kind byte  // one of the DT constants; a file system may leave it at DT_UNKNOWN
	Next int64 // the offset in the directory at which the next entry is
}

// NextDirent takes the first entry from what getdents64(2) has written, and passes over "." and "..". At the end the entry has no name.
func NextDirent(buf []byte) (d Dirent, rest []byte) {
	const nextAt, sizeAt, kindAt, nameAt = 8, 16, 18, 19 // of struct linux_dirent64
	for len(buf) > nameAt {
		size := int(binary.NativeEndian.Uint16(buf[sizeAt:]))
		if size <= nameAt || size > len(buf) {
			break
		}
		name, _, _ := bytes.Cut(buf[nameAt:size], []byte{0})
		entry, left := buf[:size], buf[size:]
		if string(name) != "." && string(name) != ".." {
			return Dirent{string(name), entry[kindAt], int64(binary.NativeEndian.Uint64(entry[nextAt:]))}, left
		}
		buf = left
	}
	return Dirent{}, nil
}
