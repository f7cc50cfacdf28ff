package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// The tests in this file show failures of real servers, as the table of docs/operating.md describes
// them.

// startAgain kills server, and starts another with args on its port.
func startAgain(t *testing.T, server *redistest.Server, args ...string) *redis.Client {
	t.Helper()
	_, port, _ := net.SplitHostPort(server.Addr)
	server.Stop()
	return connect(t, redis.Options{Addr: redistest.Run(t, append(args, "--port", port)...).Addr})
}

// If a server restarts without its data, no call is decided until the library is back. Then every
// key has all units.
func TestRestartWithoutPersistence(t *testing.T) {
	server, _ := deployed(t)
	c := open(t, "redis://"+server.Addr, client.WithTimeout(slow))
	must[client.Result](t)(c.AllowN(t.Context(), "k", perDay, 10))
	rdb := startAgain(t, server)
	eventually(t, "the client finds the server", func() bool {
		_, err := c.Allow(t.Context(), "k", perDay)
		return !errors.Is(err, client.ErrUnavailable)
	})
	_, err := c.Allow(t.Context(), "k", perDay)
	wantClasses(t, "without the library", err, client.ErrNotDeployed)
	if err := rdb.FCall(t.Context(), "ratelimit_take", []string{"k"}, string(perDay)).Err(); err == nil || err.Error() != "ERR Function not found" {
		t.Error(err)
	}
	deploy(t, rdb)
	if res := must[client.Result](t)(c.Allow(t.Context(), "k", perDay)); res.Remaining != 9 {
		t.Errorf("%+v, want 9 left of 10", res)
	}
}

// A server with an append-only file keeps the library and all units if its process is killed.
func TestRestartWithAppendOnlyFile(t *testing.T) {
	args := []string{"--appendonly", "yes", "--appendfsync", "always", "--dir", t.TempDir()}
	server := redistest.Run(t, args...)
	deploy(t, connect(t, redis.Options{Addr: server.Addr}))
	c := open(t, "redis://"+server.Addr, client.WithTimeout(slow))
	must[client.Result](t)(c.AllowN(t.Context(), "k", perDay, 10))
	startAgain(t, server, args...)
	var res client.Result
	eventually(t, "the server decides again", func() (decided bool) {
		var err error
		res, err = c.Allow(t.Context(), "k", perDay)
		return err == nil
	})
	if res.Allowed {
		t.Errorf("%+v, want that all units are taken", res)
	}
}

// If the network separates a primary from a replica that takes over, both decide, each with the
// units that were left. With min-replicas-to-write, the primary makes no decision without its
// replica.
func TestTwoPrimaries(t *testing.T) {
	ctx := t.Context()
	server, primary := deployed(t)
	replica := connect(t, redis.Options{Addr: redistest.Run(t, "--replicaof", strings.Replace(server.Addr, ":", " ", 1)).Addr})
	first, second := newClient(t, primary), newClient(t, replica)
	must[client.Result](t)(first.AllowN(ctx, "k", perDay, 4))
	eventually(t, "the replica has the charge", func() bool {
		res, err := second.Peek(ctx, client.For("k", perDay, 0))
		return err == nil && res.Remaining == 6
	})
	require(t, replica.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	for name, c := range map[string]*client.Client{"first": first, "second": second} {
		if res := must[client.Result](t)(c.Take(ctx, upTo("k", perDay, 10))); res.Taken != 6 {
			t.Errorf("the %s primary: %+v, want the 6 units that were left", name, res)
		}
	}
	eventually(t, "the primary has no replica", func() bool {
		return strings.Contains(primary.Info(ctx, "replication").Val(), "connected_slaves:0\r\n")
	})
	require(t, primary.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	_, err := first.Allow(ctx, "other", perDay)
	wantClasses(t, "too few replicas", err, client.ErrUnavailable)
	if e := (*client.Error)(nil); !errors.As(err, &e) || e.Code != "NOREPLICAS" {
		t.Error(err)
	}
}

// If a server evicts the key of a limit, all its units are available again.
func TestEvictedKey(t *testing.T) {
	ctx := t.Context()
	_, rdb := deployed(t)
	c := newClient(t, rdb)
	must[client.Result](t)(c.AllowN(ctx, "k", "10/d", 10))
	require(t, rdb.ConfigSet(ctx, "maxmemory-policy", "volatile-random").Err())
	require(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	eventually(t, "the key is evicted", func() bool {
		_, err := c.Allow(ctx, "new", "10/d") // a call that writes makes the server evict
		return rdb.Exists(ctx, "k").Val() == 0 && (err == nil || errors.Is(err, client.ErrUnavailable))
	})
	require(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	if res := must[client.Result](t)(c.AllowN(ctx, "k", "10/d", 10)); !res.Allowed {
		t.Errorf("%+v, want all units", res)
	}
}

// While another script runs for too long, calls get BUSY.
func TestBusyServer(t *testing.T) {
	ctx := t.Context()
	server := redistest.Run(t, "--busy-reply-threshold", "10")
	rdb := connect(t, redis.Options{Addr: server.Addr})
	deploy(t, rdb)
	c := newClient(t, rdb)
	go rdb.Eval(ctx, "while true do end", nil)
	var e *client.Error
	eventually(t, "the server is busy", func() bool {
		_, err := c.Allow(ctx, "k", perDay)
		return errors.As(err, &e)
	})
	wantClasses(t, "busy", e, client.ErrUnavailable)
	if e.Code != "BUSY" {
		t.Error(e)
	}
	eventually(t, "the script ends", func() bool { return rdb.ScriptKill(ctx).Err() != nil })
	eventually(t, "the server decides again", func() bool {
		_, err := c.Allow(ctx, "k", perDay)
		return err == nil
	})
}

// A node of a cluster that has no slots cannot decide.
func TestClusterDown(t *testing.T) {
	rdb := connect(t, redis.Options{Addr: redistest.Run(t, "--cluster-enabled", "yes").Addr})
	deploy(t, rdb)
	_, err := newClient(t, rdb).Allow(t.Context(), "k", perDay)
	wantClasses(t, "no slots", err, client.ErrUnavailable)
	if e := (*client.Error)(nil); !errors.As(err, &e) || e.Code != "CLUSTERDOWN" {
		t.Error(err)
	}
}

// If a password changes, open connections continue, and new ones are refused.
func TestChangedPassword(t *testing.T) {
	ctx := t.Context()
	server, rdb := deployed(t)
	set := func(rules ...any) {
		t.Helper()
		require(t, rdb.Do(ctx, append([]any{"ACL", "SETUSER", "app", "on", "~*", "+@all", "resetpass"}, rules...)...).Err())
	}
	set(">old")
	c := open(t, fmt.Sprintf("redis://app:old@%s?pool_size=1", server.Addr), client.WithTimeout(slow))
	must[client.Result](t)(c.Allow(ctx, "k", perDay))
	set(">new")
	must[client.Result](t)(c.Allow(ctx, "k", perDay))
	require(t, rdb.ClientKillByFilter(ctx, "USER", "app").Err())
	eventually(t, "the client connects again", func() bool {
		_, err := c.Allow(ctx, "k", perDay)
		return !errors.Is(err, client.ErrUnavailable)
	})
	_, err := c.Allow(ctx, "k", perDay)
	wantClasses(t, "the old password", err, typed("no_permission"))
	set(">new", ">old")
	must[client.Result](t)(c.Allow(ctx, "k", perDay))
}

// If a server's certificate has expired, open connections continue, and new ones fail.
func TestExpiredCertificate(t *testing.T) {
	ctx := t.Context()
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "", "127.0.0.1")
	server := redistest.Run(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	rdb := connect(t, redis.Options{Addr: server.Addr, TLSConfig: &tls.Config{RootCAs: trusted}})
	deploy(t, rdb)
	var passed atomic.Int64 // how far the client's clock is ahead
	config := &tls.Config{RootCAs: trusted, Time: func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }}
	c := open(t, "rediss://"+server.Addr+"?pool_size=1", client.WithTLS(config), client.WithTimeout(slow))
	must[client.Result](t)(c.Allow(ctx, "k", perDay))
	passed.Store(int64(48 * time.Hour))
	must[client.Result](t)(c.Allow(ctx, "k", perDay))
	require(t, rdb.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
	var err error
	eventually(t, "the client connects again", func() bool {
		_, err = c.Allow(ctx, "k", perDay)
		return err != nil && strings.Contains(err.Error(), "certificate has expired")
	})
	wantClasses(t, "expired", err, client.ErrUnavailable)
}

// A server that cannot save its data refuses calls that write.
func TestServerThatCannotSave(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	rdb := connect(t, redis.Options{Addr: redistest.Run(t, "--dir", dir).Addr})
	deploy(t, rdb)
	c := newClient(t, rdb)
	require(t, rdb.ConfigSet(ctx, "save", "3600 1").Err())
	require(t, os.RemoveAll(dir))
	require(t, rdb.BgSave(ctx).Err())
	var e *client.Error
	eventually(t, "the save fails", func() bool {
		_, err := c.Allow(ctx, "k", perDay)
		return errors.As(err, &e)
	})
	wantClasses(t, "no disk", e, client.ErrUnavailable)
	if e.Code != "MISCONF" {
		t.Error(e)
	}
	check(t, second(c.Peek(ctx, client.For("k", perDay))))
}

// A server closes connections beyond maxclients, so that a client may not see its error.
func TestTooManyConnections(t *testing.T) {
	ctx := t.Context()
	server, rdb := deployed(t)
	held := rdb.Conn()
	require(t, held.Ping(ctx).Err())
	require(t, held.ConfigSet(ctx, "maxclients", "1").Err())
	_, err := open(t, "redis://"+server.Addr, client.WithTimeout(slow)).Allow(ctx, "k", perDay)
	wantClasses(t, "too many", err, client.ErrUnavailable)
	require(t, held.Close())
}
