package httpcall

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
)

// longest is what is believed of a wait; more is as long.
const longest = 10 * 365 * 24 * time.Hour

// told returns for how long the response says to stay away, which may be 0, and whether it says so. What cannot be read is
// ignored. Retry-After goes before the field RateLimit.
func told(response *http.Response, now time.Time) (time.Duration, bool) {
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		if d, ok := retryAfter(response.Header, now); ok {
			return d, true
		}
	}
	if age, err := strconv.Atoi(response.Header.Get("Age")); err == nil && age > 0 { // it comes from a cache, and tells of another time
		return 0, false
	}
	list, err := httpsfv.UnmarshalList(response.Header.Values("RateLimit"))
	if err != nil {
		return 0, false
	}
	var most int64
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		left, ok1 := item.Params.Get("r")
		window, ok2 := item.Params.Get("t")
		if seconds, ok3 := window.(int64); ok1 && ok2 && ok3 && left == int64(0) {
			most = max(most, seconds)
		}
	}
	return span(most), most > 0
}

// retryAfter reads seconds, or a date. A date is compared with the response's own, since clocks differ.
func retryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	text := header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 63); err == nil || errors.Is(err, strconv.ErrRange) {
		return span(int64(n)), true // out of range it is the largest
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), longest), true
}

// span is a number of seconds that is not below 0.
func span(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(longest/time.Second))) * time.Second
}
