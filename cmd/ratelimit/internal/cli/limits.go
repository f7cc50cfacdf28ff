package cli

import "github.com/spf13/cobra"

// limitExamples lists examples of limits, one per algorithm or option, for "ratelimit help limits".
var limitExamples = []struct{ limit, meaning string }{
	{"100/m", "100 calls a minute, refilled evenly; the algorithm is gcra, the default"},
	{"gcra 10/s burst=20", "10 calls a second, and up to 20 at once after a pause"},
	{"token_bucket 60/m burst=120", "60 units are added each minute, up to 120"},
	{"leaky_bucket 5/s burst=50", "5 calls a second go ahead; up to 50 wait in line, and the reply says how long"},
	{"fixed_window 1000/h", "1000 calls in an hour that begins with the first call"},
	{"fixed_window 1000/d align=clock", "1000 calls in each day, from midnight UTC"},
	{"fixed_window 9000/mo align=clock zone=+02:00 from=15", "in each month, from the 15th at midnight, two hours ahead of UTC; also w and y"},
	{"sliding_window 100/m buckets=6", "about 100 calls in any minute, estimated from buckets of 10 seconds"},
	{"sliding_log 20/5m", "exactly 20 calls in any 5 minutes"},
	{"concurrency 3 lease=30s", "3 at once: for acquire, renew and release. A lease ends after 30 s unless renewed"},
	{"10/s, 1000/h", "both rates, in one key; both must allow"},
	{"0/m", "nothing, ever"},
	{"@api", "the deployed policy api, which names the limits of one key or several"},
}

func (a *app) limitsTopic() *cobra.Command {
	text := `A limit is text: [algorithm] n/period [option=value ...], or several rates with commas between them. n is a whole
number. A period is one unit, or a whole number and one unit: ms, s, m, h or d. Write 90s, not 1m30s.

`
	for _, example := range limitExamples {
		text += "  " + example.limit + "\n      " + example.meaning + "\n"
	}
	return &cobra.Command{
		Use:   "limits",
		Short: "How to write a limit, with an example of each algorithm",
		Long: text + `
A limit with blanks is one argument: put it in quotes. Give each limit its own key. docs/algorithms.md compares the
algorithms, and functions/SEMANTICS.md has the exact rules.`,
	}
}
