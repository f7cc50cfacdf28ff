package policies

import (
	"cmp"
	"slices"
	"strings"
)

// parser is Lua code that adds a function to the library, so that only the library parses limits.
// The function returns a parsed limit: the algorithm's name and, for each rate, the fields of the
// Go type rate in order. A concurrency limit has no rates.
const parser = `
redis.register_function{
  function_name = 'ratelimit_parse',
  flags = { 'no-writes' },
  callback = function(_, args)
    local algorithm = algorithms[string.match(args[1], '^%s*([%a_]+)')]
    if algorithm == algorithms.concurrency then
      local limit, err = leases.limit(args[1])
      return limit and { 'concurrency' } or err
    end
    local limit, err = limits.of(args[1])
    if not limit then
      return err
    end
    local reply = { limit.algorithm.name }
    for i, rate in ipairs(limit.rates) do
      reply[i + 1] = { rate.count, rate.period, rate.capacity, rate.buckets or 1, rate.align and 1 or 0, rate.shift or 0,
        rate.months or 0, rate.from or 1 }
    end
    return reply
  end,
}
`

type limit struct {
	algorithm string
	rates     []rate // empty for a concurrency limit
}

type rate struct {
	text     string
	n        int64 // units per period
	period   int64 // in ms; for months and years, the length of the longest
	capacity int64
	buckets  int64
	aligned  bool  // align=clock
	shift    int64 // how many ms before a multiple of the period since the epoch each window begins
	months   int64 // length of a window in calendar months, or 0
	from     int64 // the day of the month on which a window of calendar months begins
}

// parse makes the library parse a limit. The error is the library's, without the error code.
func (c *checker) parse(text string) (limit, error) {
	reply, err := c.call("FCALL_RO", "ratelimit_parse", 0, text)
	if err != nil {
		return limit{}, err
	}
	l := limit{algorithm: reply[0].(string)}
	texts := strings.Split(strings.TrimPrefix(strings.TrimSpace(text), l.algorithm+" "), ",")
	for i, fields := range reply[1:] {
		n, _ := numbers(fields)
		l.rates = append(l.rates, rate{strings.TrimSpace(texts[i]), n[0], n[1], n[2], n[3], n[4] == 1, n[5], n[6], n[7]})
	}
	return l, nil
}

// capacity returns the number of units that the limit allows at once.
func (l limit) capacity() int64 {
	return slices.MinFunc(l.rates, func(a, b rate) int { return cmp.Compare(a.capacity, b.capacity) }).capacity
}
