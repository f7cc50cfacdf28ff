package model

import (
	"strconv"
	"strings"
)

// daysOfMonths holds the number of days in each month of a common year.
var daysOfMonths = [12]int64{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// calendar reports whether the period is a week, a month or a year of the calendar.
func (r Rate) calendar() bool { return r.Period == "w" || r.Period == "mo" || r.Period == "y" }

// zoneMS returns the offset of the option zone in ms, or 0 if the rate does not have the option.
func (r Rate) zoneMS() int64 {
	for _, word := range r.Options {
		if offset, ok := strings.CutPrefix(word, "zone="); ok {
			hours, _ := strconv.ParseInt(offset[1:3], 10, 64)
			minutes, _ := strconv.ParseInt(offset[4:], 10, 64)
			ms := (hours*60 + minutes) * 60000
			if offset[0] == '-' {
				ms = -ms
			}
			return ms
		}
	}
	return 0
}

// clockEnd returns the end, in ms, of the window that contains now. The rate has align=clock.
func (r Rate) clockEnd(now int64) int64 {
	here := now + r.zoneMS()
	day := here / dayMS // rounds down, because here is never negative
	end := here - here%r.MS() + r.MS()
	switch r.Period {
	case "w":
		monday := int64(4) // January 5, 1970, the first Monday
		end = (monday + (day-monday+7)/7*7) * dayMS
	case "mo", "y":
		end = r.monthEnd(day) * dayMS
	}
	return end - r.zoneMS()
}

// monthEnd returns the first day after the given day on which a window begins. It steps through all
// months since 1970.
func (r Rate) monthEnd(day int64) int64 {
	first := int64(0)
	for year := 1970; ; year++ {
		for month, days := range daysOfMonths {
			if month == 1 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
				days++
			}
			begins := first + min(r.number("from", 1), days) - 1
			if begins > day && (r.Period == "mo" || month == 0) {
				return begins
			}
			first += days
		}
	}
}
