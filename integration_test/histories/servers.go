package histories

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// Fleet is a backend of which a run uses the servers.
type Fleet struct {
	b      *backend.Backend
	texts  []string // the library, for each version of the build
	shards []*shard

	version atomic.Int64 // of the build that was loaded last
	saved   int          // the version of the build in the last snapshot, -1 if there is none
	healing atomic.Bool  // whether clients may restore a lost library

	mu    sync.Mutex
	moved map[uint16]int // the shards of slots that have moved
}

// shard is a server or, in a cluster, a primary and its replica.
type shard struct {
	primary, replica *backend.Node
	first, last      int // slots at the begin
}

// NewFleet prepares a restored backend: it loads version 0 of the library. change is applied to the
// text of each version; it is nil for the library as it is.
func NewFleet(ctx context.Context, b *backend.Backend, change func(text string) (string, error)) (*Fleet, error) {
	f := &Fleet{b: b, saved: -1, moved: map[uint16]int{}}
	for _, policies := range Builds() {
		build, err := Library(policies)
		if err != nil {
			return nil, err
		}
		text := build.Text()
		if change != nil {
			if text, err = change(text); err != nil {
				return nil, err
			}
		}
		f.texts = append(f.texts, text)
	}
	err := backend.Until(ctx, b.Name+" to know its shards", func() error { return f.findShards(ctx) }) // replicas are listed late
	if err != nil {
		return nil, err
	}
	for _, s := range f.shards {
		if err := f.load(ctx, s, 0); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Close removes what a run may leave on the servers after the backend is restored.
func (f *Fleet) Close(ctx context.Context) error {
	if f.saved < 0 {
		return nil
	}
	c := f.shards[0].primary.Client()
	return errors.Join(c.FlushAll(ctx).Err(), c.FunctionFlush(ctx).Err(), c.Save(ctx).Err()) // a snapshot without keys
}

func (f *Fleet) findShards(ctx context.Context) error {
	if !f.b.Cluster {
		f.shards = []*shard{{primary: f.b.Nodes[0]}}
		return nil
	}
	f.shards = nil
	shards, err := f.b.Nodes[0].Client().ClusterShards(ctx).Result()
	if err != nil {
		return err
	}
	nodes := map[string]*backend.Node{} // by port: all are on one address
	for _, n := range f.b.Nodes {
		_, port, _ := net.SplitHostPort(n.Addr)
		nodes[port] = n
	}
	for _, found := range shards {
		if len(found.Slots) == 0 {
			continue
		}
		s := &shard{first: int(found.Slots[0].Start), last: int(found.Slots[0].End)}
		for _, n := range found.Nodes {
			node := nodes[strconv.FormatInt(n.Port, 10)]
			if n.Role == "master" {
				s.primary = node
			} else {
				s.replica = node
			}
		}
		if s.primary == nil || s.replica == nil {
			return fmt.Errorf("slots %d to %d have no primary or no replica: %+v", s.first, s.last, found.Nodes)
		}
		for _, span := range found.Slots[1:] { // an earlier run has moved slots
			for slot := span.Start; slot <= span.End; slot++ {
				f.moved[uint16(slot)] = len(f.shards)
			}
		}
		f.shards = append(f.shards, s)
	}
	return nil
}

// load loads a version of the library on the primary of a shard, and waits until the replica has it.
func (f *Fleet) load(ctx context.Context, s *shard, version int) error {
	if err := s.primary.Client().FunctionLoadReplace(ctx, f.texts[version]).Err(); err != nil {
		return err
	}
	return f.sync(ctx, s)
}

// sync waits until the replica of a shard has all changes.
func (f *Fleet) sync(ctx context.Context, s *shard) error {
	if s.replica == nil {
		return nil
	}
	return backend.Until(ctx, s.replica.String()+" to have all changes", func() error {
		changes := map[string]string{}
		for name, n := range map[string]*backend.Node{"primary": s.primary, "replica": s.replica} {
			info, err := n.Client().InfoMap(ctx, "replication").Result()
			if err != nil {
				return err
			}
			if name == "replica" && info["Replication"]["master_link_status"] != "up" {
				return errors.New("it is not connected to its primary")
			}
			offset := "master_repl_offset"
			if name == "replica" {
				offset = "slave_repl_offset"
			}
			changes[name] = info["Replication"][offset]
		}
		if changes["primary"] != changes["replica"] && !f.written(changes) {
			return fmt.Errorf("it has %s of %s bytes", changes["replica"], changes["primary"])
		}
		return nil
	})
}

// written reports whether the replica has more than the primary had when it was asked first.
func (f *Fleet) written(changes map[string]string) bool {
	a, b := changes["primary"], changes["replica"]
	return len(b) > len(a) || len(b) == len(a) && b > a
}

// Servers returns the servers for a run.
func (f *Fleet) Servers(startUS int64) Servers {
	s := Servers{
		StartUS: startUS, SetTime: f.b.SetTime, Builds: Builds(), Heal: f.heal, Settle: f.settle,
		During: !(f.b.Product == "redis" && strings.HasPrefix(f.b.Version, "7.0.")),
		NewClient: func(dial Dialer) redis.UniversalClient {
			return f.b.NewClient(func(o *redis.UniversalOptions) {
				o.Dialer, o.ContextTimeoutEnabled, o.PoolSize = dial, true, 30
			})
		},
	}
	if f.b.Cluster {
		s.Shard = func(tag string) int { return f.owner(slotOf(tag)) }
	}
	return s
}

func (f *Fleet) owner(slot uint16) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.moved[slot]; ok {
		return i
	}
	for i, s := range f.shards {
		if int(slot) >= s.first && int(slot) <= s.last {
			return i
		}
	}
	panic(fmt.Sprintf("slot %d has no shard", slot))
}

func (f *Fleet) heal(ctx context.Context, server redis.UniversalClient) error {
	if !f.healing.Load() {
		return errors.New("this fault is not for healers")
	}
	return server.FunctionLoadReplace(ctx, f.texts[f.version.Load()]).Err()
}

// settle waits until every primary has executed what it has received. A server sends the replies to
// all commands that it has read together, so the second reply comes after these commands have run.
func (f *Fleet) settle(ctx context.Context) error {
	var errs []error
	for _, s := range f.shards {
		c := s.primary.Client()
		errs = append(errs, c.Ping(ctx).Err(), c.Ping(ctx).Err())
	}
	return errors.Join(errs...)
}

// slotOf returns the slot of a hash tag.
func slotOf(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
