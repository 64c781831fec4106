// Package elf reads what an ELF file needs to be loaded, and the cache in which the loader finds libraries. A program may have written
// the file, so each number in it is checked. It imports none of ours.
package elf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// What is read of a program at most. A file may be anything, and a program may have written it: every number in it is
// checked, and debug/elf, which is not made for hostile files, is left to the tests.
const (
	maxELFText    = 4096     // bytes of one name or path
	maxELFEntries = 65535    // program headers: all that the format can have
	maxDynamic    = 1 << 20  // bytes of the dynamic section
	MaxNeeded     = 4096     // libraries of one file
	maxELFOffset  = 1 << 40  // bytes into a file
	MaxCache      = 16 << 20 // bytes of ld.so.cache
)

// Needs is what the ELF loader reads of a file.
type Needs struct {
	Class, Machine int // 1: 32 bits, 2: 64 bits; as the format numbers them
	Interp         string
	Needed         []string
	Rpath, Runpath []string
	Nodeflib       bool // the default directories are not searched
}

var errNotELF = errors.New("it is no ELF file")

// Read reads what a little-endian ELF file needs.
func Read(f io.ReaderAt) (*Needs, error) {
	head := make([]byte, headSize)
	got, err := f.ReadAt(head, 0)
	if got == 0 && err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	r, err := readSegments(f, head[:got])
	if err != nil {
		return nil, err
	}
	n := &Needs{Class: int(head[ClassAt]), Machine: int(binary.LittleEndian.Uint16(head[18:]))}
	if n.Interp, err = r.interpreter(); err != nil {
		return nil, err
	}
	return n, r.dynamic(n)
}

// Loader is the program that loads a file, or empty for a static program. head is the beginning of the file.
func Loader(f io.ReaderAt, head []byte) (string, error) {
	r, err := readSegments(f, head)
	if err != nil {
		return "", err
	}
	return r.interpreter()
}

// Is reports whether a file that begins with head is an ELF file.
func Is(head []byte) bool { return bytes.HasPrefix(head, []byte("\x7fELF")) }

// Script splits the first line of a script into the interpreter behind "#!" and its arguments. It reports false for other files.
func Script(head []byte) ([]string, bool) {
	rest, ok := bytes.CutPrefix(head, []byte("#!"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return strings.FieldsFunc(string(line), func(r rune) bool { return r == ' ' || r == '\t' }), ok
}

// The byte of a file's header that has its class, and the class of 64-bit files.
const (
	ClassAt = 4
	Class64 = 2
)

const (
	headSize  = 64 // bytes of the header of a 64-bit file
	headSize2 = 52 // of a 32-bit file
)

func readSegments(f io.ReaderAt, head []byte) (*elfReader, error) {
	if len(head) < headSize2 || !Is(head) {
		return nil, errNotELF
	}
	r := &elfReader{file: f, wide: head[ClassAt] == Class64}
	if head[5] != 1 || head[ClassAt] != 1 && !r.wide {
		return nil, errors.New("it is an ELF file of another kind of machine")
	}
	if r.wide && len(head) < headSize {
		return nil, errNotELF
	}
	return r, r.segments(head)
}

// interpreter is the text of PT_INTERP, or empty.
func (r *elfReader) interpreter() (name string, err error) {
	const ptInterp = 3
	for _, s := range r.all {
		if s.kind == ptInterp {
			if name, err = r.text(s.offset, min(s.size, maxELFText)); err != nil {
				return "", err
			}
		}
	}
	return name, nil
}

type elfReader struct {
	file io.ReaderAt
	wide bool
	all  []segment
}

type segment struct {
	kind                  uint32
	offset, address, size uint64
}

// word reads a number of the file's own width.
func (r *elfReader) word(b []byte) uint64 {
	if r.wide {
		return binary.LittleEndian.Uint64(b)
	}
	return uint64(binary.LittleEndian.Uint32(b))
}

func (r *elfReader) read(offset, size uint64) ([]byte, error) {
	if offset > maxELFOffset || size > maxDynamic*8 {
		return nil, errors.New("its headers make no sense")
	}
	b := make([]byte, size)
	if _, err := r.file.ReadAt(b, int64(offset)); err != nil {
		return nil, fmt.Errorf("its headers lead out of it: %w", err)
	}
	return b, nil
}

// text reads a string that ends with a zero byte.
func (r *elfReader) text(offset, size uint64) (string, error) {
	if offset > maxELFOffset {
		return "", errors.New("its headers make no sense")
	}
	b := make([]byte, size)
	n, err := r.file.ReadAt(b, int64(offset))
	if n == 0 && err != nil {
		return "", fmt.Errorf("its headers lead out of it: %w", err)
	}
	text, _, ok := bytes.Cut(b[:n], []byte{0})
	if !ok {
		return "", errors.New("it has a name without an end")
	}
	return string(text), nil
}

func (r *elfReader) segments(head []byte) error {
	le := binary.LittleEndian
	at, size, count := uint64(le.Uint32(head[28:])), uint64(le.Uint16(head[42:])), uint64(le.Uint16(head[44:]))
	want := uint64(32)
	if r.wide {
		at, size, count, want = le.Uint64(head[32:]), uint64(le.Uint16(head[54:])), uint64(le.Uint16(head[56:])), 56
	}
	if count == 0 {
		return nil
	}
	if size != want || count > maxELFEntries {
		return errors.New("its headers make no sense")
	}
	table, err := r.read(at, size*count)
	if err != nil {
		return err
	}
	for ; len(table) > 0; table = table[size:] {
		s := segment{kind: le.Uint32(table)}
		if r.wide {
			s.offset, s.address, s.size = le.Uint64(table[8:]), le.Uint64(table[16:]), le.Uint64(table[32:])
		} else {
			s.offset, s.address, s.size = uint64(le.Uint32(table[4:])), uint64(le.Uint32(table[8:])), uint64(le.Uint32(table[16:]))
		}
		r.all = append(r.all, s)
	}
	return nil
}

// dynamic reads the dynamic section: which libraries are needed, and where they are looked for.
func (r *elfReader) dynamic(n *Needs) error {
	section, err := r.dynamicSection()
	if err != nil {
		return err
	}
	size := 4
	if r.wide {
		size = 8
	}
	var table uint64
	values := map[uint64][]uint64{}
	for ; len(section) >= 2*size; section = section[2*size:] {
		tag, value := r.word(section), r.word(section[size:])
		if tag == 0 { // DT_NULL
			break
		}
		values[tag] = append(values[tag], value)
		if tag == 5 { // DT_STRTAB
			table = value
		}
	}
	if len(values[1]) > MaxNeeded {
		return errors.New("it needs too many libraries")
	}
	for _, v := range values[0x6ffffffb] { // DT_FLAGS_1, of which DF_1_NODEFLIB
		n.Nodeflib = n.Nodeflib || v&0x800 != 0
	}
	return r.names(n, table, values)
}

func (r *elfReader) dynamicSection() ([]byte, error) {
	for _, s := range r.all {
		if s.kind != 2 { // PT_DYNAMIC
			continue
		}
		if s.size > maxDynamic {
			return nil, errors.New("its dynamic section is too large")
		}
		return r.read(s.offset, s.size)
	}
	return nil, nil
}

func (r *elfReader) names(n *Needs, table uint64, values map[uint64][]uint64) error {
	for tag, add := range map[uint64]func(string){
		1:  func(s string) { n.Needed = append(n.Needed, s) }, // DT_NEEDED
		15: func(s string) { n.Rpath = searchPath(s) },        // DT_RPATH
		29: func(s string) { n.Runpath = searchPath(s) },      // DT_RUNPATH
	} {
		for _, v := range values[tag] {
			offset, ok := r.fileOffset(table + v)
			if !ok {
				return errors.New("its table of names lies outside of it")
			}
			text, err := r.text(offset, maxELFText)
			if err != nil {
				return err
			}
			add(text)
		}
	}
	return nil
}

func searchPath(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ':' })
}

// fileOffset is where in the file an address of the loaded program comes from.
func (r *elfReader) fileOffset(address uint64) (uint64, bool) {
	for _, s := range r.all {
		if s.kind == 1 && address >= s.address && address-s.address < s.size { // PT_LOAD
			return s.offset + (address - s.address), true
		}
	}
	return 0, false
}

// ParseCache reads glibc's list of libraries: names and their paths, in the order in which they are looked at.
func ParseCache(data []byte) map[string][]string {
	const magic, headSize, entrySize = "glibc-ld.so.cache1.1", 48, 24
	at := bytes.Index(data, []byte(magic)) // an older list may stand before it
	if at < 0 || len(data)-at < headSize {
		return nil
	}
	data = data[at:]
	le := binary.LittleEndian
	count := uint64(le.Uint32(data[20:]))
	if count*entrySize > uint64(len(data)-headSize) {
		return nil
	}
	libraries := map[string][]string{}
	for i := range count {
		entry := data[headSize+i*entrySize:]
		name, ok1 := cacheText(data, le.Uint32(entry[4:]))
		path, ok2 := cacheText(data, le.Uint32(entry[8:]))
		if ok1 && ok2 {
			libraries[name] = append(libraries[name], path)
		}
	}
	return libraries
}

func cacheText(data []byte, at uint32) (string, bool) {
	if uint64(at) >= uint64(len(data)) {
		return "", false
	}
	rest := data[at:min(len(data), int(at)+maxELFText)]
	text, _, ok := bytes.Cut(rest, []byte{0})
	return string(text), ok
}
