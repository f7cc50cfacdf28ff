package policies

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// sides is Lua code that adds a function to the library. The function chooses which side decides
// all following calls: "canary", "policy", or "" for the side to which the call's key belongs.
const sides = `
do
  local by_key, side = policies.in_canary, ''
  policies.in_canary = function(...)
    if side == '' then return by_key(...) end
    return side == 'canary'
  end
  redis.register_function('ratelimit_side', function(_, args)
    side = args[1]
    return 1
  end)
end
`

// Results is the outcome of the tests in one file.
type Results struct {
	File  string        `json:"file"`
	Tests []Result      `json:"tests"`
	Took  time.Duration `json:"-"`
}

// Failed returns how many tests failed.
func (r Results) Failed() int {
	n := 0
	for _, test := range r.Tests {
		if len(test.Failures) > 0 {
			n++
		}
	}
	return n
}

// Calls returns how many calls were made.
func (r Results) Calls() int64 {
	n := int64(0)
	for _, test := range r.Tests {
		n += test.Calls
	}
	return n
}

// Result is the outcome of one test.
type Result struct {
	Name     string        `json:"name"`
	Line     int           `json:"line"`
	Calls    int64         `json:"calls"`
	Failures []Failure     `json:"failures"`
	Took     time.Duration `json:"-"`
}

// Failure describes a field of a call's reply that was not as expected.
type Failure struct {
	Line     int    `json:"line"` // position of the expectation in the test file
	Column   int    `json:"column"`
	Call     string `json:"call"` // as in "take @api user:42 at 1m30s"
	Field    string `json:"field"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// Run runs the tests in the offline engine, with a library that has the file's policies. Each test
// starts with an empty keyspace. If only is not nil, Run skips the tests whose names do not match
// it. Run returns an error if the tests could not be run.
func (f *TestFile) Run(ctx context.Context, only *regexp.Regexp) (Results, error) {
	if f == nil || f.Policies == nil {
		return Results{}, errors.New("the TestFile has no policies; read it with ReadTests")
	}
	results := Results{File: f.Name, Tests: []Result{}}
	began := time.Now()
	build, err := f.Policies.build()
	if err != nil {
		return results, err
	}
	server, err := embedded.Start(embedded.WithLibrary(build.Text()+sides), embedded.WithTime(startOfTests))
	if err != nil {
		return results, fmt.Errorf("the library with the policies of %s does not load: %w", f.Policies.Name, err)
	}
	defer func() { _ = server.Close() }()
	for _, test := range f.tests {
		if only != nil && !only.MatchString(test.name) {
			continue
		}
		server.SetTime(test.start)
		if _, err := server.Do("FLUSHALL"); err != nil {
			return results, fmt.Errorf("the engine does not empty its keyspace: %w", err)
		}
		result := Result{Name: test.name, Line: test.at.Line, Failures: []Failure{}}
		testBegan := time.Now()
		for _, call := range test.calls {
			server.SetTime(test.start.Add(call.after))
			failures, err := call.run(ctx, server)
			if err != nil {
				return results, err
			}
			result.Calls += call.times
			result.Failures = append(result.Failures, failures...)
		}
		result.Took = time.Since(testBegan)
		results.Tests = append(results.Tests, result)
	}
	results.Took = time.Since(began)
	return results, nil
}

// run makes the calls and compares the replies. For "allowed", an expected true or false applies to
// every call, and an expected number is the number of calls that are allowed. All other fields
// apply to the last call.
func (c call) run(ctx context.Context, server *embedded.Server) ([]Failure, error) {
	words := c.command()
	if _, err := server.Do("FCALL", "ratelimit_side", 0, c.side); err != nil {
		return nil, fmt.Errorf("%s: the engine failed: %w", c, err)
	}
	allowed := int64(0)
	var reply []int64
	var each [][]int64
	var refused error
	first := map[int64]int64{} // by outcome (0: denied, 1: allowed), the number of the first call with that outcome
	for i := range c.times {
		if ctx.Err() != nil {
			return nil, errors.New("interrupted before all tests were run")
		}
		raw, err := server.Do(words...)
		var text embedded.Error
		if err != nil && !errors.As(err, &text) {
			return nil, fmt.Errorf("%s: the engine failed: %w", c, err)
		}
		reply, each = numbers(raw)
		refused = err
		if refused != nil {
			break
		}
		if len(reply) > 0 {
			passed := min(1, reply[0])
			if _, seen := first[passed]; !seen {
				first[passed] = i + 1
			}
			allowed += passed
		}
	}
	return c.compare(reply, each, refused, allowed, first), nil
}

func (c call) compare(reply []int64, each [][]int64, refused error, allowed int64, first map[int64]int64) []Failure {
	var failures []Failure
	fail := func(e expectation, want, got string) {
		failures = append(failures, Failure{e.at.Line, e.at.Column, c.String(), e.path(), want, got})
	}
	// An expected error is always the only expectation.
	if refused != nil && (len(c.expect) == 0 || c.expect[0].field != "error") {
		fail(expectation{at: c.at, field: "error"}, "no error", refused.Error())
		return failures
	}
	for _, e := range c.expect {
		show := func(value int64) string { return e.show(value, c.policy) }
		call, differs := first[1-e.want]
		values, element := reply, e.element()
		if e.key != "" {
			values, differs = each[e.index-1], false
		}
		switch {
		case e.field == "error" && refused == nil:
			fail(e, "an error that begins with "+strconv.Quote(e.text), "no error")
		case e.field == "error":
			if !strings.HasPrefix(refused.Error(), e.text) {
				fail(e, "an error that begins with "+strconv.Quote(e.text), refused.Error())
			}
		case e.count:
			if allowed != e.want {
				fail(e, show(e.want), show(allowed))
			}
		case e.field == "allowed" && c.times > 1 && differs:
			fail(e, show(e.want)+" for every call", fmt.Sprintf("%s for call %d of %d", show(1-e.want), call, c.times))
		case element >= len(values) || element >= 6 && len(values) < 9: // the reply to acquire and renew has one element more
			fail(e, show(e.want), "nothing, because the call has no shadow policy")
		default:
			got := values[element]
			if strings.HasSuffix(e.field, "allowed") {
				got = min(1, got) // with up_to, got is the number of units taken
			}
			if got != e.want {
				fail(e, show(e.want), show(got))
			}
		}
	}
	return failures
}

// numbers converts a reply, which is a decision or a count, to integers. If the call has EACH,
// byLimit contains one decision for each limit.
func numbers(reply any) (list []int64, byLimit [][]int64) {
	elements, ok := reply.([]any)
	if !ok {
		elements = []any{reply}
	}
	for _, element := range elements {
		switch element := element.(type) {
		case int64:
			list = append(list, element)
		case []any:
			for _, key := range element {
				fields, _ := numbers(key)
				byLimit = append(byLimit, fields)
			}
		}
	}
	return list, byLimit
}

// command returns the call as a command for the engine.
func (c call) command() []any {
	words := []any{"FCALL", "ratelimit_" + c.verb, len(c.keys)}
	for _, key := range c.keys {
		words = append(words, key)
	}
	if c.policy != nil {
		words = append(words, "@"+c.policy.Name)
	}
	if c.has("lease") {
		words = append(words, c.lease)
	}
	if c.has("limit") {
		words = append(words, c.limit)
	}
	if c.has("for") {
		words = append(words, c.span.Milliseconds())
	}
	if len(c.costs) > 0 {
		words = append(words, "COST")
		for _, cost := range c.costs {
			words = append(words, cost)
		}
	}
	if c.upTo {
		words = append(words, "UPTO")
	}
	if c.force {
		words = append(words, "FORCE")
	}
	if c.floor != nil {
		words = append(words, "FLOOR", *c.floor)
	}
	if c.class != "" {
		words = append(words, "CLASS", c.class)
	}
	if c.paid > 0 {
		words = append(words, "PAID", c.paid)
	}
	if slices.ContainsFunc(c.expect, func(e expectation) bool { return e.key != "" }) {
		words = append(words, "EACH")
	}
	return words
}

// String returns the call for display.
func (c call) String() string {
	words := []string{c.verb}
	if c.policy != nil {
		words = append(words, "@"+c.policy.Name)
	}
	words = append(words, c.keys...)
	if c.has("lease") {
		words = append(words, c.lease)
	}
	if c.has("limit") {
		words = append(words, c.limit)
	}
	if c.has("for") {
		words = append(words, "for", span.Text(c.span))
	}
	if c.upTo {
		words = append(words, "up to", fmt.Sprint(c.costs[0]))
	} else if len(c.costs) > 0 {
		words = append(words, "cost", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.costs), " ", ", "), "[]"))
	}
	if c.force {
		words = append(words, "by force")
	}
	if c.floor != nil {
		words = append(words, "with floor", fmt.Sprint(*c.floor))
	}
	if c.class != "" {
		words = append(words, "of class", c.class)
	}
	if c.paid > 0 {
		words = append(words, "paid by", fmt.Sprint(c.paid))
	}
	switch c.side {
	case "canary":
		words = append(words, "in the canary")
	case "policy":
		words = append(words, "outside the canary")
	}
	if c.times > 1 {
		words = append(words, strconv.FormatInt(c.times, 10)+" times")
	}
	return strings.Join(words, " ") + " at " + span.Text(c.after)
}
