package nodes

import (
	"reflect"
	"testing"
)

func addrsOf(shards []Shard) []string {
	var addrs []string
	for _, at := range shards {
		addrs = append(addrs, at.Addr)
	}
	return addrs
}

func TestReadShards(t *testing.T) {
	node := func(pairs ...any) []any { return pairs }
	shard := func(slots []any, nodes ...any) []any { return []any{"slots", slots, "nodes", nodes} }
	some := []any{int64(0), int64(99)}
	for _, tt := range []struct {
		name  string
		reply any
		tls   bool
		want  []string
	}{
		{"primaries only", []any{shard(some,
			node("endpoint", "10.0.0.2", "port", int64(6379), "role", "replica", "health", "online"),
			node("endpoint", "10.0.0.1", "port", int64(6379), "role", "master", "health", "online"))}, false, []string{"10.0.0.1:6379"}},
		{"as maps, with fields to come", []any{map[any]any{"slots": some, "id": "s1", "nodes": []any{
			map[any]any{"endpoint": "10.0.0.1", "port": int64(6379), "role": "master", "health": "online", "availability-zone": "a"}}}}, false, []string{"10.0.0.1:6379"}},
		{"a host name is preferred", []any{shard(some, node("endpoint", "r1.example", "ip", "10.0.0.1", "port", int64(6379), "role", "master"))}, false, []string{"r1.example:6379"}},
		{"unknown endpoint", []any{shard(some, node("endpoint", "?", "ip", "10.0.0.1", "port", int64(6379), "role", "master"))}, false, []string{"10.0.0.1:6379"}},
		{"no name at all", []any{shard(some, node("endpoint", nil, "ip", "", "port", int64(6379), "role", "master"))}, false, []string{"10.9.9.9:6379"}},
		{"its own loopback", []any{shard(some, node("endpoint", "127.0.0.1", "port", int64(6379), "role", "master"))}, false, []string{"10.9.9.9:6379"}},
		{"both ports, plain", []any{shard(some, node("endpoint", "10.0.0.1", "port", int64(6379), "tls-port", int64(6380), "role", "master"))}, false, []string{"10.0.0.1:6379"}},
		{"both ports, TLS", []any{shard(some, node("endpoint", "10.0.0.1", "port", int64(6379), "tls-port", int64(6380), "role", "master"))}, true, []string{"10.0.0.1:6380"}},
		{"only TLS", []any{shard(some, node("endpoint", "10.0.0.1", "tls-port", int64(6380), "role", "master"))}, true, []string{"10.0.0.1:6380"}},
		{"no slots yet", []any{shard(nil, node("endpoint", "10.0.0.1", "port", int64(6379), "role", "master", "health", "online"))}, false, []string{"10.0.0.1:6379"}},
		{"given up, no slots", []any{shard(nil, node("endpoint", "10.0.0.1", "port", int64(6379), "role", "master", "health", "failed"))}, false, nil},
		{"given up, with slots", []any{shard(some, node("endpoint", "10.0.0.1", "port", int64(6379), "role", "master", "health", "fail"))}, false, []string{"10.0.0.1:6379"}},
		{"given up, and replaced", []any{shard(some,
			node("endpoint", "10.0.0.1", "port", int64(6379), "role", "master", "health", "fail"),
			node("endpoint", "10.0.0.2", "port", int64(6379), "role", "master", "health", "online"))}, false, []string{"10.0.0.2:6379"}},
		{"IPv6", []any{shard(some, node("endpoint", "fd00::1", "port", int64(6379), "role", "master"))}, false, []string{"[fd00::1]:6379"}},
		{"not shards", "OK", false, nil},
		{"not a shard", []any{"x"}, false, nil},
	} {
		if got := addrsOf(readShards(tt.reply, "10.9.9.9", tt.tls)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestReadSlots(t *testing.T) {
	reply := []any{
		[]any{int64(0), int64(5460), []any{"10.0.0.1", int64(7000), "id"}, []any{"10.0.0.4", int64(7003), "id"}},
		[]any{int64(5461), int64(16383), []any{"", int64(7001), "id"}},
	}
	got := readSlots(reply, "10.9.9.9", false)
	if !reflect.DeepEqual(got, []Shard{{Addr: "10.0.0.1:7000", Slots: []int{0, 5460}, ReplicaAddrs: []string{"10.0.0.4:7003"}}, {Addr: "10.9.9.9:7001", Slots: []int{5461, 16383}}}) {
		t.Errorf("%v", got)
	}
	for _, bad := range []any{nil, "OK", []any{"x"}, []any{[]any{int64(0), int64(1)}}, []any{[]any{int64(0), int64(1), []any{"h"}}}} {
		if got := readSlots(bad, "h", false); got != nil {
			t.Errorf("%v gives %v", bad, got)
		}
	}
}
