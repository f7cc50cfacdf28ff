package accesslog

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Times outside this range are errors. The library cannot store times before 2001, and policy tests
// accept the same range of years.
var (
	firstTime = time.Date(2002, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	lastTime  = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
)

const commonTime = "02/Jan/2006:15:04:05 -0700"

// clock parses times and caches the last one, because most lines of a log have the same second as
// the line before.
type clock struct {
	text []byte
	at   int64
}

// read parses a time, and returns it in ms since 1970.
func (c *clock) read(text []byte) (int64, error) {
	if len(text) > 0 && string(text) == string(c.text) {
		return c.at, nil
	}
	at, err := parseTime(string(text))
	if err != nil {
		return 0, err
	}
	if at < firstTime || at >= lastTime {
		return 0, fmt.Errorf("the time %s is not in the years 2002 to 2199", quoted(text))
	}
	c.text, c.at = append(c.text[:0], text...), at
	return at, nil
}

func parseTime(text string) (int64, error) {
	if len(text) > 64 {
		text = text[:64] // longer than any of the formats
	}
	for _, layout := range []string{commonTime, time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05 Z07:00", "2006-01-02T15:04:05", time.DateTime} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMilli(), nil
		}
	}
	if at, ok := epoch(text); ok {
		return at, nil
	}
	return 0, fmt.Errorf("%s is not a time such as 2026-03-01T18:00:00Z, 01/Mar/2026:18:00:00 +0000 or 1772388000.123", quoted(text))
}

// epoch parses a time in s, ms, µs or ns since 1970. The unit is inferred from the magnitude of the
// number: in seconds, the years 2002 to 2199 are 1.0e9 to 7.3e9.
func epoch(text string) (int64, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || strings.Trim(fraction, "0123456789") != "" {
		if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 1e9 && f < 1e10 { // such as 1.7723e9
			return int64(f * 1000), true
		}
		return 0, false
	}
	switch {
	case n < 1e11:
		ms, _ := strconv.Atoi((fraction + "000")[:3])
		return int64(n)*1000 + int64(ms), true
	case n < 1e14:
		return int64(n), true
	case n < 1e17:
		return int64(n / 1e3), true
	}
	return int64(n / 1e6), true
}

// quoted returns part of a line for an error message: truncated, and in printable ASCII.
func quoted[T string | []byte](text T) string {
	const most = 48
	if len(text) > most {
		return strconv.QuoteToASCII(string(text[:most])) + "..."
	}
	return strconv.QuoteToASCII(string(text))
}
