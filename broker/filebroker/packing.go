package filebroker

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/semel-dev/semel/fault"
)

const (
	minChunk = 512
	maxChunk = 256 << 10
)

// packing opens files that may be compressed; what they decompress with is
// kept for the next one.
type packing struct {
	gz  gzip.Reader
	buf *bufio.Reader
}

// open returns the decompressed stream of the first size bytes of f, and how
// much to read at a time. The content decides, not the name.
func (p *packing) open(f *os.File, size int64) (io.Reader, int, error) {
	src := io.LimitReader(f, size)
	magic := make([]byte, 3)
	n, err := f.ReadAt(magic, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return src, minChunk, err
	}
	if !bytes.Equal(magic[:n], []byte{0x1f, 0x8b, 8}) {
		return src, int(min(max(size+1, minChunk), maxChunk)), nil
	}
	if p.buf == nil {
		p.buf = bufio.NewReaderSize(nil, 64<<10)
	}
	p.buf.Reset(src)
	return &p.gz, int(min(max(8*size, minChunk), maxChunk)), p.gz.Reset(p.buf)
}

// skipTo goes to an offset of the decompressed stream. A stream that ends
// before it has changed.
func skipTo(src io.Reader, off int64) error {
	if l, ok := src.(*io.LimitedReader); ok {
		if off > l.N {
			return ErrChanged
		}
		l.N -= off
		_, err := l.R.(io.Seeker).Seek(off, io.SeekStart)
		return err
	}
	_, err := io.CopyN(io.Discard, src, off)
	if errors.Is(err, io.EOF) {
		return ErrChanged
	}
	return err
}

// lineName is the name in error/ of a line that begins at off: the file's,
// with the offset before the extension, and not compressed.
func lineName(name string, off int64) string {
	if packed(shortExt(name)) {
		name = name[:len(name)-len(shortExt(name))]
	}
	return inserted(name, strconv.FormatInt(off, 10))
}

// lineCopy is the name that a line has in its claim on the way there.
func lineCopy(off int64) string { return linePrefix + strconv.FormatInt(off, 10) }

// copyLine writes the exact bytes of a record into its claim, with what makes
// them a file of its format.
func (c *core) copyLine(it *item) error {
	path := filepath.Join(it.file.claim.dir, lineCopy(it.start))
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	err = writeLine(out, it)
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(path)
		return err
	}
	fault.Hit(Split)
	return nil
}

func writeLine(out io.Writer, it *item) error {
	before, behind := it.file.lines.r.split.around()
	if _, err := out.Write(before); err != nil {
		return err
	}
	var err error
	if it.raw == nil {
		err = copyRange(out, it.file, it.start, it.next)
	} else {
		_, err = out.Write(it.raw)
	}
	if err == nil {
		_, err = out.Write(behind)
	}
	return err
}

// copyRange copies a line that was too long to keep.
func copyRange(out io.Writer, f *file, start, end int64) error {
	fh, err := openClaimed(f.path())
	if err != nil {
		return err
	}
	defer fh.Close()
	var p packing
	src, _, err := p.open(fh, f.id.size)
	if err != nil {
		return err
	}
	if err := skipTo(src, start); err != nil {
		return err
	}
	_, err = io.CopyN(out, src, end-start)
	return err
}
