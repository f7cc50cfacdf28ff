package accesslog

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// columns reads CSV whose first line names the fields. A record is one line: one whose quotes do not end is wrong, and does
// not take the lines behind it with it.
type columns struct {
	clock  clock
	reader *csv.Reader
	line   oneLine
	time   int
	fields []string
	places []int // of each field; -1: the log has it not
	value  [][]byte
}

// oneLine gives the reader of CSV one line, and then an end.
type oneLine struct{ rest []byte }

func (l *oneLine) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// newColumns reads the first line.
func newColumns(head []byte, fields []string, called map[string]string) (*columns, error) {
	c := &columns{fields: fields, value: make([][]byte, len(fields))}
	c.reader = csv.NewReader(&c.line)
	c.reader.ReuseRecord = true
	c.reader.FieldsPerRecord = -1
	most := 0
	for _, comma := range ",;\t" {
		if n := bytes.Count(head, []byte(string(comma))); n > most {
			c.reader.Comma, most = comma, n
		}
	}
	names, err := c.record(head)
	if err != nil {
		return nil, fmt.Errorf("the line that names the fields: %w", err)
	}
	if !looksNamed(names, called) {
		return nil, fmt.Errorf("no column %s in %s; the first line of CSV names the columns, and --field time=when the one that has the time",
			strings.Join(namesOf("time", called), ", "), quoted(head))
	}
	c.time = place1(names, namesOf("time", called))
	for _, field := range fields {
		at := place1(names, namesOf(field, called))
		if at < 0 {
			return nil, fmt.Errorf("no column %s in %s; name the one that is meant, as in --field %s=column", field, quoted(head), field)
		}
		c.places = append(c.places, at)
	}
	c.reader.FieldsPerRecord = len(names)
	return c, nil
}

func place1(columns, names []string) int {
	for _, name := range names {
		if i := slices.Index(columns, name); i >= 0 {
			return i
		}
	}
	return -1
}

func (c *columns) record(line []byte) ([]string, error) {
	c.line.rest = append(line, '\n')
	record, err := c.reader.Read()
	if len(c.line.rest) > 0 || err != nil { // it may hold a part of this line
		_, _ = io.Copy(io.Discard, &c.line)
		var wrong *csv.ParseError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("at byte %d: %w", min(wrong.Column, len(line)+1), wrong.Err)
		}
	}
	return record, err
}

func (c *columns) parse(line []byte, values [][]byte) (int64, error) {
	record, err := c.record(line)
	if err != nil {
		return 0, err
	}
	at, err := c.clock.read([]byte(record[c.time]))
	if err != nil {
		return 0, err
	}
	for i, place := range c.places {
		c.value[i] = append(c.value[i][:0], record[place]...)
		values[i] = polished(c.fields[i], c.value[i])
	}
	return at, nil
}
