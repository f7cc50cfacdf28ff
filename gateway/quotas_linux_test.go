//go:build soak

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestQuotasOfFleet has 100 Envoys with 10,000 buckets, each used by 5 Envoys with 1.5 times the
// requests that its limit allows: the first sends most of them, the second half as many, the third a
// third, and so on. The gateway is a process of its own, and the counts go through gRPC and a Redis
// server. The requests are only counted. At least 98 % of all limits is used, and no bucket exceeds the
// bound. It takes 80 s and all processors, so only `make soak` runs it.
func TestQuotasOfFleet(t *testing.T) {
	const envoys, buckets, each, length, warm = 100, 10_000, 5, 80 * time.Second, 45 * time.Second
	limits := []struct {
		text        string
		burst, rate float64
		every       int // one of so many buckets
	}{{"1200/m burst=200", 200, 20, 1}, {"3000/m burst=600", 600, 50, 3}, {"100/s burst=150", 150, 100, 20}}
	limitOf := func(i int) (at int) {
		for k, l := range limits {
			if i%l.every == 0 {
				at = k
			}
		}
		return at
	}
	file := "policies:\n"
	for i, l := range limits {
		file += fmt.Sprintf("  p%d: {limit: %s}\n", i, l.text)
	}
	path := filepath.Join(t.TempDir(), "policies.yaml")
	require(t, os.WriteFile(path, []byte(file), 0o600))
	redis := redistest.Run(t, "--save", "")
	cmd := exec.Command(os.Args[0], "--redis", "redis://"+redis.Addr, "--deploy", "--policies", path, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--timeout", "1s")
	cmd.Env = append(os.Environ(), runMain+"=yes")
	var log redistest.Output
	cmd.Stderr = &log
	require(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	redistest.Eventually(t, "the gateway is ready", func() bool { return strings.Contains(log.String(), "msg=ready") })
	addr := addresses.FindStringSubmatch(log.String())[1]

	fleet := make([]*simulated, envoys)
	for i := range fleet {
		conn := must[*grpc.ClientConn](t)(grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())))
		defer func() { _ = conn.Close() }()
		fleet[i] = &simulated{buckets: map[string]*simulatedBucket{}, stream: must[quota.RateLimitQuotaService_StreamRateLimitQuotasClient](t)(quota.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context()))}
	}
	steps := int(length / simulatedStep)
	passed := make([][]atomic.Int32, buckets)
	for i := range passed {
		passed[i] = make([]atomic.Int32, steps)
		total := 0.0
		for k := range each {
			total += 1 / float64(k+1)
		}
		for k := range each {
			name := strconv.Itoa(i)
			e := fleet[(i*7+k*31)%envoys]
			e.buckets[name] = &simulatedBucket{
				id:   &quota.BucketId{Bucket: map[string]string{"policy": fmt.Sprint("p", limitOf(i)), "bucket": name}},
				rate: 1.5 * limits[limitOf(i)].rate / float64(k+1) / total, passed: passed[i],
			}
		}
	}
	before, began := processor(t, cmd.Process.Pid), time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var running sync.WaitGroup
	for _, e := range fleet {
		running.Go(func() { e.receive() })
		running.Go(func() { e.run(ctx, began) })
	}
	<-ctx.Done()
	used, peak := processor(t, cmd.Process.Pid)-before, memory(t, cmd.Process.Pid)
	running.Wait()

	var sum, possible float64
	var sumOf, possibleOf [3]float64
	for i := range passed {
		l := limits[limitOf(i)]
		sums := make([]int64, steps+1)
		for k := range steps {
			sums[k+1] = sums[k] + int64(passed[i][k].Load())
		}
		for from := range sums {
			for to := from + 1; to <= steps; to++ {
				span := time.Duration(to-from+1)*simulatedStep + 16*time.Second // interval, ttl, and a second for late messages
				if most := l.burst + l.rate*span.Seconds(); float64(sums[to]-sums[from]) > most {
					t.Fatalf("bucket %d: %d passed in steps %d to %d, and the bound is %.0f", i, sums[to]-sums[from], from, to, most)
				}
			}
		}
		sum += float64(sums[steps] - sums[int(warm/simulatedStep)])
		possible += l.rate * (length - warm).Seconds()
		sumOf[limitOf(i)] += float64(sums[steps] - sums[int(warm/simulatedStep)])
		possibleOf[limitOf(i)] += l.rate * (length - warm).Seconds()
	}
	for i, l := range limits {
		t.Logf("%s: %.1f %%", l.text, 100*sumOf[i]/possibleOf[i])
	}
	t.Logf("%.1f %% of the limits was used, %.0f requests a second passed; processor of the gateway: %.2f of one; memory: %d MB", 100*sum/possible, sum/(length-warm).Seconds(), used.Seconds()/length.Seconds(), peak)
	if sum < 0.98*possible {
		t.Errorf("%.1f %% was used, want 98 %%; the log:\n%s", 100*sum/possible, &log)
	}
}

const simulatedStep = 100 * time.Millisecond

// simulated is an Envoy. Its requests are random numbers.
type simulated struct {
	stream  quota.RateLimitQuotaService_StreamRateLimitQuotasClient
	mu      sync.Mutex
	buckets map[string]*simulatedBucket
}

type simulatedBucket struct {
	id              *quota.BucketId
	rate            float64 // requests a second
	tokens          int64
	until           time.Time
	known           bool
	allowed, denied uint64
	passed          []atomic.Int32
}

func (e *simulated) receive() {
	for {
		response, err := e.stream.Recv()
		if err != nil {
			return
		}
		e.mu.Lock()
		for _, a := range response.BucketAction {
			b, assignment := e.buckets[a.BucketId.Bucket["bucket"]], a.GetQuotaAssignmentAction()
			b.until, b.tokens = time.Now().Add(assignment.GetAssignmentTimeToLive().AsDuration()), 0
			if strategy, ok := assignment.GetRateLimitStrategy().GetStrategy().(*envoytype.RateLimitStrategy_TokenBucket); ok {
				b.tokens = int64(strategy.TokenBucket.MaxTokens)
			}
		}
		e.mu.Unlock()
	}
}

// run sends requests in steps, and reports of new buckets and, every 5 s, of all.
func (e *simulated) run(ctx context.Context, began time.Time) {
	next := began.Add(time.Duration(rand.Int64N(int64(5 * time.Second))))
	ticker := time.NewTicker(simulatedStep)
	defer ticker.Stop()
	for last := began; ; {
		select {
		case <-ctx.Done():
			_ = e.stream.CloseSend()
			return
		case <-ticker.C:
		}
		now := time.Now()
		all := !now.Before(next)
		if all {
			next = next.Add(5 * time.Second)
		}
		reports := &quota.RateLimitQuotaUsageReports{Domain: "fleet"}
		e.mu.Lock()
		for _, b := range e.buckets {
			requests := int64(0)
			for at := rand.ExpFloat64(); at < b.rate*now.Sub(last).Seconds(); at += rand.ExpFloat64() {
				requests++
			}
			if !now.Before(b.until) {
				b.tokens = 0
			}
			passed := min(requests, b.tokens)
			b.tokens -= passed
			b.allowed, b.denied = b.allowed+uint64(passed), b.denied+uint64(requests-passed)
			if step := int(now.Sub(began) / simulatedStep); step < len(b.passed) {
				b.passed[step].Add(int32(passed))
			}
			if all && b.known || !b.known && requests > 0 {
				b.known = true
				reports.BucketQuotaUsages = append(reports.BucketQuotaUsages, &quota.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: b.id, NumRequestsAllowed: b.allowed, NumRequestsDenied: b.denied})
				b.allowed, b.denied = 0, 0
			}
		}
		e.mu.Unlock()
		last = now
		if len(reports.BucketQuotaUsages) > 0 && e.stream.Send(reports) != nil {
			return
		}
	}
}

// processor returns how much processor time a process has used.
func processor(t *testing.T, pid int) time.Duration {
	text := string(must[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))))
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	ticks := must[int](t)(strconv.Atoi(fields[11])) + must[int](t)(strconv.Atoi(fields[12]))
	return time.Duration(ticks) * 10 * time.Millisecond
}
