package scrub

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/record"
)

var (
	errBusy    = errors.New("it changes while it is read; stop the program that writes it, and scrub again")
	errForeign = errors.New("it has a value in it and belongs to another user; only root can keep its owner")
)

// file scrubs a regular file.
func (s *Scrubber) file(p target, at int, st *unix.Stat_t) error {
	node := inode{st.Dev, st.Ino}
	if l := s.links[node]; l != nil {
		return s.again(p, node, l)
	}
	f, st, err := reopen(at, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	s.report.Files++
	found, binary, err := s.search(f, st)
	if err != nil {
		return reason(err)
	}
	if len(found) == 0 {
		return s.attributes(p, f)
	}
	change := Changed{Path: s.Redactor.String(p.shown), Values: found}
	now := node
	if !s.DryRun {
		if now, err = s.replace(p, f, st, binary, found); err != nil {
			return reason(err)
		}
	}
	if st.Nlink > 1 {
		s.links[node] = &linked{now, p.root, p.rel, len(s.report.Changed), int(st.Nlink) - 1}
	}
	s.changed(change)
	return nil
}

func (s *Scrubber) changed(c Changed) {
	s.report.Changed = append(s.report.Changed, c)
	for _, n := range c.Values {
		s.report.Replaced += n
	}
}

// search reads a file. A file with a null byte is binary: it keeps its length, its offsets and its holes.
func (s *Scrubber) search(f *os.File, st *unix.Stat_t) (found map[string]int, binary bool, err error) {
	found = map[string]int{}
	end := int64(0)
	err = eachData(f, st.Size, func(from, to int64) error {
		binary = binary || from > end // a hole reads as null bytes
		end = to
		w := s.Redactor.Writer(io.Discard)
		err := copyData(f, from, to, func(data []byte) error {
			binary = binary || bytes.IndexByte(data, 0) >= 0
			_, err := w.Write(data)
			return err
		})
		_ = w.Close() // nothing can fail
		for name, n := range w.Replaced() {
			found[name] += n
		}
		return err
	})
	if err == nil {
		err = unchanged(f, st)
	}
	return found, binary || st.Size > end, err
}

// unchanged reports whether a file is as it was when it was opened.
func unchanged(f *os.File, st *unix.Stat_t) error {
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil {
		return err
	}
	if now.Size != st.Size || now.Mtim != st.Mtim || now.Ctim != st.Ctim {
		return errBusy
	}
	return nil
}

// eachData calls use with each range of a file that is no hole. No value goes over a hole, because a variable has no null byte.
func eachData(f *os.File, size int64, use func(from, to int64) error) error {
	for at := int64(0); at < size; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole to the end
		}
		to := size
		if err == nil {
			to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		}
		if err != nil {
			return err
		}
		if err := use(from, to); err != nil {
			return err
		}
		at = to
	}
	return nil
}

func copyData(f *os.File, from, to int64, use func([]byte) error) error {
	buf := make([]byte, min(to-from, 256<<10))
	for from < to {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return errBusy
			}
			return err
		}
		if err := use(buf[:n]); err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// replace writes a file anew, and puts the new one in its place.
func (s *Scrubber) replace(p target, f *os.File, st *unix.Stat_t, binary bool, found map[string]int) (inode, error) {
	if st.Uid != uint32(unix.Geteuid()) && unix.Geteuid() != 0 {
		return inode{}, errForeign
	}
	tmp := ".sandboxrun-" + strings.ToLower(rand.Text())
	fd, err := openNew(p.dir, tmp)
	if err != nil {
		return inode{}, err
	}
	to := os.NewFile(uintptr(fd), tmp)
	defer to.Close()
	now, err := s.write(to, f, st, binary, found)
	if err == nil {
		err = p.put(tmp, inode{st.Dev, st.Ino}, now)
	}
	if err != nil {
		_ = unix.Unlinkat(p.dir, tmp, 0)
	}
	return now, err
}

func openNew(dir int, name string) (int, error) {
	how := &unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC, Mode: 0o600, Resolve: unix.RESOLVE_BENEATH,
	}
	fd, err := unix.Openat2(dir, name, how)
	if err != nil {
		return -1, fmt.Errorf("make a file beside it: %w", err)
	}
	return fd, nil
}

// write writes the new file whole: its content, attributes, owner, mode and times.
func (s *Scrubber) write(to, f *os.File, st *unix.Stat_t, binary bool, found map[string]int) (inode, error) {
	none := inode{}
	written, err := s.content(to, f, st.Size, binary)
	if err == nil {
		err = unchanged(f, st)
	}
	if err == nil && !maps.Equal(written, found) {
		err = errBusy
	}
	if err != nil {
		return none, err
	}
	if err := to.Chown(int(st.Uid), int(st.Gid)); err != nil {
		return none, fmt.Errorf("keep its owner: %w", reason(err))
	}
	if err := s.copyAttributes(to, f); err != nil {
		return none, err
	}
	if err := unix.Fchmod(int(to.Fd()), st.Mode&0o7777); err != nil {
		return none, fmt.Errorf("keep its mode: %w", err)
	}
	if err := setTimes(to, st); err != nil {
		return none, fmt.Errorf("keep its times: %w", err)
	}
	if err := to.Sync(); err != nil {
		return none, err
	}
	var now unix.Stat_t
	if err := unix.Fstat(int(to.Fd()), &now); err != nil {
		return none, err
	}
	return inode{now.Dev, now.Ino}, nil
}

// content copies a file without its values, and counts them.
func (s *Scrubber) content(to, f *os.File, size int64, binary bool) (map[string]int, error) {
	written := map[string]int{}
	err := eachData(f, size, func(from, end int64) error {
		var out io.Writer = struct{ io.Writer }{to}
		if binary {
			out = io.NewOffsetWriter(to, from)
		}
		w := s.Redactor.Writer(out)
		w.SameLength = binary
		err := copyData(f, from, end, func(data []byte) error {
			_, err := w.Write(data)
			return err
		})
		if err == nil {
			err = w.Close()
		}
		for name, n := range w.Replaced() {
			written[name] += n
		}
		return err
	})
	if err == nil && binary {
		err = to.Truncate(size) // a hole at the end
	}
	return written, err
}

// put renames the new file over the old one, if its name is still the old one's, and looks that it stands there.
func (p target) put(tmp string, old, now inode) error {
	if at, err := p.node(); err != nil || at != old {
		return errBusy
	}
	if err := unix.Renameat(p.dir, tmp, p.dir, p.name); err != nil {
		return fmt.Errorf("rename over it: %w", err)
	}
	if at, err := p.node(); err != nil || at != now {
		return errBusy
	}
	return nil
}

func (p target) node() (inode, error) {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return inode{st.Dev, st.Ino}, err
}

// again puts a file that was scrubbed in the place of another hard link of the old one.
func (s *Scrubber) again(p target, old inode, l *linked) error {
	if s.DryRun {
		l.unseen--
		return nil
	}
	fd, err := openat(int(l.root.Fd()), l.path, unix.O_PATH, unix.RESOLVE_NO_SYMLINKS)
	var st unix.Stat_t
	if err == nil {
		defer unix.Close(fd)
		err = unix.Fstat(fd, &st)
	}
	if err != nil || (inode{st.Dev, st.Ino}) != l.now {
		return errBusy // its first name is gone
	}
	tmp := ".sandboxrun-" + strings.ToLower(rand.Text())
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), p.dir, tmp, unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("link the scrubbed file: %w", err)
	}
	if err := p.put(tmp, old, l.now); err != nil {
		_ = unix.Unlinkat(p.dir, tmp, 0)
		return err
	}
	l.unseen--
	return nil
}

// counted is a text without its values, and how many of each it had.
func counted(r *record.Redactor, text []byte) ([]byte, map[string]int) {
	var out bytes.Buffer
	w := r.Writer(&out)
	_, _ = w.Write(text) // a Buffer never fails
	_ = w.Close()
	return out.Bytes(), w.Replaced()
}
