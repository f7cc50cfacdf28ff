package worst

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// A Text returns a string to store: the state of a rate, or the value of a key. now is the server's
// time.
type Text func(now time.Time) string

// Log returns the state of a sliding_log with the given number of calls, spread evenly over span.
// The last call is at the time now.
func Log(calls int, span time.Duration) Text {
	return func(now time.Time) string {
		last := now.UnixMicro()
		log := make([]byte, 5, 5+12*calls)
		for i := 1; i <= calls; i++ {
			at := binary.BigEndian.AppendUint64(nil, uint64(last-span.Microseconds()+span.Microseconds()*int64(i)/int64(calls)))
			sum := binary.BigEndian.AppendUint64(nil, uint64(i))
			log = append(append(log, at[1:]...), sum[3:]...)
		}
		return string(log)
	}
}

// Buckets returns a sliding_window state with buckets=1000 and a period of 1000 s. All buckets have
// the same count.
func Buckets(count string) Text {
	return func(now time.Time) string {
		return fmt.Sprintf("1000:%d:%s", now.Unix(), strings.TrimSuffix(strings.Repeat(count+",", 1001), ","))
	}
}

// One returns the Text of a key that holds one rate.
func One(algorithm string, state Text) Text {
	return func(now time.Time) string { return algorithm + ":" + state(now) }
}

// Several returns the value of a key that holds a state for each of several rates.
func Several(algorithm string, states ...Text) Text {
	return func(now time.Time) string {
		var value strings.Builder
		value.WriteString(algorithm + "::")
		for _, state := range states {
			text := state(now)
			fmt.Fprintf(&value, "%d:%s", len(text), text)
		}
		return value.String()
	}
}

// Blocked returns the value of a key that holds another value and is blocked. The block ends
// `after` from now.
func Blocked(after time.Duration, value Text) Text {
	return func(now time.Time) string {
		return fmt.Sprintf("blocked:%d:%d:", now.Add(after).UnixMilli(), now.Add(day).UnixMilli()) + value(now)
	}
}
