package process_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// perUser is each user's limit per day in the tests under load. One unit refills in about half an
// hour.
const (
	perUser  = 50
	userRule = "  - {key: user, rate_limit: {limit: 50/d}}\n"
)

// load counts the replies to callers that send requests for 8 users without a pause.
type load struct {
	allowed             [8]atomic.Int64
	denied, unavailable atomic.Int64
	wrong               atomic.Int64 // replies whose status lacks the limit of the rule
	stop                func()
}

// put starts callers, which continue until the test ends or stop is called. It checks that each
// reply is OK, OVER_LIMIT or UNAVAILABLE, and arrives in time.
func put(t *testing.T, g *gateway) *load {
	t.Helper()
	client := rls.NewRateLimitServiceClient(g.dial(t, nil))
	l := &load{}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	l.stop = sync.OnceFunc(func() { cancel(); callers.Wait() })
	t.Cleanup(l.stop)
	for caller := range 16 {
		callers.Go(func() {
			for n := caller; ctx.Err() == nil; n++ {
				user := n % len(l.allowed)
				limited, end := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				response, err := client.ShouldRateLimit(limited, &rls.RateLimitRequest{Domain: "web", Descriptors: []*entries.RateLimitDescriptor{
					{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(user)}}},
				}})
				end()
				switch {
				case status.Code(err) == codes.Unavailable:
					l.unavailable.Add(1)
				case err != nil:
					t.Errorf("%v", err)
					return
				case response.OverallCode == rls.RateLimitResponse_OK:
					l.allowed[user].Add(1)
				case response.OverallCode == rls.RateLimitResponse_OVER_LIMIT:
					l.denied.Add(1)
				default:
					t.Errorf("%v", response)
					return
				}
				if err == nil && response.Statuses[0].GetCurrentLimit().GetRequestsPerUnit() != perUser {
					l.wrong.Add(1)
				}
			}
		})
	}
	return l
}

// more waits until a count grows by more than 50.
func more(t *testing.T, what string, n *atomic.Int64) {
	t.Helper()
	from := n.Load()
	redistest.Eventually(t, "more are "+what, func() bool { return n.Load() > from+50 })
}

// finish stops the load. It checks that every status had the rule's limit, and that each user had
// at least `least` and at most `most` allowed requests.
func (l *load) finish(t *testing.T, least, most int64) {
	t.Helper()
	l.stop()
	for user := range l.allowed {
		if n := l.allowed[user].Load(); n < least || n > most {
			t.Errorf("%d requests of user %d were allowed, want %d to %d", n, user, least, most)
		}
	}
	if n := l.wrong.Load(); n > 0 {
		t.Errorf("%d statuses without the limit of the rule", n)
	}
}

// rules writes the tests' rule into a new folder, and returns the folder.
func rules(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), "domain: web\ndescriptors:\n"+userRule)
	return dir
}

// TestKilledServer kills a server and restarts it empty. The counts are lost, so each user gets
// the limit twice, but no more.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	redis := redistest.Run(t)
	g := start(t, process.Options{Redis: "redis://" + redis.Addr, Deploy: true, EnvoyConfig: rules(t), Timeout: 30 * time.Second})
	g.ready(t)
	l := put(t, g)
	more(t, "denied", &l.denied)
	redis.Stop() // kill -9
	more(t, "unavailable", &l.unavailable)
	_, port, _ := net.SplitHostPort(redis.Addr)
	redistest.Run(t, "--port", port)
	redistest.Eventually(t, "the server counts from 0", func() bool { return l.allowed[0].Load() > perUser })
	more(t, "denied", &l.denied)
	l.finish(t, perUser, 2*perUser)
}

// TestFailover makes a replica take over. The replica may lack the last writes, so a user may get
// more than the limit, but never more than both servers allow together.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := redistest.Run(t)
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica := redistest.Run(t, "--replicaof", host+" "+port)
	config := write(t, "sentinel.conf", fmt.Sprintf("sentinel monitor main %s %s 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", host, port))
	sentinel := redistest.Run(t, config, "--sentinel")
	watching, following := open(t, sentinel.Addr), open(t, replica.Addr)
	redistest.Eventually(t, "the Sentinel knows the replica", func() bool {
		list, _ := watching.Do(t.Context(), "SENTINEL", "REPLICAS", "main").Slice()
		return len(list) == 1
	})
	g := start(t, process.Options{Redis: "redis-sentinel://" + sentinel.Addr + "/main", Deploy: true, EnvoyConfig: rules(t), Timeout: 30 * time.Second})
	g.ready(t)
	redistest.Eventually(t, "the replica has the library", func() bool {
		list, err := following.FunctionList(t.Context(), redis.FunctionListQuery{}).Result()
		return err == nil && len(list) == 1
	})
	l := put(t, g)
	more(t, "denied", &l.denied)
	redistest.Eventually(t, "the replica takes over", func() bool {
		_ = watching.Do(t.Context(), "SENTINEL", "FAILOVER", "main").Err() // refused until the Sentinel accepts the replica
		role, err := following.Do(t.Context(), "ROLE").Slice()
		return err == nil && role[0] == "master"
	})
	primary.Stop()
	more(t, "denied by the new primary", &l.denied)
	l.finish(t, perUser, 2*perUser)
}

// open returns a client for a server.
func open(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// TestReloadUnderLoad replaces configuration files, sometimes with invalid ones. Each request must
// be decided by the old or the new configuration, and a reload must not reset the counts.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	dir := rules(t)
	g := start(t, process.Options{Redis: "redis://" + server(t).Addr(), EnvoyConfig: dir, Timeout: 30 * time.Second})
	g.ready(t)
	l := put(t, g)
	loaded := func() int {
		return strings.Count(g.log.String(), "files loaded") + strings.Count(g.log.String(), "were not loaded")
	}
	for i, text := range []string{userRule + "  - {key: other, rate_limit: {unit: day, requests_per_unit: 1}}\n", "  - {key: 1, unknown: 1}\n", userRule} {
		more(t, "decided", &l.denied)
		before := loaded()
		path := filepath.Join(dir, "web.yaml")
		write(t, filepath.Join(dir, fmt.Sprintf(".%d", i)), "domain: web\ndescriptors:\n"+text)
		require(t, os.Rename(filepath.Join(dir, fmt.Sprintf(".%d", i)), path))
		redistest.Eventually(t, "the files are read", func() bool { return loaded() > before })
	}
	more(t, "decided", &l.denied)
	l.finish(t, perUser, perUser)
	if n := l.unavailable.Load(); n > 0 {
		t.Errorf("%d requests without a decision", n)
	}
}
