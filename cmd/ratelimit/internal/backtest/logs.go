package backtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/accesslog"
)

// Input is one log.
type Input struct {
	Name string // for messages
	io.Reader
}

// Log summarizes the lines of all logs.
type Log struct {
	Lines       int64    // lines that are not empty
	Bad         int64    // lines that cannot be parsed
	Late        int64    // lines dropped because they came later than Unsorted allows
	Keyless     int64    // lines dropped because they lack a field of every key
	Costless    int64    // lines dropped because their cost is missing, or is not a number of units
	Requests    int64    // remaining lines
	First, Last int64    // times of the remaining lines, ms since 1970
	Problems    []string // the first five problems of each kind, and every file that ended early
	latest      int64    // largest delay of a late line, in ms
}

// mostProblems is the maximum number of problems of one kind that are shown.
const mostProblems = 5

// event is a request: its time, its cost and the IDs of its keys (0 for a missing key).
type event struct {
	at   int64 // ms since 1970
	cost int64 // 1 without Options.Cost
	keys [MostKeys]uint32

	// With Options.ClassBy, the last of keys is the class: an index of classes.names, from 1.
}

// MostKeys is the maximum number of different keys that a run may have.
const MostKeys = 4

// logs are the files of a run, merged by time.
type logs struct {
	Log
	files  []*logFile
	keys   []Key
	fields []string // the fields of the keys, then the field with the cost if there is one
	cost   string
	tables []*table
	values [][]byte
	class  *classes // nil if lines have no classes
	bytes  int64    // bytes read
}

// counted is a reader that adds the number of bytes read to *bytes.
type counted struct {
	io.Reader
	bytes *int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.bytes += int64(n)
	return n, err
}

type logFile struct {
	name   string
	file   *accesslog.File
	sorter accesslog.Sorter[event]
	ended  bool
	next   event
}

func open(ctx context.Context, inputs []Input, keys []Key, opts Options) (*logs, error) {
	l := &logs{keys: keys, fields: fieldsOf(keys), cost: opts.Cost}
	if opts.ClassBy != "" {
		l.class = &classes{field: opts.ClassBy}
		if !slices.Contains(l.fields, opts.ClassBy) {
			l.fields = append(l.fields, opts.ClassBy)
		}
	}
	if l.cost != "" {
		l.fields = append(l.fields, l.cost)
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Called)) {
		if used := append([]string{"time"}, l.fields...); !slices.Contains(used, name) {
			return nil, fmt.Errorf("--field %s=%s: no key, cost or class uses the field %s; this run uses %s", name, opts.Called[name], name, strings.Join(used, ", "))
		}
	}
	l.values = make([][]byte, len(l.fields))
	for range keys {
		l.tables = append(l.tables, &table{numbers: map[string]uint32{}})
	}
	for _, input := range inputs {
		file, err := accesslog.New(ctx, counted{input, &l.bytes}, accesslog.Options{Format: opts.Format, Called: opts.Called, Fields: l.fields})
		if err != nil {
			l.close()
			return nil, fmt.Errorf("%s: %w", input.Name, err)
		}
		f := &logFile{name: input.Name, file: file}
		f.sorter.Within = opts.Unsorted.Milliseconds()
		l.files = append(l.files, f)
	}
	return l, nil
}

func (l *logs) close() {
	for _, f := range l.files {
		_ = f.file.Close()
	}
}

// each calls emit for the requests of all files, in chronological order, until ctx is done.
func (l *logs) each(ctx context.Context, emit func(event) error) error {
	var open []*logFile
	for _, f := range l.files {
		if l.advance(ctx, f) {
			open = append(open, f)
		}
	}
	for len(open) > 0 && ctx.Err() == nil {
		oldest := 0
		for i, f := range open {
			if f.next.at < open[oldest].next.at {
				oldest = i
			}
		}
		f := open[oldest]
		l.count(f.next)
		if err := emit(f.next); err != nil {
			return err
		}
		if !l.advance(ctx, f) {
			open = append(open[:oldest], open[oldest+1:]...)
		}
		if l.class != nil && l.class.err != nil {
			return l.class.err
		}
	}
	return nil
}

func (l *logs) count(e event) {
	if l.Requests == 0 {
		l.First = e.at
	}
	l.Requests++
	l.Last = e.at
	for i, t := range l.tables {
		if e.keys[i] > 0 {
			t.count(e.keys[i], e.cost)
		}
	}
}

// advance finds the next request of a file, and reports whether there is one.
func (l *logs) advance(ctx context.Context, f *logFile) bool {
	for {
		if _, e, ok := f.sorter.Take(f.ended); ok {
			f.next = e
			return true
		}
		if f.ended || ctx.Err() != nil {
			return false
		}
		l.line(ctx, f)
	}
}

// line reads the next line of log file f, and puts its request into f's sorter.
func (l *logs) line(ctx context.Context, f *logFile) {
	clear(l.values)
	at, err := f.file.Next(l.values)
	var bad *accesslog.BadLine
	switch {
	case errors.As(err, &bad):
		l.Lines++
		if l.Bad++; l.Bad <= mostProblems {
			l.problem("%s:%d: %v", f.name, bad.Number, bad.Err)
		}
		return
	case errors.Is(err, io.EOF) || ctx.Err() != nil:
		f.ended = true
		return
	case err != nil:
		f.ended = true
		l.problem("%s ends early, after line %d: %v; the lines before it count", f.name, f.file.Lines(), err)
		return
	}
	l.Lines++
	e := event{at: at, cost: 1}
	if l.cost != "" {
		if e.cost, err = l.costOf(l.values[len(l.values)-1]); err != nil {
			if l.Costless++; l.Costless <= mostProblems {
				l.problem("%s:%d: %v", f.name, f.file.Lines(), err)
			}
			return
		}
	}
	if l.class != nil {
		e.keys[MostKeys-1] = l.class.number(l.values[slices.Index(l.fields, l.class.field)])
	}
	lacks := true
	for i, key := range l.keys {
		t := l.tables[i]
		name, ok := key.appendTo(t.scratch[:0], l.fields, l.values)
		t.scratch = name
		if ok {
			e.keys[i], lacks = t.number(name), false
		}
	}
	if lacks {
		if l.Keyless++; l.Keyless <= mostProblems {
			l.problem("%s:%d: the line lacks a field of the key %s", f.name, f.file.Lines(), l.keys[0])
		}
		return
	}
	if late := f.sorter.Put(at, e); late > 0 {
		l.latest = max(l.latest, late)
		if l.Late++; l.Late <= mostProblems {
			l.problem("%s:%d: the line is %s older than one before it", f.name, f.file.Lines(), time.Duration(late)*time.Millisecond)
		}
	}
}

func (l *logs) costOf(value []byte) (int64, error) {
	if len(value) == 0 {
		return 0, fmt.Errorf("the line lacks %s, the field with its cost", l.cost)
	}
	cost, err := accesslog.Units(value)
	if err != nil {
		return 0, fmt.Errorf("the cost %s: %w", l.cost, err)
	}
	return cost, nil
}

func (l *logs) problem(format string, args ...any) {
	l.Problems = append(l.Problems, fmt.Sprintf(format, args...))
}

// Unsorted returns the smallest Options.Unsorted, in whole seconds, that would have accepted every
// line. It is formatted as a flag value.
func (l Log) Unsorted() string { return fmt.Sprintf("%ds", (l.latest+999)/1000) }
