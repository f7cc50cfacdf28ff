package accesslog

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// columns parses CSV whose first line names the fields. A record cannot span several lines, so an
// unclosed quote affects only its own line.
type columns struct {
	clock  clock
	reader *csv.Reader
	line   bytes.Reader // the current line, which is the input of reader
	time   int
	fields []string
	places []int // index of each field's column
	value  [][]byte
}

// newColumns parses head, the header line. called is Options.Called.
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
		return nil, fmt.Errorf("the header line: %w", err)
	}
	if c.time = placeOf(names, "time", called); c.time < 0 {
		return nil, fmt.Errorf("no column %s in %s; the first line of CSV names the columns; name the column of the time, as in --field time=when",
			strings.Join(namesOf("time", called), ", "), quoted(head))
	}
	for _, field := range fields {
		at := placeOf(names, field, called)
		if at < 0 {
			return nil, &noColumn{field, quoted(head)}
		}
		c.places = append(c.places, at)
	}
	c.reader.FieldsPerRecord = len(names)
	return c, nil
}

// noColumn is the error for CSV that lacks the column of a field.
type noColumn struct{ field, head string }

func (e *noColumn) Error() string {
	return fmt.Sprintf("no column %s in %s; name the column, as in --field %s=column", e.field, e.head, e.field)
}

// placeOf returns the index of the column for a field, or -1 if there is none. For called, see
// namesOf.
func placeOf(columns []string, field string, called map[string]string) int {
	for _, name := range namesOf(field, called) {
		if i := slices.Index(columns, name); i >= 0 {
			return i
		}
	}
	return -1
}

func (c *columns) record(line []byte) ([]string, error) {
	c.line.Reset(append(line, '\n'))
	record, err := c.reader.Read()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		return nil, fmt.Errorf("at byte %d: %w", min(wrong.Column, len(line)+1), wrong.Err)
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
		values[i] = normalized(c.fields[i], c.value[i])
	}
	return at, nil
}
