package accesslog

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// columns reads CSV whose first line names the fields. A record is one line: one whose quotes do not end is wrong, and does
// not take the lines behind it with it.
type columns struct {
	clock  clock
	reader *csv.Reader
	line   bytes.Reader // the one that reader reads, and then an end
	time   int
	fields []string
	places []int // of each field; -1: the log has it not
	value  [][]byte
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
	if c.time = placeOf(names, "time", called); c.time < 0 {
		return nil, fmt.Errorf("no column %s in %s; the first line of CSV names the columns, and --field time=when the one that has the time",
			strings.Join(namesOf("time", called), ", "), quoted(head))
	}
	for _, field := range fields {
		at := placeOf(names, field, called)
		if at < 0 {
			return nil, fmt.Errorf("no column %s in %s; name the one that is meant, as in --field %s=column", field, quoted(head), field)
		}
		c.places = append(c.places, at)
	}
	c.reader.FieldsPerRecord = len(names)
	return c, nil
}

// placeOf is which column has a field; -1: none.
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
	var wrong *csv.ParseError
	if errors.As(err, &wrong) {
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
		values[i] = polished(c.fields[i], c.value[i])
	}
	return at, nil
}
