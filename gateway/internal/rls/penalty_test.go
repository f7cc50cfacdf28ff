package rls_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// A policy with a penalty blocks what it denies: alone, beside other policies, and by a rule of the files. A
// shadow policy and a descriptor that only asks block nothing.
func TestPenalty(t *testing.T) {
	one, penalty := []functions.PolicyLimit{{Limit: "2/m"}}, &functions.Penalty{First: time.Minute, Max: 2 * time.Minute, Forget: time.Hour}
	policies := []functions.Policy{
		{Name: "login", Limits: one, Penalty: penalty},
		{Name: "trial", Limits: one, Penalty: penalty, Shadow: true},
		{Name: "api", Limits: []functions.PolicyLimit{{Limit: "9/m"}}},
	}
	b := newTestbed(t, "", policies...)
	asks := request(0, "policy=login ip=1")
	for _, wait := range []string{"60s", "120s", "120s"} {
		b.expect(request(0, "policy=login ip=1"),
			"OK | OK login:2/unknown 1 30s", "OK | OK login:2/unknown 0 60s",
			"OVER_LIMIT | OVER_LIMIT login:2/unknown 0 "+wait, "OVER_LIMIT | OVER_LIMIT login:2/unknown 0 "+wait)
		length, _ := time.ParseDuration(wait)
		b.server.Advance(length)
	}
	b.expect(request(2, "policy=login ip=2", "policy=api user=2"),
		"OK | OK login:2/unknown 0 60s | OK api:9/unknown 7 14s",
		"OVER_LIMIT | OVER_LIMIT login:2/unknown 0 60s | OK api:9/unknown 7 14s")
	b.server.Advance(59 * time.Second) // of the limit, two units would be back
	b.expect(request(0, "policy=login ip=2"), "OVER_LIMIT | OVER_LIMIT login:2/unknown 0 1s")
	b.expect(request(2, "policy=trial ip=3"), "OK | OK trial:2/unknown 0 60s", "OK | OK trial:2/unknown 0 60s")
	asks.Descriptors[0] = descriptor("policy=login ip=4")
	b.expect(request(2, "policy=login ip=4"), "OK | OK login:2/unknown 0 60s")
	asks.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	b.expect(asks, "OVER_LIMIT | OVER_LIMIT login:2/unknown 0 30s")
}

// If the block fails, the answer is the denial of the limit, and the error is logged.
func TestPenaltyFails(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "1/m"}},
		Penalty: &functions.Penalty{First: time.Hour, Max: time.Hour, Forget: time.Hour}})))
	library := strings.Replace(build.Text(), "'ratelimit_block'", "'ratelimit_block_lost'", 1)
	server := embedded.Run(t, embedded.WithLibrary(library), embedded.WithTime(start))
	b := connect(t, "redis://"+server.Addr(), "")
	b.expect(request(0, "policy=login ip=1"), "OK | OK login:1/unknown 0 60s", "OVER_LIMIT | OVER_LIMIT login:1/unknown 0 60s")
	if got := b.log.String(); !strings.Contains(got, "a denial got no penalty") || !strings.Contains(got, "name=@login") {
		t.Errorf("log: %s", got)
	}
}

// A penalty that gets no reply ends before the deadline of the request, and the answer is the denial. The limiter
// alone would wait for longer than the request.
func TestSlowPenalty(t *testing.T) {
	b := newTestbed(t, "", functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "1/m"}}, Penalty: &functions.Penalty{First: time.Hour, Max: time.Hour, Forget: time.Hour}})
	b.ask(request(0, "policy=login ip=1"))
	limiter := must[*client.Client](t)(client.Open("redis://"+swallowing(t, b.server.Addr(), "ratelimit_block"), client.WithTimeout(90*time.Second)))
	t.Cleanup(func() { _ = limiter.Close() })
	b.service.Limiter, b.service.Timeout = limiter, 100*time.Millisecond // so that the decision itself needs no deadline
	const deadline = time.Minute
	b.service.Margin = deadline - 2*time.Second // the decision and the penalty have 2 s
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if got := short(b.service.ShouldRateLimit(ctx, request(0, "policy=login ip=1"))); got != "OVER_LIMIT | OVER_LIMIT login:1/unknown 0 60s" {
		t.Error(got)
	}
	if ctx.Err() != nil {
		t.Error("the answer came after the deadline")
	}
	if got := b.log.String(); !strings.Contains(got, "a denial got no penalty") {
		t.Errorf("log: %s", got)
	}
}

// swallowing returns the address of a relay to a server. From the first command on that has word, a connection
// passes nothing on.
func swallowing(t *testing.T, server, word string) string {
	t.Helper()
	port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = port.Close() })
	go func() {
		for {
			from, err := port.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = from.Close()
				return
			}
			go func() {
				_, _ = io.Copy(from, to)
				_ = from.Close()
			}()
			go func() {
				defer to.Close()
				for text, swallowed := make([]byte, 64<<10), false; ; {
					n, err := from.Read(text)
					if err != nil {
						return
					}
					if swallowed = swallowed || bytes.Contains(text[:n], []byte(word)); !swallowed {
						_, _ = to.Write(text[:n])
					}
				}
			}()
		}
	}()
	return port.Addr().String()
}
