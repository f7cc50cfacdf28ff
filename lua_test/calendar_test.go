package lua_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// ends is Lua code appended to the library's source code. It registers a function that returns the
// ends of successive windows of the limit args[1], in ms since the epoch. The first is the first
// end after args[2]; the last is the first end at args[3] or later.
const ends = `
redis.register_function{function_name = 'ends', flags = {'no-writes'}, callback = function(_, args)
  local rate, now, last, list = limits.of(args[1]).rate, tonumber(args[2]), tonumber(args[3]), {}
  while now < last do
    now = now + calendar.left(rate, now)
    list[#list + 1] = now
  end
  return list
end}
`

// calendarLimits lists limits whose windows follow the calendar. The test covers every window up to
// the end of lastYear. For most limits, the year 2400 is enough, because the calendar repeats every
// 400 years.
var calendarLimits = []struct {
	period   string
	from     int
	zone     string
	offset   time.Duration
	lastYear int
}{
	{"mo", 1, "", 0, 9999},
	{"mo", 30, "-18:00", -18 * time.Hour, 2400},
	{"mo", 2, "+00:01", time.Minute, 2400},
	{"mo", 15, "", 0, 2400},
	{"mo", 28, "+18:00", 18 * time.Hour, 2400},
	{"mo", 29, "+05:30", 5*time.Hour + 30*time.Minute, 2400},
	{"mo", 31, "", 0, 2400},
	{"y", 1, "", 0, 9999},
	{"y", 1, "-03:30", -3*time.Hour - 30*time.Minute, 9999},
	{"w", 1, "", 0, 2400},
	{"w", 1, "+18:00", 18 * time.Hour, 2400},
	{"w", 1, "-18:00", -18 * time.Hour, 2400},
	{"d", 1, "+05:30", 5*time.Hour + 30*time.Minute, 2100},
	{"d", 1, "-00:00", 0, 2100},
}

// windowEnd returns the end of the window that contains now, computed with package time. If the
// period is a month, from is the day of the month on which windows begin.
func windowEnd(period string, from int, now time.Time) time.Time {
	midnight := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, 0, 0, now.Location())
	}
	year, month, day := now.Date()
	switch period {
	case "y":
		return midnight(year+1, time.January, 1)
	case "mo":
		for ; ; month++ {
			last := midnight(year, month+1, 0).Day()
			if end := midnight(year, month, min(from, last)); end.After(now) {
				return end
			}
		}
	}
	end := midnight(year, month, day+1)
	for period == "w" && end.Weekday() != time.Monday {
		day++
		end = midnight(year, month, day+1)
	}
	return end
}

// TestWindowsOfTheCalendar checks that every window of the calendar ends at the time that package
// time computes, and that a decision at any time in a window reports the same end.
func TestWindowsOfTheCalendar(t *testing.T) {
	server := offline{embedded.Run(t, embedded.WithLibrary(mutated(t, functions.Source())+ends), embedded.WithTime(time.Unix(1, 0)))}
	random := rand.New(rand.NewPCG(1, 2))
	exact, last := time.Date(2255, time.January, 1, 0, 0, 0, 0, time.UTC), time.Date(9998, time.January, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range calendarLimits {
		limit, zone := fmt.Sprintf("fixed_window 3/%s align=clock", c.period), time.FixedZone("", int(c.offset.Seconds()))
		if c.from > 1 {
			limit += fmt.Sprint(" from=", c.from)
		}
		if c.zone != "" {
			limit += " zone=" + c.zone
		}
		t.Run(limit, func(t *testing.T) {
			end := time.Unix(0, 0).In(zone)
			for year := 1970; year < c.lastYear; year += 10 { // ten years per call, because the engine bounds the work of one call
				reply, err := server.Do("FCALL_RO", "ends", "0", limit, fmt.Sprint(end.UnixMilli()),
					fmt.Sprint(time.Date(min(year+10, c.lastYear+1), time.January, 1, 0, 0, 0, 0, zone).UnixMilli()))
				list, ok := reply.([]any)
				if err != nil || !ok || len(list) < 9 {
					t.Fatalf("from %v: %v, %v", end, reply, err)
				}
				for _, got := range list {
					begin := end
					if end = windowEnd(c.period, c.from, begin); got != end.UnixMilli() {
						t.Fatalf("the window that begins at %v ends at %v ms, want %v, which is %v", begin, got, end.UnixMilli(), end)
					}
				}
			}
			check := func(now, end time.Time) {
				t.Helper()
				server.Server.SetTime(now)
				want := fmt.Sprintf("[1 3 2 0 %d 1]", end.Sub(now).Milliseconds())
				if got := textOf(server.Do("FCALL_RO", "ratelimit_peek", "1", "k", limit)); got != want {
					t.Fatalf("at %v: %s, want %s", now, got, want)
				}
			}
			for range 200 {
				now := time.Unix(random.Int64N(last.Unix()), 0).In(zone)
				end := windowEnd(c.period, c.from, now)
				check(now, end)
				check(end.Add(-time.Second), end)
				check(end, windowEnd(c.period, c.from, end))
				if end.Before(exact) { // past this date, a double cannot represent every microsecond
					check(end.Add(-time.Millisecond), end)
				}
			}
		})
	}
}
