package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// server is the server under test. The benchmark empties its database repeatedly.
type server struct {
	rdb  *redis.Client
	url  string
	info map[string]string // INFO server
	stop func()
}

// version returns the product and its version, such as "Redis 7.0.15". It checks valkey_version
// first, because Valkey also reports a redis_version.
func (s *server) version() string {
	if version := s.info["valkey_version"]; version != "" {
		return "Valkey " + version
	}
	return "Redis " + s.info["redis_version"]
}

// openServer connects to the server at url, or starts a redis-server if url is empty.
func openServer(ctx context.Context, url string) (*server, error) {
	if url == "" {
		return startServer(ctx)
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("--redis %q: %w; write it as redis://host:port/database", url, err)
	}
	s := &server{rdb: newClient(options), url: url, stop: func() {}}
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		s.rdb.Close()
		return nil, fmt.Errorf("no server answers at %s: %w", options.Addr, err)
	}
	if err := s.takeOver(ctx); err != nil {
		s.rdb.Close()
		return nil, err
	}
	return s, nil
}

// newClient returns a client that never retries and never sends commands by itself, because every
// command is counted.
func newClient(options *redis.Options) *redis.Client {
	options.PoolSize = 1
	options.MaxRetries = -1
	options.ReadTimeout = time.Minute
	options.WriteTimeout = time.Minute
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(options)
}

// takeOver reads INFO server. It returns an error if this program would destroy data or a library
// on the server.
func (s *server) takeOver(ctx context.Context) error {
	info, err := s.rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("INFO server: %w", err)
	}
	s.info = info["Server"]
	size, err := s.rdb.DBSize(ctx).Result()
	if err != nil {
		return fmt.Errorf("DBSIZE: %w", err)
	}
	if size != 0 {
		return fmt.Errorf("the database holds %d keys, and the bench empties the one it runs in; "+
			"give it an empty one, as in redis://host:port/15", size)
	}
	libraries, err := s.rdb.FunctionList(ctx, redis.FunctionListQuery{}).Result()
	if err != nil {
		return fmt.Errorf("FUNCTION LIST: %w; the bench needs Redis 7.0 or Valkey", err)
	}
	if len(libraries) != 0 {
		return fmt.Errorf("the server holds the library %q, and the bench loads and deletes libraries; "+
			"give it a server that serves nobody", libraries[0].Name)
	}
	return nil
}

// close removes everything that this program has put on the server.
func (s *server) close() {
	// The context of the run may have ended, so use a new one.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.rdb.FlushDB(ctx)
	for _, name := range []string{libraryName, floorLibraryName} {
		s.rdb.FunctionDelete(ctx, name)
	}
	s.rdb.Close()
	s.stop()
}

// startServer starts a redis-server, or a valkey-server if redis-server is not installed. The
// server runs until ctx ends or close is called.
func startServer(ctx context.Context) (*server, error) {
	process, err := redistest.Start("redis-server")
	if errors.Is(err, exec.ErrNotFound) {
		process, err = redistest.Start("valkey-server")
	}
	if err != nil {
		return nil, fmt.Errorf("%w; or give a server with --redis redis://host:port", err)
	}
	return own(ctx, process)
}

// own connects to a server that this program started. It stops the server when ctx is canceled.
func own(ctx context.Context, process *redistest.Server) (*server, error) {
	context.AfterFunc(ctx, process.Stop)
	s := &server{rdb: newClient(&redis.Options{Addr: process.Addr}), url: "redis://" + process.Addr, stop: process.Stop}
	if err := s.takeOver(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}
