package httpcall

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
)

// longest is the maximum wait. Longer waits are shortened to it.
const longest = 10 * 365 * 24 * time.Hour

// requestedWait returns how long the response asks the client to wait, which may be 0. It returns
// false if the response does not ask for a wait or cannot be parsed. Retry-After takes precedence
// over RateLimit.
func requestedWait(response *http.Response, now time.Time) (time.Duration, bool) {
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		if d, ok := retryAfter(response.Header, now); ok {
			return d, true
		}
	}
	if age, err := strconv.Atoi(response.Header.Get("Age")); err == nil && age > 0 { // a cached response: its wait began earlier
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

// retryAfter parses Retry-After, which holds seconds or a date. A date is compared with the
// response's Date, because clocks differ.
func retryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	text := header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 63); err == nil || errors.Is(err, strconv.ErrRange) {
		return span(int64(n)), true // ParseUint returns the maximum if out of range
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

// span converts seconds, which must not be negative, to a duration of at most longest.
func span(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(longest/time.Second))) * time.Second
}
