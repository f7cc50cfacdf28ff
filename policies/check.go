package policies

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Findings is what Check has found.
type Findings struct {
	// Wrong policies cannot be asked for: the library refuses their limits. They must not be deployed.
	Wrong Problems

	// Doubtful ones work, but hardly as they were meant: a rate that never decides, a burst below the stated cost.
	Doubtful Problems
}

// Check has the library itself read every limit, in the offline engine, and looks for what can hardly be meant. The
// error is one of the engine; what is wrong with the policies is in Findings.
func (f *File) Check() (Findings, error) {
	// Without the policies: their limits are asked for one by one, and thousands of them take the engine long to load.
	server, err := embedded.Start(embedded.WithLibrary(functions.Source()), embedded.WithTime(startOfTests))
	if err != nil {
		return Findings{}, fmt.Errorf("the library does not load: %w", err)
	}
	defer func() { _ = server.Close() }()
	c := checker{server: server, wrong: source{name: f.Name}, doubtful: source{name: f.Name}}
	for _, policy := range f.Policies {
		c.policy(policy)
	}
	var found Findings
	if err := c.wrong.err(); err != nil {
		found.Wrong = c.wrong.problems
	}
	if err := c.doubtful.err(); err != nil {
		found.Doubtful = c.doubtful.problems
	}
	return found, c.failed
}

// startOfTests is when the clock of the engine stands, if nothing else is said: a Thursday, in UTC.
var startOfTests = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

type checker struct {
	server          *embedded.Server
	wrong, doubtful source
	failed          error
}

func (c *checker) policy(p Policy) {
	for i, limit := range p.Limits {
		at := p.at
		if i < len(p.limits) {
			at = p.limits[i]
		}
		if at == nil {
			at = &yaml.Node{}
		}
		capacity, lease, err := c.ask(limit.Limit)
		what := "policy " + p.Name
		if limit.Key != "" {
			what += ", " + limit.Key
		}
		switch {
		case err != nil:
			c.wrong.wrong(at, "%s: %v", what, err)
		case lease:
			c.lease(p, what, at)
		default:
			if cost, given := p.cost(i); given && cost > capacity {
				c.doubtful.wrong(at, "%s: a call of cost %d never passes, since %s lets through at most %d at once; raise its burst",
					what, cost, limit.Limit, capacity)
			}
			for _, moot := range mootRates(limit.Limit, c.capacity) {
				c.doubtful.wrong(at, "%s: %s", what, moot)
			}
		}
	}
}

// lease checks what only a policy of leases must not have.
func (c *checker) lease(p Policy, what string, at *yaml.Node) {
	switch {
	case len(p.Limits) > 1:
		c.wrong.wrong(at, "%s: concurrency beside other limits; a lease takes one limit, so give it a policy of its own", what)
	case p.Track:
		c.wrong.wrong(at, "%s: track is for ratelimit_take, and concurrency for ratelimit_acquire; remove track", what)
	case len(p.Costs) > 0:
		c.wrong.wrong(at, "%s: a lease has no cost; remove cost", what)
	}
}

// cost answers the cost that the policy states for a limit.
func (p Policy) cost(i int) (int64, bool) {
	switch {
	case len(p.Costs) == 1:
		return p.Costs[0], true
	case i < len(p.Costs):
		return p.Costs[i], true
	}
	return 0, false
}

// ask has the library read a limit: the most that it lets through at once, and whether it is one for leases. The error
// is the library's, without its code.
func (c *checker) ask(limit string) (capacity int64, lease bool, err error) {
	capacity, err = c.call("FCALL_RO", "ratelimit_peek", "1", "key", limit, "COST", "0")
	if err != nil && strings.Contains(err.Error(), "ratelimit_acquire") {
		capacity, err = c.call("FCALL", "ratelimit_acquire", "1", "lease", limit, "id")
		if _, failed := c.server.Do("FLUSHALL"); failed != nil {
			c.failed = failed
		}
		return capacity, true, err
	}
	return capacity, false, err
}

func (c *checker) call(words ...any) (int64, error) {
	reply, err := c.server.Do(words...)
	var refused embedded.Error
	switch {
	case errors.As(err, &refused):
		_, text, _ := strings.Cut(strings.TrimPrefix(refused.Error(), "RATELIMIT "), " ")
		return 0, errors.New(text)
	case err != nil:
		c.failed = err
		return 0, err
	}
	fields, _ := reply.([]any)
	if len(fields) < 6 {
		c.failed = fmt.Errorf("the library answers %v to %v, which is no decision", reply, words)
		return 0, c.failed
	}
	capacity, _ := fields[1].(int64)
	return capacity, nil
}

func (c *checker) capacity(limit string) int64 {
	capacity, _, err := c.ask(limit)
	if err != nil {
		return 0
	}
	return capacity
}
