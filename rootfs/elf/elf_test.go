package elf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// TestReadELF compares with the standard library's reader.
func TestReadELF(t *testing.T) {
	read := 0
	for _, name := range systemPrograms(t) {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		want, wantErr := elf.NewFile(f)
		got, err := Read(f)
		t.Cleanup(func() { f.Close() }) // the other reads on later
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, but %v", name, err, wantErr)
			continue
		}
		if err != nil {
			continue
		}
		read++
		needed, _ := want.ImportedLibraries()
		runpath, _ := want.DynString(elf.DT_RUNPATH)
		rpath, _ := want.DynString(elf.DT_RPATH)
		interp := ""
		if s := want.Section(".interp"); s != nil {
			data, _ := s.Data()
			interp = string(bytes.TrimRight(data, "\x00"))
		}
		if !slices.Equal(got.Needed, needed) || got.Interp != interp || strings.Join(got.Runpath, ":") != strings.Join(runpath, ":") ||
			strings.Join(got.Rpath, ":") != strings.Join(rpath, ":") || got.Machine != int(want.Machine) || got.Class != int(want.Class) {
			t.Errorf("%s: %+v; want %q %q %q %q", name, got, needed, interp, runpath, rpath)
		}
	}
	if read == 0 {
		t.Skip("no ELF file is here")
	}
	t.Logf("%d files", read)
}

// FuzzReadELF: whatever stands in a file, it is read within bounds.
func FuzzReadELF(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	for _, name := range systemPrograms(f)[:min(8, len(systemPrograms(f)))] {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data[:min(len(data), 4096)])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := Read(bytes.NewReader(data))
		if err == nil && len(n.Needed) > MaxNeeded {
			t.Error("too much was read")
		}
		ParseCache(data)
	})
}

func TestParseLdCache(t *testing.T) {
	le := binary.LittleEndian
	text := "liba.so.1\x00/lib/liba.so.1\x00/opt/liba.so.1\x00"
	const head, entry = 48, 24
	data := append([]byte("glibc-ld.so.cache1.1"), make([]byte, head-20+2*entry)...)
	le.PutUint32(data[20:], 2)
	at := uint32(len(data))
	for i, p := range []uint32{10, 25} {
		le.PutUint32(data[head+i*entry+4:], at)
		le.PutUint32(data[head+i*entry+8:], at+p)
	}
	data = append(data, text...)
	old := append([]byte("ld.so-1.7.0\x00\x00\x00\x00\x00"), data...)
	for _, d := range [][]byte{data, old} {
		roottest.Same(t, "paths", ParseCache(d)["liba.so.1"], []string{"/lib/liba.so.1", "/opt/liba.so.1"})
	}
	for i := range data {
		ParseCache(data[:i])
	}
	if real, err := os.ReadFile("/etc/ld.so.cache"); err == nil && len(ParseCache(real)["libc.so.6"]) == 0 && bytes.Contains(real, []byte("libc.so.6\x00")) {
		t.Error("this machine's cache has a libc.so.6 that is not found")
	}
}

// systemPrograms are real ELF files, where the machine has some.
func systemPrograms(t testing.TB) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{"/usr/bin/*", "/usr/lib/*-linux-gnu/*.so*", "/usr/lib64/*.so*"} {
		files, _ := filepath.Glob(pattern)
		for i := 0; i < len(files); i += 1 + len(files)/25 {
			if info, err := os.Stat(files[i]); err == nil && info.Mode().IsRegular() {
				list = append(list, files[i])
			}
		}
	}
	return list
}
