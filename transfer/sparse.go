package transfer

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// content is the content of one regular file, up to a number of bytes. The file may be sparse, and may change while it is read.
type content struct {
	bounded
	f    *os.File
	size int64 // when it was opened
}

// Size is the file's length when it was opened.
func (c *content) Size() int64 { return c.size }

// segment is where there is data next; at or behind the end: nothing but a hole is left.
func (c *content) segment(at int64) (data, end int64) {
	data, err := c.f.Seek(at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return c.size, c.size
	}
	if err != nil {
		data = at // its file system knows no holes
	}
	end, err = c.f.Seek(data, unix.SEEK_HOLE)
	if err != nil || end <= data {
		end = c.size
	}
	return data, min(end, c.size)
}

// copySparse writes what the file has to another one, and leaves holes where it has none. Only what is written counts.
func (c *content) copySparse(to *os.File) error {
	var at int64
	for at < c.size {
		data, end := c.segment(at)
		if data >= end {
			break
		}
		if _, err := c.f.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(data, io.SeekStart); err != nil {
			return err
		}
		n, err := io.Copy(struct{ io.Writer }{to}, io.LimitReader(&c.bounded, end-data))
		if err != nil {
			return err
		}
		if n == 0 { // it became shorter
			break
		}
		at = data + n
	}
	return to.Truncate(c.size)
}
