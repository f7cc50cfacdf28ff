package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// server is the server under test. Its database is emptied repeatedly.
type server struct {
	rdb     *redis.Client
	url     string
	version string // such as "Redis 7.0.15"
	stop    func()
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

// newClient returns a client that sends no commands of its own and does not retry, because every
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

// takeOver reads the version, and refuses a server whose data or library this program would
// destroy.
func (s *server) takeOver(ctx context.Context) error {
	info, err := s.rdb.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("INFO server: %w", err)
	}
	s.version = versionOf(info)
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

// close restores the server to the state in which it was found.
func (s *server) close() {
	// The run's own context may have ended; the cleanup must still run.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.rdb.FlushDB(ctx)
	for _, name := range []string{libraryName, floorLibraryName} {
		s.rdb.FunctionDelete(ctx, name)
	}
	s.rdb.Close()
	s.stop()
}

// versionOf parses the name and version of a server in INFO server. Valkey has a redis_version too.
func versionOf(info string) string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[key] = value
	}
	if version := fields["valkey_version"]; version != "" {
		return "Valkey " + version
	}
	return "Redis " + fields["redis_version"]
}

// startServer starts a redis-server, or a valkey-server if there is none. It ends with ctx or with
// close.
func startServer(ctx context.Context) (*server, error) {
	process, err := redistest.Start("redis-server")
	if errors.Is(err, exec.ErrNotFound) {
		process, err = redistest.Start("valkey-server")
	}
	if err != nil {
		return nil, fmt.Errorf("%w; or give a server with --redis redis://host:port", err)
	}
	context.AfterFunc(ctx, process.Stop)
	s := &server{rdb: newClient(&redis.Options{Addr: process.Addr}), url: "redis://" + process.Addr, stop: process.Stop}
	if err := s.takeOver(ctx); err != nil {
		s.rdb.Close()
		s.stop()
		return nil, err
	}
	return s, nil
}
