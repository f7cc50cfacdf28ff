package grpclimit

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// A Key selects the key under which a call is counted. The functions of this package make keys; the
// zero value is not usable. A Key may be shared.
type Key struct{ key keytext.Key[call] }

// call holds what a Key may read about a gRPC call.
type call struct {
	ctx    context.Context
	method string
}

var keys = keytext.Keys[call]{Such: "Peer()", Makers: "Peer, Metadata, Method or Func"}

// Func counts each call by the result of f for its context and full method name: Func("tenant",
// tenant) uses keys such as "tenant=acme". An empty result is treated as [key.ErrMissing].
//
// f may return any text. A value longer than 128 bytes is replaced by a hash, and control
// characters and % | { } are percent-encoded. So no value can imitate another key or change its
// hash slot in a cluster.
func Func(name string, f func(ctx context.Context, method string) (string, error)) Key {
	if f == nil {
		return Key{keys.Func(name, nil)}
	}
	return Key{keys.Func(name, func(c call) (string, error) { return f(c.ctx, c.method) })}
}

// Method counts each call by its full method name: "method=/shop.Orders/List".
func Method() Key {
	return Func("method", func(_ context.Context, method string) (string, error) { return method, nil })
}

// Metadata counts each call by a value of its incoming metadata, such as Metadata("x-api-key"). A
// call with several different values gets INVALID_ARGUMENT, because the service may use another one
// than the limit. The key contains the first 32 hexadecimal digits of the value's SHA-256:
// "metadata:x-api-key~" and the digits. In authorization, "Bearer T" and "bearer  T" count under one
// key.
//
// A caller that sends a new value each time counts as a new caller each time. Put an interceptor
// that verifies the value before this one.
func Metadata(name string) Key {
	name = strings.ToLower(name)
	return Key{keys.Secret("Metadata", "x-api-key", name, func(c call) []string {
		return metadata.ValueFromIncomingContext(c.ctx, name)
	})}
}

// Peer counts each call by the remote address of its connection: "peer=203.0.113.7", or, if the
// address is not an IP address, by the name of the network, such as "peer=unix". Ports and IPv6
// zones are removed, and an IPv4 address written as IPv6 becomes the IPv4 address. Other IPv6
// addresses count by their /64 network, as in "peer=2001:db8:1:2::/64", because a household or a
// rented machine usually has at least a /64, and could otherwise use a new address for each call.
// Behind a proxy the address is that of the proxy: use a [Func] that reads the metadata that the
// proxy sets.
func Peer() Key { return PeerNetwork(keytext.IPv6Bits) }

// PeerNetwork is like Peer, but counts each IPv6 network with the given prefix length as one
// address. With PeerNetwork(128), each address counts alone.
func PeerNetwork(ipv6Bits int) Key {
	if err := keytext.CheckBits("PeerNetwork", ipv6Bits); err != nil {
		return Key{keytext.Key[call]{Err: err}}
	}
	return Func("peer", func(ctx context.Context, _ string) (string, error) {
		p, ok := peer.FromContext(ctx)
		if !ok || p.Addr == nil {
			return "", errors.New("grpclimit.Peer: the context says nothing of the peer; use it in an interceptor of a gRPC server")
		}
		found, err := netip.ParseAddrPort(p.Addr.String())
		if err != nil {
			return p.Addr.Network(), nil
		}
		return keytext.Network(found.Addr().Unmap().WithZone(""), ipv6Bits), nil
	})
}

// Join counts each call by all of the given keys together: with Join(Method(), Peer()), each
// address has its own limit on each method. If a call lacks one of the keys, it has no key.
func Join(of ...Key) Key { return Key{keys.Join(parts(of))} }

// FirstOf counts each call by the first of the given keys that it has: with
// FirstOf(Metadata("x-api-key"), Peer()), calls without the metadata are limited by their address.
func FirstOf(of ...Key) Key { return Key{keys.FirstOf(parts(of))} }

func parts(of []Key) []keytext.Key[call] {
	found := make([]keytext.Key[call], len(of))
	for i, k := range of {
		found[i] = k.key
	}
	return found
}
