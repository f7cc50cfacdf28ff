package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// stand is a server, and the time that it shares with the clients of a test.
type stand struct {
	*embedded.Server
	rdb *redis.Client

	mu    sync.Mutex
	at    time.Time
	lines [][]any                    // commands of the library that were sent
	hook  func(cmd redis.Cmder)      // before a command is sent
	lose  func(cmd redis.Cmder) bool // whether the reply gets lost
}

func newStand(t testing.TB) *stand {
	t.Helper()
	at := time.UnixMilli(1_700_000_000_000)
	server, err := embedded.Start(embedded.WithLibrary(functions.Source()), embedded.WithTime(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	s := &stand{Server: server, at: at}
	s.rdb = connect(t, redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	s.rdb.AddHook(s)
	return s
}

func (s *stand) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *stand) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
	s.SetTime(s.at)
}

// client is a process that uses the server.
func (s *stand) client(t testing.TB, opts ...client.Option) *client.Client {
	t.Helper()
	c := newClient(t, s.rdb, opts...)
	client.SetClock(c, s.now)
	return c
}

// sent is how many commands of the library were sent since it was last asked for.
func (s *stand) sent() [][]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *stand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *stand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "fcall") {
			return next(ctx, cmd)
		}
		s.mu.Lock()
		s.lines = append(s.lines, cmd.Args())
		hook, lose := s.hook, s.lose
		s.mu.Unlock()
		if hook != nil {
			hook(cmd)
		}
		err := next(ctx, cmd)
		if lose != nil && lose(cmd) {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

const (
	ttl   = 100 * time.Millisecond
	wide  = client.Limit("100000/m")
	tight = client.Limit("10/m")
)

// allow asks for so many units of key "k".
func allow(t testing.TB, c *client.Client, limit client.Limit, n int64) client.Result {
	t.Helper()
	return must[client.Result](t)(c.AllowN(t.Context(), "k", limit, n))
}

// sizes are the units that were asked for with the commands that were sent: "8" for a batch, "=1" for a call by itself.
func (s *stand) sizes() string {
	var sizes []string
	for _, line := range s.sent() {
		switch {
		case len(line) == 5:
			sizes = append(sizes, "=1")
		case len(line) == 7:
			sizes = append(sizes, "="+line[6].(string))
		default:
			sizes = append(sizes, line[6].(string))
		}
	}
	return strings.Join(sizes, " ")
}

// calls asks for one unit so many times, so far apart.
func (s *stand) calls(t testing.TB, c *client.Client, n int, apart time.Duration) {
	t.Helper()
	for range n {
		if res := allow(t, c, wide, 1); !res.Allowed {
			t.Fatal(res)
		}
		s.pass(apart)
	}
}

// warm is a client that holds 15 units of the key "k" under wide, of 16 that it has just taken, and has spent 16 before.
func (s *stand) warm(t testing.TB, opts ...client.Option) *client.Client {
	t.Helper()
	c := s.client(t, append(opts, client.WithBatches(16, ttl))...)
	s.calls(t, c, 1+2+4+8+1, 0)
	if got := s.sizes(); got != "=1 2 4 8 16" {
		t.Fatal(got)
	}
	return c
}

// A key that is asked for often needs fewer and fewer requests, up to n units in one; one that is asked for once in a while takes
// one at a time, and in between a batch is what is spent in its time.
func TestBatchGrowsWithTheRate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		calls int
		apart time.Duration
		want  string
	}{
		{"often", 47, 0, "=1 2 4 8 16 16"},
		{"once in a while", 4, 3 * ttl, "=1 =1 =1 =1"},
		{"slowly", 4, ttl * 3 / 5, "=1 =1 =1 =1"},
		{"eight in the time of a batch", 31, ttl / 8, "=1 2 4 8 8 8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStand(t)
			s.calls(t, s.client(t, client.WithBatches(16, ttl)), tt.calls, tt.apart)
			if got := s.sizes(); got != tt.want {
				t.Errorf("asked for %s, want %s", got, tt.want)
			}
		})
	}
	s := newStand(t)
	c := s.warm(t)
	s.pass(3 * ttl)
	s.calls(t, c, 1, 0)
	if got := s.sizes(); got != "=1" {
		t.Errorf("after a rest it asked for %s", got)
	}
	s.calls(t, c, 2+4+8+2, 0) // and 14 are left of the last 16
	s.pass(ttl + time.Millisecond)
	s.calls(t, c, 1, 0)
	if got := s.sizes(); got != "2 4 8 16 2" {
		t.Errorf("after a batch that was not spent in time it asked for %s", got)
	}
}

// The fewer units remain, the fewer are taken ahead.
func TestBatchShrinksWithWhatRemains(t *testing.T) {
	s := newStand(t)
	c := s.client(t, client.WithBatches(64, ttl))
	for range 40 {
		allow(t, c, "40/d", 1)
	}
	if got, want := s.sizes(), "=1 2 4 4 3 3 2 2 2"; !strings.HasPrefix(got, want) {
		t.Errorf("asked for %s, want at first %s", got, want)
	}
	if res := allow(t, c, "40/d", 1); res.Allowed || res.RetryAfter == 0 {
		t.Errorf("the 41st of 40 got %+v", res)
	}
}

// What a decision from a batch says counts on from the last reply.
func TestBatchResult(t *testing.T) {
	s := newStand(t)
	c := s.warm(t)
	s.pass(5 * time.Millisecond)
	got := allow(t, c, wide, 1)
	s.pass(-5 * time.Millisecond)
	server := must[client.Result](t)(c.PeekN(t.Context(), "k", wide, 0))
	want := client.Result{Allowed: true, Limit: 100000, Remaining: server.Remaining + 14, ResetAfter: server.ResetAfter - 5*time.Millisecond, Index: 1, Source: client.SourceBatch}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if before := allow(t, c, wide, 1); before.Remaining != got.Remaining-1 {
		t.Errorf("remaining %d after %d", before.Remaining, got.Remaining)
	}
	if client.SourceBatch.String() != "batch" || client.SourceMemory.String() != "memory" {
		t.Error(client.SourceBatch, client.SourceMemory)
	}
}

// Units are spent within ttl, from before the request for them was sent.
func TestBatchIsLetGo(t *testing.T) {
	s := newStand(t)
	c := s.warm(t)
	s.pass(ttl - 1)
	if res := allow(t, c, wide, 1); res.Source != client.SourceBatch {
		t.Errorf("just before ttl by %v", res.Source)
	}
	s.pass(1)
	if res := allow(t, c, wide, 1); res.Source != client.SourceServer {
		t.Errorf("at ttl by %v", res.Source)
	}
	for _, late := range []time.Duration{ttl - 1, ttl} { // a request that takes its time
		s.pass(time.Minute)
		s.calls(t, c, 3, 0) // 1 2, and all spent
		s.hook = func(redis.Cmder) { s.pass(late) }
		s.calls(t, c, 1, 0)
		s.hook = nil
		if res := allow(t, c, wide, 1); (res.Source == client.SourceBatch) != (late < ttl) {
			t.Errorf("after a request of %v by %v", late, res.Source)
		}
	}
}

// What is let go was counted, and is not given back: nothing but takes is ever sent before Close.
func TestBatchIsNotGivenBackAtTTL(t *testing.T) {
	s := newStand(t)
	c := s.warm(t)
	s.pass(2 * ttl)
	s.calls(t, c, 1, 0)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.sizes(); got != "=1" {
		t.Errorf("sent %s", got)
	}
}

func TestBatchServesACostOrLeavesItToTheServer(t *testing.T) {
	s := newStand(t)
	c := s.warm(t) // has 15
	for _, tt := range []struct {
		cost int64
		from client.Source
	}{{16, client.SourceServer}, {17, client.SourceServer}, {10, client.SourceBatch}, {6, client.SourceServer}, {5, client.SourceBatch}, {2, client.SourceServer}} {
		if res := allow(t, c, wide, tt.cost); res.Source != tt.from || !res.Allowed {
			t.Errorf("cost %d: %+v, want it from the %v", tt.cost, res, tt.from)
		}
	}
	if got := s.sizes(); got != "=16 =17 =6 =2" {
		t.Errorf("sent %s", got)
	}
}

func TestNotBatched(t *testing.T) {
	one := client.Request{Keys: []string{"k"}, Limits: []client.Limit{wide}}
	with := func(change func(*client.Request)) client.Request {
		req := one
		change(&req)
		return req
	}
	for name, req := range map[string]client.Request{
		"several keys":  with(func(r *client.Request) { r.Keys = []string{"k", "l"}; r.Limits = []client.Limit{wide, wide} }),
		"once":          with(func(r *client.Request) { r.OnceKey, r.OnceTTL = "o", 1 }),
		"usage":         with(func(r *client.Request) { r.UsageKey = "u" }),
		"up to":         with(func(r *client.Request) { r.UpTo, r.Costs = true, []int64{1} }),
		"cost 0":        with(func(r *client.Request) { r.Costs = []int64{0} }),
		"cost above n":  with(func(r *client.Request) { r.Costs = []int64{17} }),
		"leaky_bucket":  with(func(r *client.Request) { r.Limits = []client.Limit{"leaky_bucket 100000/m"} }),
		"leaky, spaces": with(func(r *client.Request) { r.Limits = []client.Limit{"  leaky_bucket 100000/m"} }),
		"policy":        with(func(r *client.Request) { r.Limits = []client.Limit{"@p"} }),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			c := s.client(t, client.WithBatches(16, ttl))
			for range 5 {
				if res, err := c.Take(t.Context(), req); err == nil && res.Source != client.SourceServer {
					t.Errorf("by %v", res.Source)
				}
			}
			if n := len(s.sent()); n != 5 {
				t.Errorf("%d requests for 5 calls", n)
			}
			if n := client.Batched(c); n != 0 {
				t.Errorf("%d batches are kept", n)
			}
		})
	}
}

// A second limit on the key goes to the server while the batch is of the first.
func TestBatchIsOfOneLimit(t *testing.T) {
	s := newStand(t)
	c := s.warm(t)
	for range 3 {
		if res := allow(t, c, "90000/m", 1); res.Source != client.SourceServer {
			t.Error(res)
		}
	}
	if res := allow(t, c, wide, 1); res.Source != client.SourceBatch {
		t.Error(res)
	}
	if got := s.sizes(); got != "=1 =1 =1" {
		t.Error(got)
	}
}

// A reply that is lost, or an error, leaves nothing to spend; the call gets its error, or what the fallback says.
func TestBatchOfALostReply(t *testing.T) {
	s := newStand(t)
	c := s.warm(t, client.WithFallback(client.ReturnError))
	s.calls(t, c, 15, 0)
	s.lose = func(redis.Cmder) bool { return true }
	if _, err := c.Allow(t.Context(), "k", wide); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Error(err)
	}
	if got := s.sizes(); got != "16" {
		t.Error(got)
	}
	if res := must[client.Result](t)(c.Take(t.Context(), client.Request{Keys: []string{"k"}, Limits: []client.Limit{wide}, Fallback: client.FailClosed})); res.Allowed || res.Source != client.SourcePolicy {
		t.Errorf("%+v", res)
	}
	s.lose = nil
	if res := allow(t, c, wide, 1); res.Source != client.SourceServer {
		t.Errorf("spent from a batch whose reply was lost: %+v", res)
	}
}

// outcome is what came of a call in a goroutine.
type outcome struct {
	res client.Result
	err error
}

// together has so many callers wait for the request of a first one, which goes on when release is called.
func (s *stand) together(t *testing.T, c *client.Client, first context.Context, callers int, limit client.Limit) (leader, others chan outcome, release func()) {
	t.Helper()
	leader, others = make(chan outcome, 1), make(chan outcome, callers)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.mu.Lock()
	s.hook = func(redis.Cmder) { once.Do(func() { close(arrived); <-goOn }) }
	s.mu.Unlock()
	go func() {
		res, err := c.Allow(first, "k", limit)
		leader <- outcome{res, err}
	}()
	<-arrived
	for range callers {
		go func() {
			res, err := c.Allow(t.Context(), "k", limit)
			others <- outcome{res, err}
		}()
	}
	eventually(t, "all wait", func() bool { return client.WaitingForBatch(c, "k") == int64(callers) })
	return leader, others, func() { close(goOn) }
}

const patient = 30 * time.Second

// Those who come while a request is under way wait for it, and share the next.
func TestBatchIsShared(t *testing.T) {
	s := newStand(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	leader, others, release := s.together(t, c, t.Context(), 40, wide)
	release()
	for range 40 {
		if o := <-others; o.err != nil || !o.res.Allowed {
			t.Error(o)
		}
	}
	if o := <-leader; o.err != nil || !o.res.Allowed || o.res.Source != client.SourceServer {
		t.Error(o)
	}
	sent := s.sent()
	if len(sent) != 2 || !slices.Contains(sent[1], any("40")) {
		t.Errorf("sent %v, want one for the first and one for the 40 who waited", sent)
	}
}

// A denial is that of all who had called before it was asked for; nobody else's.
func TestBatchDenialIsShared(t *testing.T) {
	s := newStand(t)
	other := s.client(t)
	allow(t, other, tight, 10)
	s.sent()
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	leader, others, release := s.together(t, c, t.Context(), 40, tight)
	release()
	for range 40 {
		if o := <-others; o.err != nil || o.res.Allowed || o.res.RetryAfter != 6*time.Second || o.res.Source != client.SourceServer {
			t.Error(o)
		}
	}
	if o := <-leader; o.err != nil || o.res.Allowed {
		t.Error(o)
	}
	if got := s.sizes(); got != "=1 40" {
		t.Errorf("asked for %s; the first denial is older than the calls that waited", got)
	}
}

// An error is shared by all who waited for the request, so that nobody waits twice; one that is the first caller's own is not.
func TestBatchErrorIsShared(t *testing.T) {
	s := newStand(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	s.lose = func(redis.Cmder) bool { return true }
	leader, others, release := s.together(t, c, t.Context(), 10, wide)
	release()
	for range 10 {
		if o := <-others; !errors.Is(o.err, client.ErrOutcomeUnknown) {
			t.Error(o)
		}
	}
	if o := <-leader; !errors.Is(o.err, client.ErrOutcomeUnknown) {
		t.Error(o)
	}
	if got := s.sizes(); got != "=1" {
		t.Error(got)
	}
	s.mu.Lock()
	s.lose = nil
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	leader, others, release = s.together(t, c, ctx, 10, wide)
	cancel()
	release()
	if o := <-leader; o.err == nil && !o.res.Allowed {
		t.Error(o)
	}
	for range 10 {
		if o := <-others; o.err != nil || !o.res.Allowed {
			t.Error(o)
		}
	}
}

// Who waits for another's request waits no longer than the own context lasts.
func TestBatchWaitEnds(t *testing.T) {
	s := newStand(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	leader, _, release := s.together(t, c, t.Context(), 0, wide)
	ctx, cancel := context.WithCancel(t.Context())
	waiter := make(chan outcome, 1)
	go func() {
		res, err := c.Allow(ctx, "k", wide)
		waiter <- outcome{res, err}
	}()
	eventually(t, "it waits", func() bool { return client.WaitingForBatch(c, "k") == 1 })
	cancel()
	if o := <-waiter; !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, client.ErrUnavailable) || errors.Is(o.err, client.ErrOutcomeUnknown) {
		t.Error(o)
	}
	if n := client.WaitingForBatch(c, "k"); n != 0 {
		t.Errorf("%d wait", n)
	}
	release()
	if o := <-leader; o.err != nil {
		t.Error(o)
	}
}

// A call that needs no request still ends in an error if its context has ended, or the client is closed.
func TestBatchNeedsALiveContext(t *testing.T) {
	s := newStand(t)
	c := s.warm(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Allow(ctx, "k", wide); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Allow(t.Context(), "k", wide); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

// Close gives back what is left less what has come back by itself when the refund arrives at the latest, half a second later.
func TestCloseGivesBack(t *testing.T) {
	for _, tt := range []struct {
		limit client.Limit
		after time.Duration
		want  string
	}{
		{"3600/h", 0, "14"},
		{"gcra 3600/h", 2400 * time.Millisecond, "12"},
		{" gcra 3600/h", 2600 * time.Millisecond, "11"},
		{"3600/h burst=4000, 14400/h", 1500 * time.Millisecond, "7"},
		{"3600/h", 10*time.Second - 1, "4"},
		{"3600/h", 10 * time.Second, ""},
		{"3600000/h", 0, ""},
		{"token_bucket 3600/h", 0, ""},
		{"fixed_window 3600/h", 0, ""},
		{"sliding_log 3600/h", 0, ""},
		{"sliding_window 3600/h", 0, ""},
	} {
		t.Run(fmt.Sprint(tt.limit, " after ", tt.after), func(t *testing.T) {
			s := newStand(t)
			c := s.client(t, client.WithBatches(16, 10*time.Second), client.WithTimeout(500*time.Millisecond))
			for range 1 + 2 + 4 + 8 + 1 { // 15 are left
				allow(t, c, tt.limit, 1)
			}
			s.pass(tt.after)
			s.sent()
			for range 2 {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			var got string
			for _, line := range s.sent() {
				if line[1] == "ratelimit_refund" {
					got += line[6].(string)
				}
			}
			if got != tt.want {
				t.Errorf("gave back %q, want %q", got, tt.want)
			}
		})
	}
}

// What is not known to refill slowly enough is not given back.
func TestCloseDoesNotGuess(t *testing.T) {
	s := newStand(t)
	c := s.client(t, client.WithBatches(16, 10*time.Second))
	for range 16 {
		allow(t, c, "3600/h", 1)
	}
	s.sent()
	s.lose = func(cmd redis.Cmder) bool { return cmd.Args()[1] == "ratelimit_info" }
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, line := range s.sent() {
		if line[1] != "ratelimit_info" {
			t.Error(line)
		}
	}
}

// Where fewer units are left than were asked for, no more are spent.
func TestBatchOfLessThanAskedFor(t *testing.T) {
	s := newStand(t)
	c := s.warm(t)
	s.calls(t, c, 15, 0)
	allow(t, s.client(t), wide, 100000-31-3)
	for i := range 5 {
		if res := allow(t, c, wide, 1); res.Allowed != (i < 3) {
			t.Errorf("%d: %+v", i, res)
		}
	}
}

// More who wait than a batch holds get no unit that was not asked for.
func TestBatchHandsOutNothingTwice(t *testing.T) {
	s := newStand(t)
	c := s.client(t, client.WithBatches(16, ttl), client.WithTimeout(patient))
	leader, others, release := s.together(t, c, t.Context(), 40, wide)
	release()
	for range 40 {
		if o := <-others; o.err != nil || !o.res.Allowed {
			t.Error(o)
		}
	}
	if o := <-leader; o.err != nil || !o.res.Allowed {
		t.Error(o)
	}
	asked, allowed := 0, 41
	for size := range strings.FieldsSeq(s.sizes()) {
		asked += must[int](t)(strconv.Atoi(strings.TrimPrefix(size, "=")))
	}
	for range asked { // what is left
		if res := allow(t, c, wide, 1); res.Source != client.SourceBatch {
			break
		}
		allowed++
	}
	if allowed > asked {
		t.Errorf("%d calls were allowed, and %d units asked for", allowed, asked)
	}
}

// Units that others waited for are not spent by those who come later.
func TestBatchIsKeptForThoseWhoWait(t *testing.T) {
	s := newStand(t)
	c := s.warm(t, client.WithTimeout(patient))
	s.calls(t, c, 15, 0)
	leader, others, release := s.together(t, c, t.Context(), 10, wide)
	release()
	<-leader
	for i := range 6 { // 16 less the first and the ten who wait, whether they are awake yet or not
		if res := allow(t, c, wide, 1); (res.Source == client.SourceBatch) != (i < 5) {
			t.Errorf("%d: %+v", i, res)
		}
	}
	for range 10 {
		if o := <-others; o.err != nil || o.res.Source != client.SourceBatch {
			t.Error(o)
		}
	}
	if got := s.sizes(); got != "16 16" {
		t.Error(got)
	}
}

// What was set aside for those who wait is let go at ttl like the rest: they ask again.
func TestBatchKeptTooLong(t *testing.T) {
	s := newStand(t)
	c := s.warm(t, client.WithTimeout(patient))
	s.calls(t, c, 15, 0)
	leader, others, release := s.together(t, c, t.Context(), 10, wide)
	s.pass(ttl) // until the reply is there
	release()
	if o := <-leader; o.err != nil || o.res.Source != client.SourceServer {
		t.Error(o)
	}
	for range 10 {
		if o := <-others; o.err != nil || !o.res.Allowed {
			t.Error(o)
		}
	}
	if n := len(s.sent()); n < 2 {
		t.Errorf("%d requests", n)
	}
}

// A request that ends in a panic, of a hook of the Redis client, leaves nobody waiting.
func TestBatchAfterAPanic(t *testing.T) {
	s := newStand(t)
	c := s.client(t, client.WithBatches(16, ttl))
	s.hook = func(redis.Cmder) { panic("of a hook") }
	func() {
		defer func() { _ = recover() }()
		allow(t, c, wide, 1)
	}()
	s.hook = nil
	s.calls(t, c, 3, 0)
}

// A unit out of a batch is given back as any other.
func TestReservationFromABatchIsGivenBack(t *testing.T) {
	s := newStand(t)
	c := s.warm(t)
	r := must[*client.Reservation](t)(c.Reserve(t.Context(), "k", wide))
	if !r.OK() || r.Result().Source != client.SourceBatch {
		t.Fatalf("%+v", r.Result())
	}
	s.sent()
	if err := r.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if got := s.sizes(); got != "=1" {
		t.Errorf("sent %q", got)
	}
}

// A request that is under way when the client is closed, or the key reset or blocked, brings nothing that is spent later.
func TestBatchThatComesTooLate(t *testing.T) {
	for name, act := range map[string]func(ctx context.Context, c *client.Client) error{
		"reset": func(ctx context.Context, c *client.Client) error { _, err := c.Reset(ctx, "k"); return err },
		"block": func(ctx context.Context, c *client.Client) error { return c.Block(ctx, time.Millisecond, "k") },
		"close": func(_ context.Context, c *client.Client) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			c := s.warm(t, client.WithTimeout(patient))
			s.calls(t, c, 15, 0)
			s.hook = func(cmd redis.Cmder) {
				if cmd.Args()[1] == "ratelimit_take" {
					s.hook = nil
					if err := act(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
			}
			_, _ = c.Allow(t.Context(), "k", wide)
			if n := client.Batched(c); n != 0 {
				t.Errorf("%d batches are kept", n)
			}
			s.pass(2 * time.Millisecond)
			if res, err := c.Allow(t.Context(), "k", wide); err == nil && res.Source == client.SourceBatch {
				t.Error("spent what came too late")
			}
		})
	}
}

// What this client does to a key ends what it holds of it.
func TestBatchEndsWithTheKey(t *testing.T) {
	s := newStand(t)
	c := s.warm(t, client.WithPrefix("p:"))
	must[int64](t)(c.Reset(t.Context(), "k"))
	if res := allow(t, c, wide, 1); res.Source != client.SourceServer {
		t.Errorf("after a reset by %v", res.Source)
	}
	s = newStand(t)
	c = s.warm(t)
	if err := c.Block(t.Context(), time.Minute, "k"); err != nil {
		t.Fatal(err)
	}
	if res := allow(t, c, wide, 1); res.Allowed {
		t.Errorf("after a block %+v", res)
	}
}

// However many keys are asked for, the table is bounded; and it shrinks when they are no longer.
func TestBatchesAreBounded(t *testing.T) {
	at := time.UnixMilli(0)
	c := newClient(t, &fake{reply: integers(1, 10, 9, 0, 1000, 1)}, client.WithBatches(8, ttl))
	client.SetClock(c, func() time.Time { return at })
	for i := range 100_000 {
		must[client.Result](t)(c.Allow(t.Context(), "key:"+strconv.Itoa(i), "10/s"))
	}
	if n := client.Batched(c); n != client.MostBatches {
		t.Errorf("%d keys are kept, want %d", n, client.MostBatches)
	}
	at = at.Add(time.Second)
	for i := range 50_000 {
		must[client.Result](t)(c.Allow(t.Context(), "other:"+strconv.Itoa(i%100), "10/s"))
		if i%100 == 0 {
			must[client.Result](t)(c.Allow(t.Context(), "new:"+strconv.Itoa(i), "10/s"))
		}
	}
	if n := client.Batched(c); n >= client.MostBatches {
		t.Errorf("%d keys are still kept", n)
	}
}

func TestBatchOptions(t *testing.T) {
	for want, opt := range map[string]client.Option{
		"batches of 1 units":          client.WithBatches(1, ttl),
		"batches of -3 units":         client.WithBatches(-3, ttl),
		"batches that last 0s":        client.WithBatches(8, 0),
		"batches that last 999.999µs": client.WithBatches(8, time.Millisecond-1),
		"remembered for 0s":           client.WithDenialMemory(0),
		"remembered for 1.001s":       client.WithDenialMemory(1001 * time.Millisecond),
	} {
		if _, err := client.New(&fake{}, opt); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; give With") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
