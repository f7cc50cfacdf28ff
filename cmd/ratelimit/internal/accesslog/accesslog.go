// Package accesslog reads access logs of web servers: Common and Combined Log Format, JSON lines
// and CSV, plain or compressed.
//
// A File returns the lines of one log file in their order. A Sorter sorts values that are almost in
// order of time.
package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Formats lists the values of Options.Format.
var Formats = []string{"auto", "common", "json", "csv"}

// Options configures how a log is read.
type Options struct {
	Format string            // one of Formats; "" is "auto"
	Fields []string          // fields to read: client, user, path, method, or the name of a field in the log
	Called map[string]string // for JSON and CSV: maps a requested field, or "time", to its name in the log
}

// LongestLine is the maximum number of bytes in a line.
const LongestLine = 1 << 20

// File is one log. It is not safe for concurrent use.
type File struct {
	lines  *bufio.Reader
	opts   Options
	parser parser
	long   []byte // a line longer than the buffer of lines, or a last line without a newline
	number int64
	closer io.Closer
}

// A parser parses the lines of a log. parse returns the line's time in ms since 1970, and stores
// the requested fields in values, with nil for a missing field. The values are valid until the next
// line. The error describes the problem in the line.
type parser interface {
	parse(line []byte, values [][]byte) (int64, error)
}

// BadLine is the error for a line that cannot be parsed. Reading can continue with the next line.
type BadLine struct {
	Number int64 // line number, from 1
	Err    error
}

func (e *BadLine) Error() string { return fmt.Sprintf("line %d: %v", e.Number, e.Err) }

// Unwrap returns the problem in the line.
func (e *BadLine) Unwrap() error { return e.Err }

// New returns a File that reads from r until ctx ends. The log may be compressed with gzip or zstd.
// Close releases the decompressor's resources; it does not close r.
func New(ctx context.Context, r io.Reader, opts Options) (*File, error) {
	plain, closer, err := uncompressed(bufio.NewReaderSize(r, 64<<10))
	if err != nil {
		return nil, err
	}
	f := &File{lines: bufio.NewReaderSize(until{ctx, plain}, 64<<10), opts: opts, closer: closer}
	if start, _ := f.lines.Peek(3); bytes.Equal(start, []byte("\xef\xbb\xbf")) {
		_, _ = f.lines.Discard(3)
	}
	switch opts.Format {
	case "common":
		f.parser, err = newCommon(opts.Fields, opts.Called)
	case "json":
		f.parser = newJSONLines(opts.Fields, opts.Called)
	}
	return f, err
}

// until is a reader that fails once ctx is canceled. Otherwise Next could not be canceled while it
// skips empty lines, of which a small compressed log can contain billions.
type until struct {
	ctx context.Context
	io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}

func uncompressed(r *bufio.Reader) (io.Reader, io.Closer, error) {
	start, _ := r.Peek(4)
	switch {
	case bytes.HasPrefix(start, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, nil, fmt.Errorf("it begins like gzip but is not gzip: %w", err)
		}
		return z, z, nil
	case bytes.Equal(start, []byte("\x28\xb5\x2f\xfd")):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, nil, fmt.Errorf("it begins like zstd but is not zstd: %w", err)
		}
		closer := z.IOReadCloser()
		return closer, closer, nil
	}
	return r, io.NopCloser(nil), nil
}

// Close releases the decompressor's resources.
func (f *File) Close() error { return f.closer.Close() }

// Lines returns the number of lines read so far.
func (f *File) Lines() int64 { return f.number }

// Next reads the next nonempty line. It returns the line's time in ms since 1970, and stores the
// requested fields in values, in order and with nil for a missing field. The values are valid until
// the next call. If the line cannot be parsed, the error is a *BadLine, and Next can be called
// again. Any other error is final; at the end of the log file it is io.EOF.
func (f *File) Next(values [][]byte) (int64, error) {
	for {
		line, err := f.line()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			continue
		}
		if f.parser == nil {
			named, err := f.recognize(line)
			if err != nil {
				return 0, &BadLine{f.number, err}
			}
			if named {
				continue
			}
		}
		at, err := f.parser.parse(line, values)
		if err != nil {
			return 0, &BadLine{f.number, err}
		}
		return at, nil
	}
}

// line reads the next line, and returns it without its line ending.
func (f *File) line() ([]byte, error) {
	line, err := f.lines.ReadSlice('\n')
	if err == nil {
		f.number++
		return bytes.TrimRight(line, "\r\n"), nil
	}
	f.long = append(f.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = f.lines.ReadSlice('\n')
		if len(f.long) <= LongestLine {
			f.long = append(f.long, line...)
		}
	}
	if err != nil && len(f.long) == 0 {
		return nil, err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err // reading failed within a line
	}
	f.number++
	line = bytes.TrimRight(f.long, "\r\n")
	if len(line) > LongestLine {
		return nil, &BadLine{f.number, fmt.Errorf("the line is longer than %d bytes", LongestLine)}
	}
	return line, nil
}

// recognize detects the format from a line, and reports whether the line is a header that only
// names the fields.
func (f *File) recognize(line []byte) (named bool, err error) {
	if f.opts.Format == "csv" || bytes.ContainsAny(line, ",;\t") && line[0] != '{' {
		c, wrong := newColumns(line, f.opts.Fields, f.opts.Called)
		if wrong == nil {
			f.parser = c
			return true, nil
		}
		var lacks *noColumn // set if the line is a header that lacks a column
		if f.opts.Format == "csv" || errors.As(wrong, &lacks) {
			return false, wrong
		}
	}
	if line[0] == '{' {
		f.parser = newJSONLines(f.opts.Fields, f.opts.Called)
		return false, nil
	}
	c, wrong := newCommon(f.opts.Fields, f.opts.Called)
	if wrong != nil {
		return false, wrong
	}
	if _, err := c.parse(line, make([][]byte, len(f.opts.Fields))); err != nil {
		return false, fmt.Errorf("not JSON, not CSV with a header line, and not in the Common Log Format: %w", err)
	}
	f.parser = c
	return false, nil
}
