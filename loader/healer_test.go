package loader_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// A Healer loads a lost library, and does not replace a newer build.
func TestRepairOnce(t *testing.T) {
	ctx := t.Context()
	addr, stop := startRedis(t)
	rdb := at(t, addr)
	heal := loader.Healer(build(t), loader.Config{})
	holds := func() string { return text.Body(texts(t, addr)[functions.Name]) }
	for range 2 { // the second time there is nothing to do
		if err := heal(ctx, rdb); err != nil || holds() != build(t).Text() {
			t.Fatalf("%v; the server holds a text of %d bytes", err, len(holds()))
		}
	}
	newer := libraryAs("9.9.9", "000000000009")
	require(t, rdb.FunctionLoadReplace(ctx, newer.Text()).Err())
	if err := heal(ctx, rdb); err != nil || holds() != newer.Text() {
		t.Errorf("over a newer build: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := heal(ended, rdb); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	stop()
	if err := heal(ctx, rdb); !errors.Is(err, nodes.ErrUnreachable) {
		t.Errorf("of a server that is gone: %v", err)
	}
	if err := heal(ctx, nil); err == nil {
		t.Errorf("of nothing: %v", err)
	}
	if err := loader.Healer(loader.Text("no library"), loader.Config{})(ctx, rdb); !errors.Is(err, loader.ErrBadBuild) {
		t.Errorf("with no build: %v", err)
	}
}

// A Healer does not restore a library that was deleted, and says so: if it succeeded, each call of a
// client would start another repair.
func TestHealingAfterDelete(t *testing.T) {
	ctx := t.Context()
	addr, _ := startRedis(t)
	rdb := at(t, addr)
	l := newLoader(t, rdb)
	must[loader.Report](t)(l.Deploy(ctx, build(t), loader.Options{}))
	must[loader.Report](t)(l.Delete(ctx, loader.Options{}))
	heal := loader.Healer(build(t), loader.Config{})
	for range 2 {
		if err := heal(ctx, rdb); !errors.Is(err, nodes.ErrNoLibrary) || !strings.Contains(err.Error(), "call Deploy") {
			t.Errorf("%v, want that the library was deleted", err)
		}
	}
	must[loader.Report](t)(l.Deploy(ctx, build(t), loader.Options{}))
	require(t, heal(ctx, rdb))
}

// A Healer of one primary succeeds while another primary is dead.
func TestHealingBesideADeadPrimary(t *testing.T) {
	nodes := []*redistest.Server{redistest.Run(t, "--cluster-enabled", "yes"), redistest.Run(t, "--cluster-enabled", "yes")}
	live := at(t, nodes[0].Addr)
	redistest.Join(t, []*redis.Client{live, at(t, nodes[1].Addr)}, 2)
	nodes[1].Stop()
	if err := loader.Healer(build(t), loader.Config{})(t.Context(), live); err != nil {
		t.Error(err)
	}
	if text.Body(texts(t, nodes[0].Addr)[functions.Name]) != build(t).Text() {
		t.Error("the library was not loaded")
	}
}
