package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// takes is a Limiter with a function for Take.
type takes func(context.Context, client.Request) (client.Result, error)

func (f takes) Take(ctx context.Context, req client.Request) (client.Result, error) {
	return f(ctx, req)
}

// WaitFunc waits for any Limiter in order of arrival.
func TestWaitFuncOfALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := time.Now().Add(2 * time.Second)
		wait := must[func(context.Context, client.Request) error](t)(client.WaitFunc(takes(func(context.Context, client.Request) (client.Result, error) {
			if left := time.Until(free); left > 0 {
				return client.Result{RetryAfter: left}, nil
			}
			free = time.Now().Add(time.Second)
			return client.Result{Allowed: true}, nil
		})))
		began := time.Now()
		var order []time.Duration
		for range 3 {
			check(t, wait(t.Context(), client.For("k", "1/s")))
			order = append(order, time.Since(began).Round(time.Second))
		}
		if want := []time.Duration{2 * time.Second, 3 * time.Second, 4 * time.Second}; !slices.Equal(order, want) {
			t.Errorf("admitted after %v, want %v", order, want)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		wantClasses(t, "too early", wait(short, client.For("k", "1/s")), client.ErrLimited)
		wantClasses(t, "no key", wait(t.Context(), client.Request{Limits: []client.Limit{"1/s"}}), typed("bad_keys"))
	})
}

// A turn is given back by the Client beneath a layer. A Limiter without Refund keeps it, and the error
// says so.
func TestWaitFuncGivesBackATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		queue := client.For("k", "leaky_bucket 1/m burst=5")
		must[client.Result](t)(c.Take(t.Context(), queue))
		for _, tt := range []struct {
			limiter client.Limiter
			text    string
			refunds int
		}{
			{&perTenant{Limiter: c}, "would have to be waited for", 1},
			{takes(c.Take), "could not be given back (the limiter has no Refund)", 1},
		} {
			wait := must[func(context.Context, client.Request) error](t)(client.WaitFunc(tt.limiter))
			late := queue
			late.WaitUntil = time.Now().Add(time.Second)
			err := wait(t.Context(), late)
			if !errors.Is(err, client.ErrLimited) || !strings.Contains(err.Error(), tt.text) || v.seen("refund") != tt.refunds {
				t.Errorf("%v, %d refunds; want %q and %d", err, v.seen("refund"), tt.text, tt.refunds)
			}
		}
	})
}

// A layer around nothing is refused by name. A layer around a closed client returns its error, a panic
// of a layer reaches its caller, and the next caller is not kept waiting.
func TestLayersThatFail(t *testing.T) {
	for want, limiter := range map[string]client.Limiter{
		"ratelimit: client.WaitFunc: the limiter is nil; make one with client.Open or client.New":                                                 nil,
		"ratelimit: client.WaitFunc: the limiter is a nil *client.Client; make one with client.Open or client.New":                                (*client.Client)(nil),
		"ratelimit: client.WaitFunc: the limiter is a nil *client_test.perTenant; make one with client.Open or client.New":                        (*perTenant)(nil),
		"ratelimit: client.WaitFunc: the limiter beneath *client_test.perTenant is nil; make one with client.Open or client.New":                  &perTenant{},
		"ratelimit: client.WaitFunc: the limiter beneath *client_test.perTenant is a nil *client.Client; make one with client.Open or client.New": &perTenant{Limiter: (*client.Client)(nil)},
	} {
		wantText(t, second(client.WaitFunc(limiter)), want)
	}
	closed := newClient(t, &fake{})
	require(t, closed.Close())
	layer := &perTenant{Limiter: closed}
	wantClasses(t, "closed", second(layer.Take(t.Context(), client.For("k", "1/s"))), client.ErrUnavailable)
	wait := must[func(context.Context, client.Request) error](t)(client.WaitFunc(layer))
	wantClasses(t, "closed", wait(t.Context(), client.For("k", "1/s")), client.ErrUnavailable)

	panics := true
	wait = must[func(context.Context, client.Request) error](t)(client.WaitFunc(takes(func(context.Context, client.Request) (client.Result, error) {
		if panics {
			panic("of a layer")
		}
		return client.Result{Allowed: true}, nil
	})))
	func() {
		defer func() {
			if recover() != "of a layer" {
				t.Error("the panic did not reach the caller")
			}
		}()
		_ = wait(t.Context(), client.For("k", "1/s"))
	}()
	panics = false
	check(t, wait(t.Context(), client.For("k", "1/s")))

	// A layer that ends only with its context keeps its own callers, and nobody behind them, for longer.
	wait = must[func(context.Context, client.Request) error](t)(client.WaitFunc(takes(func(ctx context.Context, req client.Request) (client.Result, error) {
		<-ctx.Done()
		return client.Result{}, ctx.Err()
	})))
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := wait(ctx, client.For("k", "1/s")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a layer that blocks: %v", err)
		}
		cancel()
	}

	// Around itself, a layer has nothing beneath.
	around := &perTenant{}
	around.Limiter = around
	check(t, second(client.WaitFunc(around)))
}

// Each option but WithObserver may be given once.
func TestOptionsGivenTwice(t *testing.T) {
	heal := func(context.Context, redis.UniversalClient) error { return nil }
	for want, opt := range map[string]client.Option{
		`WithPrefix is given twice, as "p:" and as "p:"; give it once`:                 client.WithPrefix("p:"),
		`WithTimeout is given twice, as "1s" and as "1s"; give it once`:                client.WithTimeout(time.Second),
		`WithBatches is given twice, as "[8 100ms]" and as "[8 100ms]"; give it once`:  client.WithBatches(8, ttl),
		`WithDenialMemory is given twice, as "1s" and as "1s"; give it once`:           client.WithDenialMemory(time.Second),
		`WithHealer is given twice, as "a function" and as "a function"; give it once`: client.WithHealer(heal),
	} {
		wantText(t, second(client.New((&fake{}).client(), opt, opt)), "ratelimit: client.New: "+want)
	}
	wantText(t, second(client.New((&fake{}).client(), client.WithFallback(client.FailOpen), client.WithFallback(client.LocalFallback(0.1)))),
		`ratelimit: client.New: WithFallback is given twice, as "a fallback" and as "a fallback"; give it once`)
	secure := client.WithTLS(&tls.Config{})
	wantText(t, second(client.Open("rediss://127.0.0.1:1", secure, secure)), `ratelimit: client.Open: WithTLS is given twice, as "a configuration" and as "a configuration"; give it once`)
}

// Layers of every kind in any order, around a client with any options, admit no more than the limit.
// Run it with the race detector.
func TestLayersInAnyOrder(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()))
	options := []func() client.Option{
		func() client.Option { return client.WithBatches(16, time.Hour) },
		func() client.Option { return client.WithDenialMemory(time.Second) },
		func() client.Option { return client.WithFallback(client.FailClosed) },
		func() client.Option {
			return client.WithObserver(client.Observer{Call: func(context.Context, client.Observation) {}})
		},
		func() client.Option { return client.WithPrefix("p:") },
	}
	layers := []func(client.Limiter) client.Limiter{
		func(l client.Limiter) client.Limiter { return &perTenant{Limiter: l, denied: map[string]int{}} },
		func(l client.Limiter) client.Limiter { // changes the request
			return takes(func(ctx context.Context, req client.Request) (client.Result, error) {
				req.Keys = []string{"layer:" + req.Keys[0]}
				return l.Take(ctx, req)
			})
		},
		func(l client.Limiter) client.Limiter { // waits
			wait := must[func(context.Context, client.Request) error](t)(client.WaitFunc(l))
			return takes(func(ctx context.Context, req client.Request) (client.Result, error) {
				req.WaitUntil = time.Now()
				if err := wait(ctx, req); err == nil {
					return client.Result{Allowed: true}, nil
				} else if errors.Is(err, client.ErrLimited) {
					return client.Result{RetryAfter: time.Minute}, nil
				} else {
					return client.Result{}, err
				}
			})
		},
	}
	for run := range 20 {
		rand.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
		opts := []client.Option{client.WithTimeout(slow)}
		for _, opt := range options[:rand.IntN(len(options)+1)] {
			opts = append(opts, opt())
		}
		c := open(t, "redis://"+server.Addr(), opts...)
		var limiter client.Limiter = c
		for range rand.IntN(4) {
			limiter = layers[rand.IntN(len(layers))](limiter)
		}
		req := client.For(fmt.Sprint("k", run), "50/d") // shared by all goroutines
		var allowed atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 20 {
					res, err := limiter.Take(t.Context(), req)
					check(t, err)
					if res.Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := allowed.Load(); n > 50 || n < 25 {
			t.Errorf("run %d: %d are allowed of 50", run, n)
		}
		check(t, c.Close())
	}
}

// TakeAll needs one round trip, in which each request has its own decision or error.
func TestTakeAll(t *testing.T) {
	s := newTestbed(t)
	var trips pipelines
	s.rdb.AddHook(&trips)
	c := s.client(t, client.WithBatches(8, ttl), client.WithDenialMemory(time.Second))
	results, err := c.TakeAll(t.Context(), client.For("a", "5/m"), client.For("a", "5/m", 4), client.For("b", "nonsense"), client.For("a", "5/m", 9))
	wantClasses(t, "a wrong limit", err, typed("bad_limit"))
	if len(results) != 4 || !results[0].Allowed || !results[1].Allowed || results[2].Allowed || typeOf(results[2].Err) != "bad_limit" || results[3].RetryAfter != client.Never {
		t.Errorf("%+v", results)
	}
	if n := left(t, c, "a", "5/m"); n != 0 || !slices.Equal(trips, []int{4}) {
		t.Errorf("%v calls were sent in a round trip each, and %d units are left", trips, n)
	}
	if none, err := c.TakeAll(t.Context()); len(none) != 0 || err != nil {
		t.Errorf("%v, %v", none, err)
	}
	require(t, c.Close())
	_, err = c.TakeAll(t.Context(), client.For("a", "5/m"), client.For("b", "5/m"))
	wantClasses(t, "closed", err, client.ErrUnavailable)
}

// If an observer panics, the caller of TakeAll does, as the caller of Take.
func TestTakeAllPanics(t *testing.T) {
	c := newTestbed(t).client(t, client.WithObserver(client.Observer{Call: func(context.Context, client.Observation) { panic("no disk") }}))
	defer func() {
		if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "no disk\n") {
			t.Errorf("TakeAll panicked with %s", p)
		}
	}()
	_, err := c.TakeAll(t.Context(), client.For("a", "5/m"), client.For("b", "5/m"))
	t.Errorf("TakeAll returned %v", err)
}

// In a cluster, TakeAll needs a round trip for each node, and a call that shares none has its own.
func TestTakeAllInACluster(t *testing.T) {
	nodes := startCluster(t)
	flushCluster(t, nodes)
	c := open(t, nodes.nodes[0].Addr+","+nodes.nodes[1].Addr, client.WithTimeout(slow))
	for range 3 { // the first time, go-redis does not know the nodes
		results, err := c.TakeAll(t.Context(), client.For(lowKey, "9/d"), client.For(highKey, "9/d"), client.For(lowKey+":2", "9/d"))
		if err != nil || !results[0].Allowed || !results[1].Allowed || !results[2].Allowed {
			t.Errorf("%+v, %v", results, err)
		}
	}
	if n, m := left(t, c, lowKey, "9/d"), left(t, c, highKey, "9/d"); n != 6 || m != 6 {
		t.Errorf("%d and %d are left, want 6", n, m)
	}
}

// pipelines holds the number of calls in each pipeline of calls.
type pipelines []int

func (*pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "fcall" { // not the greeting of go-redis
			*p = append(*p, len(cmds))
		}
		return next(ctx, cmds)
	}
}

func TestAsError(t *testing.T) {
	for want, res := range map[string]client.Result{
		"":                                {Allowed: true},
		"ratelimit: take: over its limit": {},
		"ratelimit: take: over its limit; try again in 3s":               {RetryAfter: 3 * time.Second},
		"ratelimit: take: over its limit, which can never allow as much": {RetryAfter: client.Never},
	} {
		err := client.AsError(res, nil)
		var e *client.Error
		switch {
		case want == "" && err == nil:
		case !asLimited(err, &e) || err.Error() != want || e.RetryAfter != res.RetryAfter:
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := client.AsError(client.Result{}, client.ErrUnavailable); err != client.ErrUnavailable {
		t.Error(err)
	}
}

// No layer of the Client knows the insides of another: the files of each name no type of the others.
// Only layers.go puts them together, and batch_close.go gives back the units of batches.
func TestLayersAreApart(t *testing.T) {
	layers := map[string]string{"observe": "observers", "fallback": "fallbacks", "local": "fallbacks", "batch": "batches", "memory": "memory"}
	files := must[[]string](t)(filepath.Glob("*.go"))
	for _, file := range files {
		set, _, _ := strings.Cut(strings.TrimSuffix(file, ".go"), "_")
		own := layers[set]
		if own == "" || strings.HasSuffix(file, "_test.go") || file == "batch_close.go" {
			continue
		}
		parsed := must[*ast.File](t)(parser.ParseFile(token.NewFileSet(), file, must[[]byte](t)(os.ReadFile(file)), 0))
		ast.Inspect(parsed, func(n ast.Node) bool {
			name, ok := n.(*ast.Ident)
			for _, other := range layers {
				if ok && other != own && name.Name == other {
					t.Errorf("%s names %s", file, other)
				}
			}
			return true
		})
	}
}
