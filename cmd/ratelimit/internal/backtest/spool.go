package backtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// spool stores requests in a temporary file for the next steps, because standard input can be read
// only once.
type spool struct {
	file   *os.File
	out    *bufio.Writer
	size   int64 // number of requests
	record int   // bytes per request: its time, the number of its first key and, if costs differ, its cost
}

func newSpool(costs bool) (*spool, error) {
	file, err := os.CreateTemp("", "ratelimit-backtest-*")
	if err != nil {
		return nil, fmt.Errorf("cannot keep the requests for the suggestions: %w; set TMPDIR to a folder that can be written to", err)
	}
	s := &spool{file: file, out: bufio.NewWriterSize(file, 256<<10), record: 12}
	if costs {
		s.record = 20
	}
	return s, nil
}

func (s *spool) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

func (s *spool) put(r event) error {
	var b [20]byte
	binary.LittleEndian.PutUint64(b[:], uint64(r.at))
	binary.LittleEndian.PutUint32(b[8:], r.keys[0])
	binary.LittleEndian.PutUint64(b[12:], uint64(r.cost))
	s.size++
	if _, err := s.out.Write(b[:s.record]); err != nil {
		return fmt.Errorf("cannot keep the requests for the suggestions: %w; set TMPDIR to a folder with room for %d bytes a request", err, s.record)
	}
	return nil
}

// each calls emit for every stored request. It stops early if ctx is done or emit returns an error.
func (s *spool) each(ctx context.Context, emit func(event) error) error {
	err := s.out.Flush()
	if err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	in := bufio.NewReaderSize(s.file, 256<<10)
	b := [20]byte{12: 1} // a cost of 1, unless the records contain costs
	for err == nil && ctx.Err() == nil {
		if _, err = io.ReadFull(in, b[:s.record]); err == nil {
			r := event{at: int64(binary.LittleEndian.Uint64(b[:])), cost: int64(binary.LittleEndian.Uint64(b[12:]))}
			r.keys[0] = binary.LittleEndian.Uint32(b[8:])
			err = emit(r)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
