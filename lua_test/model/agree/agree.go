// Package agree runs generated calls on a server and on the model of the contract, and reports
// differences.
package agree

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/internal/respmap"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// Server is one database of a server that runs the library built by generate.Library.
type Server interface {
	SetTime(us int64) error
	// Do runs a command. An error reply is returned as a Refusal; any other error means that the
	// server has failed.
	Do(words ...string) (any, error)
}

// Refusal is a server's error reply.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// keys lists all keys in the generated calls.
var keys = []string{"{v}:a", "{v}:b", "{v}:c", "{v}:d", "{v}:leases", "{v}:request1", "{v}:request2", "{v}:usage"}

// Repeat runs generated sequences until they have made the wanted number of steps, which
// generate.Wanted returns. If the server and the model differ, Repeat fails the test and shows a
// shortened sequence that still differs. All databases must belong to one server.
func Repeat(t *testing.T, wanted int, databases ...Server) {
	t.Helper()
	steps, done, differs := generate.Steps(), 0, false
	rapid.Check(t, func(t *rapid.T) {
		if done >= wanted && !differs {
			return
		}
		sequence := steps.Draw(t, "run")
		done += len(sequence)
		if err := Run(sequence, databases...); err != nil {
			differs = true // from now on, rapid shrinks the failing sequence
			t.Fatal(err)
		}
	})
	t.Logf("%d steps", done)
}

// Run runs the steps on an empty server. If the server and the model differ in a step, Run returns
// an error with the difference and all steps up to it.
//
// After each call, Run compares the replies and the keys' expiries of the server and the model. It
// compares each take with a peek just before it. It also checks that denied, rejected and read-only
// calls leave every key unchanged.
func Run(steps []generate.Step, databases ...Server) error {
	r := &run{now: generate.StartUS}
	sum := model.New(r.now) // its counts are summed over all databases
	for _, server := range databases {
		if _, err := server.Do(append([]string{"DEL"}, keys...)...); err != nil {
			return err
		}
		m := model.New(r.now)
		m.Calls, m.ClassCalls, m.BorrowCalls = sum.Calls, sum.ClassCalls, sum.BorrowCalls
		r.databases = append(r.databases, database{server, m})
	}
	r.database = r.databases[0]
	if err := r.server.SetTime(r.now); err != nil {
		return err
	}
	before, err := r.calls()
	if err != nil {
		return err
	}
	for i, step := range steps {
		if err := r.step(step); err != nil {
			return fmt.Errorf("step %d: %w\n%s", i+1, err, r.transcript.String())
		}
	}
	after, err := r.calls()
	for of, got := range after {
		for i := range got {
			got[i] -= before[of][i]
		}
		if want := counted(sum, of); got != want {
			return fmt.Errorf("%+v: %d by ratelimit_info, %d by the model\n%s", of, got, want, r.transcript.String())
		}
	}
	return err
}

// counts holds the numbers of a policy, a canary or a class: allowed and denied, or for BORROW
// guaranteed, borrowed and denied.
type counts [3]int64

// counted returns the counts of the model. of is a model.Side, a model.Class, or the name of a policy
// with a guarantee and a pool.
func counted(m *model.Model, of any) counts {
	switch of := of.(type) {
	case model.Side:
		return counts{m.Calls[of].Allowed, m.Calls[of].Denied}
	case model.Class:
		return counts{m.ClassCalls[of].Allowed, m.ClassCalls[of].Denied}
	}
	b := m.BorrowCalls[of.(string)]
	return counts{b.Guaranteed, b.Borrowed, b.Denied}
}

// calls returns the counts that ratelimit_info reports, by what counted takes.
func (r *run) calls() (map[any]counts, error) {
	info, err := r.server.Do("FCALL_RO", "ratelimit_info", "0")
	if err != nil {
		return nil, err
	}
	all, fields := map[any]counts{}, respmap.Of(info)
	names := []string{"policy_calls"}
	if generate.Shares {
		names = append(names, "class_calls", "borrow_calls")
	}
	for _, name := range names {
		list, _ := fields[name].([]any)
		if len(list) == 0 {
			return nil, fmt.Errorf("ratelimit_info returns no %s: %v", name, info)
		}
		for _, entry := range list {
			f := entry.([]any)
			of, n := f[0].(string), func(i int) int64 { return f[i].(int64) }
			switch {
			case name == "class_calls":
				all[model.Class{Policy: of, Class: f[1].(string)}] = counts{n(2), n(3)}
			case name == "borrow_calls":
				all[of] = counts{n(1), n(2), n(3)}
			case len(f) > 3:
				all[model.Side{Policy: of, Canary: true}] = counts{n(4), n(5)}
				fallthrough
			default:
				all[model.Side{Policy: of}] = counts{n(1), n(2)}
			}
		}
	}
	return all, nil
}

// database is one of the server's databases, together with a model of its content.
type database struct {
	server Server
	model  *model.Model
}

type run struct {
	databases  []database
	database   // of the current step
	now        int64
	retry      int64 // retry_after_ms of the last decision
	reset      int64
	transcript strings.Builder
}

func (r *run) step(s generate.Step) error {
	if err := r.move(s.Move.To(r.now, r.retry, r.reset)); err != nil {
		return err
	}
	c := s.Call
	r.database = r.databases[s.Database%len(r.databases)]
	if len(r.databases) > 1 {
		fmt.Fprintf(&r.transcript, "database %d  ", s.Database%len(r.databases))
	}
	before, err := r.snapshot(c)
	if err != nil {
		return err
	}
	var peeked string
	if c.Verb == model.Take {
		if peeked, err = r.peek(c, before); err != nil {
			return err
		}
	}
	repeated := r.repeats(c)
	got, err := r.do(c)
	if err != nil {
		return err
	}
	want := r.want(c)
	fmt.Fprintf(&r.transcript, "%14d us  %s\n                   -> %s\n", r.now-generate.StartUS, show(c.Words()), got)
	if got != want {
		return fmt.Errorf("the library returns %s, the model %s", got, want)
	}
	// Errors are not compared, because the keys for ONCE and TRACK can make the take fail, and the
	// peek does not have these keys.
	if peeked != "" && !repeated && !c.Force && peeked != got && !strings.HasPrefix(got, "RATELIMIT") {
		return fmt.Errorf("peek returned %s, the take after it %s", peeked, got)
	}
	if changesNothing(c, got) {
		if err := r.unchanged(c, before); err != nil {
			return err
		}
	}
	r.remember(got)
	return r.expiries(c)
}

// move sets the clock to the given time, in µs. It also reads every key, so that the server removes
// expired keys.
func (r *run) move(to int64) error {
	if to == r.now {
		return nil
	}
	r.now = to
	if err := r.server.SetTime(to); err != nil {
		return err
	}
	for _, d := range r.databases {
		d.model.SetTime(to)
		if _, err := d.server.Do(append([]string{"EXISTS"}, keys...)...); err != nil {
			return err
		}
	}
	return nil
}

// do runs a call on the server. For a RATELIMIT error it returns only the reason.
func (r *run) do(c model.Call) (string, error) {
	reply, err := r.server.Do(c.Words()...)
	if refused, ok := errors.AsType[Refusal](err); ok {
		words := strings.Fields(string(refused))
		if len(words) > 1 && words[0] == "RATELIMIT" {
			return "RATELIMIT " + words[1], nil
		}
		return string(refused), nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprint(reply), nil
}

func (r *run) want(c model.Call) string {
	reply, reason := r.model.Do(c)
	if reason != "" {
		return "RATELIMIT " + reason
	}
	return fmt.Sprint(reply)
}

// repeats reports whether ONCE has stored a reply for the call. If so, the call takes nothing.
func (r *run) repeats(c model.Call) bool {
	_, kept := r.model.Expiry(c.OnceKey)
	return kept && c.OnceMS > 0
}

// peek returns the reply to a peek with the arguments of the take c, and checks that the peek
// changes nothing.
func (r *run) peek(c model.Call, before []any) (string, error) {
	p := c.Peeks()
	got, err := r.do(p)
	if err != nil {
		return "", err
	}
	if err := r.unchanged(c, before); err != nil {
		fmt.Fprintf(&r.transcript, "%14d us  %s\n                   -> %s\n", r.now-generate.StartUS, show(p.Words()), got)
		return "", err
	}
	return got, nil
}

// changesNothing reports whether a call with this reply must leave all keys unchanged, apart from
// the usage record.
func changesNothing(c model.Call, reply string) bool {
	if c.Verb == model.Peek || c.Verb == model.Usage || strings.HasPrefix(reply, "RATELIMIT") {
		return true
	}
	if c.Verb == model.Refund && slices.ContainsFunc(c.Limits, func(p model.Policy) bool { return p.Shadow || p.Canary != nil && p.Canary.Shadow }) {
		return false // shadow policies are refunded separately
	}
	return strings.HasPrefix(reply, "[0 ")
}

// snapshot returns the content and the expiry of the call's keys, except the usage record, which
// also counts denials.
func (r *run) snapshot(c model.Call) ([]any, error) {
	if c.Verb == model.Reset || c.Verb == model.Unblock || c.Verb == model.OverrideEnd {
		return nil, nil // never denied
	}
	var all []any
	for _, key := range c.AllKeys() {
		if key == c.Usage {
			continue
		}
		held, err := r.look(key)
		if err != nil {
			return nil, err
		}
		all = append(all, held)
	}
	return all, nil
}

func (r *run) look(key string) (any, error) {
	kind, err := r.server.Do("TYPE", key)
	if err != nil {
		return nil, err
	}
	read := map[any][]string{"string": {"GET", key}, "zset": {"ZRANGE", key, "0", "-1", "WITHSCORES"}, "hash": {"HGETALL", key}}[kind]
	if read == nil {
		return kind, nil
	}
	value, err := r.server.Do(read...)
	if err != nil {
		return nil, err
	}
	expires, err := r.server.Do("PEXPIRETIME", key)
	if err != nil {
		return nil, err
	}
	return []any{kind, value, expires}, nil
}

func (r *run) unchanged(c model.Call, before []any) error {
	after, err := r.snapshot(c)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(before, after) {
		return fmt.Errorf("the call must change nothing; before: %q, after: %q", before, after)
	}
	return nil
}

// remember stores the times of a decision for the next move of the clock.
func (r *run) remember(got string) {
	var allowed, limit, remaining, retry, reset int64
	if n, _ := fmt.Sscanf(got, "[%d %d %d %d %d", &allowed, &limit, &remaining, &retry, &reset); n == 5 {
		r.retry, r.reset = retry, reset
	}
}

// expiries compares the expiries of the call's keys on the server and in the model.
func (r *run) expiries(c model.Call) error {
	for _, key := range c.AllKeys() {
		got, err := r.server.Do("PEXPIRETIME", key)
		if err != nil {
			return err
		}
		want, ok := r.model.Expiry(key)
		if !ok {
			want = -2 // no such key
		}
		if got != want {
			return fmt.Errorf("key %s expires at %v, in the model at %d: -1 means never, -2 that there is no such key; it is %d ms now",
				key, got, want, r.now/1000)
		}
	}
	return nil
}

func show(words []string) string {
	shown := make([]string, len(words))
	for i, word := range words {
		shown[i] = word
		if strings.Contains(word, " ") {
			shown[i] = fmt.Sprintf("%q", word)
		}
	}
	return strings.Join(shown, " ")
}
