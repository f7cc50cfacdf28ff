package accesslog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// all reads a log. For each line it returns the time and the fields, or the error in the line. end
// is the error that ended the reading.
func all(t testing.TB, from io.Reader, opts Options) (lines []string, end error) {
	t.Helper()
	f := redistest.Must[*File](t)(New(t.Context(), from, opts))
	defer func() { _ = f.Close() }()
	values := make([][]byte, len(opts.Fields))
	for {
		clear(values)
		at, err := f.Next(values)
		var bad *BadLine
		switch {
		case errors.As(err, &bad):
			lines = append(lines, err.Error())
			continue
		case err != nil:
			return lines, err
		}
		line := time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05.999")
		for _, value := range values {
			if value == nil {
				line += " -"
			} else {
				line += fmt.Sprintf(" %q", value)
			}
		}
		lines = append(lines, line)
	}
}

var asked = []string{"client", "user", "method", "path"}

const combined = `203.0.113.7 - ann [01/Mar/2026:18:00:05 +0100] "GET /api/items?page=2 HTTP/1.1" 200 512 "https://example.com/" "Mozilla/5.0 (X11; \"odd\")" "198.51.100.1"`

func TestFormats(t *testing.T) {
	for name, tt := range map[string]struct {
		log    string
		fields []string
		called map[string]string
		format string
		want   []string
	}{
		"combined, and more behind": {combined, append(asked, "status", "size", "referer", "agent"), nil, "",
			[]string{`2026-03-01T17:00:05 "203.0.113.7" "ann" "GET" "/api/items" "200" "512" "https://example.com/" "Mozilla/5.0 (X11; \\\"odd\\\")"`}},
		"common": {`host.example - - [28/Feb/2026:23:59:59 -0330] "POST http://h.example/a/b HTTP/1.0" 302 -`, append(asked, "size", "agent"), nil, "",
			[]string{`2026-03-01T03:29:59 "host.example" - "POST" "/a/b" "0" -`}},
		"common, without a size": {`::1 - - [01/Mar/2026:18:00:05 +0000] "-" 400`, []string{"size"}, nil, "", []string{`2026-03-01T18:00:05 ""`}},
		"a user with blanks, no request": {`::1 - ann lee [01/Mar/2026:18:00:05 +0000] "\x16\x03" 400 0` + "\r\n\n" + `::1 - - [01/Mar/2026:18:00:05 +0000] "-" 408 -`, asked, nil, "",
			[]string{`2026-03-01T18:00:05 "::1" "ann lee" - -`, `2026-03-01T18:00:05 "::1" - - -`}},
		"a host before it": {`www.example.com:443 2001:db8::1 - ann [01/Mar/2026:18:00:05 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, asked, nil, "",
			[]string{`2026-03-01T18:00:05 "2001:db8::1" "ann" "GET" "/"`}},
		"ten zones": {zones(), nil, nil, "", slices.Repeat([]string{"2026-03-01T12:00:00"}, 10)},
		"json": {`{"time":"2026-03-01T18:00:05.25Z","remote_addr":"203.0.113.7","user":"ann","request":"GET /x?y HTTP/2.0"}` + "\n" +
			`{"ts":1772388005.125,"request":{"client_ip":"::1","method":"PUT","uri":"/z","headers":{"X-Api-Key":["k\u0031"]}},"user_id":7}`, append(asked, "request.headers.X-Api-Key"), nil, "",
			[]string{`2026-03-01T18:00:05.25 "203.0.113.7" "ann" "GET" "/x" -`, `2026-03-01T18:00:05.125 "::1" "7" "PUT" "/z" "k1"`}},
		"json with other names": {`{"when":1772388005000,"peer":"a","time":"x"}`, []string{"client"}, map[string]string{"time": "when", "client": "peer"}, "json",
			[]string{`2026-03-01T18:00:05 "a"`}},
		"csv": {"time,client,path\n2026-03-01 18:00:05,203.0.113.7,\"/a,b\"\n1772388005,::1,/", []string{"client", "path"}, nil, "",
			[]string{`2026-03-01T18:00:05 "203.0.113.7" "/a,b"`, `2026-03-01T18:00:05 "::1" "/"`}},
		"csv with tabs and semicolons in it": {"\xef\xbb\xbfip\tts\tnote\n::1\t1772388005000000\ta;b;c", []string{"client", "note"}, nil, "",
			[]string{`2026-03-01T18:00:05 "::1" "a;b;c"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, end := all(t, strings.NewReader(tt.log), Options{Format: tt.format, Fields: tt.fields, Called: tt.called})
			if end != io.EOF || !slices.Equal(got, tt.want) {
				t.Errorf("%v:\n%s\nwant\n%s", end, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// zones returns a log of ten lines with the same time, each written in a different time zone.
func zones() string {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var log strings.Builder
	for i := range 10 {
		zone := time.FixedZone("", (i-5)*5400)
		fmt.Fprintf(&log, "::1 - - [%s] \"GET / HTTP/1.1\" 200 1\n", noon.In(zone).Format(commonTime))
	}
	return log.String()
}

func TestBadLines(t *testing.T) {
	good := combined + "\n"
	for name, tt := range map[string]struct{ format, log, want string }{
		"binary":            {"", "\x00\x01\xff\x1b[31m\n", `line 1: not JSON, not CSV with a header line, and not in the Common Log Format: no time in brackets, as in 203.0.113.7 - - [01/Mar/2026:18:00:00 +0000]; the line begins "\x00\x01\xff\x1b[31m"`},
		"no time":           {"common", "a - - \"GET / HTTP/1.1\" 200 1\n", `line 1: no time in brackets, as in 203.0.113.7 - - [01/Mar/2026:18:00:00 +0000]; the line begins "a - - \"GET / HTTP/1.1\" 200 1"`},
		"the time is none":  {"common", "a - - [yesterday] \"GET / HTTP/1.1\" 200 1\n", `line 1: at byte 8: "yesterday" is not a time such as 2026-03-01T18:00:00Z, 01/Mar/2026:18:00:00 +0000 or 1772388000.123`},
		"the time is far":   {"common", "a - - [01/Mar/1999:18:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n", `line 1: at byte 8: the time "01/Mar/1999:18:00:00 +0000" is not in the years 2002 to 2199`},
		"a bracket":         {"common", "a - - [01/Mar", `line 1: at byte 7: the time has no closing bracket`},
		"no user":           {"common", "a - [01/Mar/2026:18:00:00 +0000] \"-\" 200 1", `line 1: at byte 1: "a -" before the time is not client, ident and user, as in 203.0.113.7 - -`},
		"no request":        {"common", "a - - [01/Mar/2026:18:00:00 +0000] 200 1", `line 1: at byte 36: the request has no opening quote`},
		"an endless quote":  {"common", "a - - [01/Mar/2026:18:00:00 +0000] \"GET \\\" 200 1", `line 1: at byte 36: the request has no closing quote`},
		"a status":          {"common", "a - - [01/Mar/2026:18:00:00 +0000] \"-\" OK 1", `line 1: at byte 40: "OK" is not a status such as 200`},
		"json, cut off":     {"json", `{"time":"2026-03-01T18:00:00Z"`, `line 1: at byte 30: not a JSON object: unexpected end of JSON input`},
		"json, no object":   {"json", `[1]`, `line 1: not a JSON object: "[1]"`},
		"json, no time":     {"json", `{"a":1}`, `line 1: no field time, timestamp, @timestamp, ts, time_iso8601, time_local, msec, StartUTC, date; name the one that has the time, as in --field time=when`},
		"csv, no head":      {"csv", "a,b\n", `line 1: no column time, timestamp, @timestamp, ts, time_iso8601, time_local, msec, StartUTC, date in "a,b"; the first line of CSV names the columns; name the column of the time, as in --field time=when`},
		"csv, a quote":      {"csv", "time,client\n2026-03-01 18:00:00,\"a\n2026-03-01 18:00:00,b\n", `line 2: at byte 23: extraneous or missing " in quoted-field`},
		"csv, few":          {"csv", "time,client\n2026-03-01 18:00:00\n2026-03-01 18:00:00,b\n", `line 2: at byte 1: wrong number of fields`},
		"csv, no client":    {"", "time,peer\n", `line 1: no column client in "time,peer"; name the column, as in --field client=column`},
		"longer than a MiB": {"common", strings.Repeat("x", LongestLine+1) + "\n" + good, `line 1: the line is longer than 1048576 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			got, end := all(t, strings.NewReader(tt.log), Options{Format: tt.format, Fields: []string{"client"}})
			if end != io.EOF || len(got) == 0 || got[0] != tt.want {
				t.Errorf("%v\n%q\nwant\n%q", end, got, tt.want)
			}
			if n := strings.Count(tt.log, "\n"); n > 1 && got[len(got)-1][:4] != "2026" {
				t.Errorf("the next line is lost: %q", got)
			}
		})
	}
	t.Run("a long line that is good", func(t *testing.T) {
		line := strings.Replace(combined, "ann", strings.Repeat("n", LongestLine-len(combined)), 1)
		if got, end := all(t, strings.NewReader(line), Options{}); end != io.EOF || !slices.Equal(got, []string{"2026-03-01T17:00:05"}) {
			t.Errorf("%v, %.200q", end, got)
		}
	})
	t.Run("latin-1", func(t *testing.T) {
		log := strings.Replace(combined, "ann", "andr\xe9", 1)
		if got, _ := all(t, strings.NewReader(log), Options{Fields: []string{"user"}}); !slices.Equal(got, []string{`2026-03-01T17:00:05 "andr\xe9"`}) {
			t.Errorf("%q", got)
		}
	})
	t.Run("a field that the format has not", func(t *testing.T) {
		if _, err := New(t.Context(), strings.NewReader(""), Options{Format: "common", Fields: []string{"x"}}); err == nil || err.Error() != `no field "x" in the Common Log Format; there are client, user, method, path, status, size, referer and agent` {
			t.Error(err)
		}
	})
}

func TestCompressed(t *testing.T) {
	log := strings.Repeat(combined+"\n", 1000)
	gz, zst := compressed(t, log)
	for name, content := range map[string][]byte{"gzip": gz, "gzip, in two parts": append(bytes.Clone(gz), gz...), "zstd": zst} {
		want := 1000
		if strings.Contains(name, "two") {
			want = 2000
		}
		if got, end := all(t, bytes.NewReader(content), Options{}); end != io.EOF || len(got) != want || got[want-1] != "2026-03-01T17:00:05" {
			t.Errorf("%s: %v, %d lines", name, end, len(got))
		}
	}
	for name, content := range map[string][]byte{"gzip": gz[:len(gz)-30], "zstd": zst[:len(zst)-10]} {
		got, end := all(t, bytes.NewReader(content), Options{})
		if !errors.Is(end, io.ErrUnexpectedEOF) {
			t.Errorf("%s, cut off: it ended with %v", name, end)
		}
		for _, line := range got {
			if line != "2026-03-01T17:00:05" {
				t.Errorf("%s, cut off: %s", name, line)
			}
		}
	}
	if _, err := New(t.Context(), strings.NewReader("\x1f\x8bx"), Options{}); err == nil || !strings.HasPrefix(err.Error(), "it begins like gzip but is not gzip: ") {
		t.Error(err)
	}
}

func compressed(t *testing.T, text string) (gz, zst []byte) {
	t.Helper()
	var a, b bytes.Buffer
	g := gzip.NewWriter(&a)
	z := redistest.Must[*zstd.Encoder](t)(zstd.NewWriter(&b))
	for _, w := range []io.WriteCloser{g, z} {
		redistest.Must[int](t)(io.WriteString(w, text))
		redistest.Require(t, w.Close())
	}
	return a.Bytes(), b.Bytes()
}

// A Sorter returns all values that it accepted, in the order of their times. It accepts every value
// that is late by at most Within.
func TestSorter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		within := rapid.Int64Range(0, 20).Draw(t, "within")
		times := rapid.SliceOf(rapid.Int64Range(1, 100)).Draw(t, "times")
		s := Sorter[int]{Within: within}
		var got, kept []int64
		newest, last := int64(0), -1
		take := func(end bool) {
			for {
				at, i, ok := s.Take(end)
				if !ok {
					return
				}
				if n := len(got); at != times[i] || n > 0 && (at < got[n-1] || at == got[n-1] && i < last) {
					t.Fatalf("%d, from place %d, after %v", at, i, got)
				}
				got, last = append(got, at), i
			}
		}
		for i, at := range times {
			late := s.Put(at, i)
			switch {
			case late == 0:
				kept = append(kept, at)
			case at >= newest-within || late != newest-at:
				t.Fatalf("%d is late by %d; the newest is %d", at, late, newest)
			}
			newest = max(newest, at)
			take(false)
		}
		take(true)
		slices.Sort(kept)
		if !slices.Equal(got, kept) {
			t.Fatalf("got %v, want %v", got, kept)
		}
	})
	s := Sorter[int]{Within: 1 << 40}
	for i := range MaxValues {
		if _, _, ok := s.Take(false); ok {
			t.Fatalf("one of %d values was taken out", i)
		}
		s.Put(int64(MaxValues-i), i)
	}
	if at, _, ok := s.Take(false); !ok || at != 1 {
		t.Errorf("with no room left: %d, %v", at, ok)
	}
}

// Reading stops when the context is done, even if a small compressed log expands to millions of
// lines or to one endless line.
func TestReadingEndsWithItsContext(t *testing.T) {
	for name, log := range map[string]string{"empty lines": strings.Repeat("\n", 4<<20), "one line": strings.Repeat("x", 4<<20)} {
		gz, zst := compressed(t, log)
		for _, content := range []string{string(gz), string(zst), log} {
			ctx, cancel := context.WithCancel(t.Context())
			f := redistest.Must[*File](t)(New(ctx, strings.NewReader(content), Options{}))
			cancel()
			if _, err := f.Next(nil); !errors.Is(err, context.Canceled) {
				t.Errorf("%s that begin %q: %v", name, content[:4], err)
			}
			_ = f.Close()
		}
	}
}

// Nested lists are parsed at any depth, with few allocations.
func TestDeepJSON(t *testing.T) {
	const deep = 9990 // the limit of encoding/json is 10000
	for value, want := range map[string]string{
		strings.Repeat("[", deep) + strings.Repeat("]", deep):                                                     "-",
		strings.Repeat("[ ", deep) + `"a\u0062\"]", 1` + strings.Repeat(" ] ", deep):                              `"ab\"]"`,
		strings.Repeat("[", deep) + `"a]", 1` + strings.Repeat("]", deep):                                         `"a]"`,
		strings.Repeat("[", deep) + " -1.5e3 , 2" + strings.Repeat("]", deep):                                     `"-1.5e3"`,
		strings.Repeat("[", deep) + "true" + strings.Repeat("]", deep):                                            `"true"`,
		strings.Repeat("[", deep) + "null" + strings.Repeat("]", deep):                                            "-",
		strings.Repeat("[", deep) + `{"a":1}` + strings.Repeat("]", deep):                                         "-",
		"[" + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `, "second"]`:                               "-",
		`[["", "second"], "third"]`:                                                                               "-",
		strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep):                                           "-",
		strings.Repeat(`{"a":[`, deep/2) + `"in here"` + strings.Repeat("]}", deep/2):                             "-",
		"[" + strings.Repeat(`"a string",`, 50_000) + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "]": `"a string"`,
	} {
		line := `{"time":1772388005,"client":` + value + "}"
		if got, end := all(t, strings.NewReader(line), Options{Format: "json", Fields: []string{"client"}}); end != io.EOF || !slices.Equal(got, []string{"2026-03-01T18:00:05 " + want}) {
			t.Errorf("%.40s: %v, %.200q; want %s", value, end, got, want)
		}
		parser, values := newJSONLines([]string{"client"}, nil), [][]byte{nil}
		if n := testing.AllocsPerRun(1, func() { _, _ = parser.parse([]byte(line), values) }); n > 100 {
			t.Errorf("%.40s: %v allocations", value, n)
		}
	}
}

// fuzzFormat checks that any line is either parsed or reported as a bad line, and that the line
// after it is read.
func fuzzFormat(f *testing.F, format, head, good string) {
	for _, seed := range []string{good, combined, `{"time":1772388005,"a":{"b":[1]}}`, "2026-03-01 18:00:05,\"a\"\"b\",c", "", "\x00", `a - - [`, `"`, "{", "\t;,"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsAny(line, "\n") {
			return
		}
		opts := Options{Format: format, Fields: []string{"client"}}
		file, err := New(t.Context(), strings.NewReader(head+string(line)+"\n"+good+"\n"), opts)
		if err != nil {
			return // the input begins like a compressed file
		}
		var last error
		client := ""
		values := make([][]byte, 1)
		for {
			clear(values)
			at, err := file.Next(values)
			if errors.Is(err, io.EOF) {
				break
			}
			var bad *BadLine
			if err != nil && !errors.As(err, &bad) {
				if strings.HasPrefix(string(line), "\x1f\x8b") || strings.HasPrefix(string(line), "\x28\xb5\x2f\xfd") {
					return
				}
				t.Fatal(err)
			}
			if err == nil && (at < firstTime || at >= lastTime) {
				t.Fatalf("the time is %d", at)
			}
			last, client = err, string(values[0])
		}
		if last != nil || client != "203.0.113.7" {
			t.Fatalf("the next line: %v, client %q", last, client)
		}
	})
}

func FuzzCommon(f *testing.F) { fuzzFormat(f, "common", "", combined) }
func FuzzJSON(f *testing.F) {
	fuzzFormat(f, "json", "", `{"time":"2026-03-01T18:00:05Z","client":"203.0.113.7"}`)
}
func FuzzCSV(f *testing.F) { fuzzFormat(f, "csv", "time,client,x\n", "1772388005,203.0.113.7,y") }
