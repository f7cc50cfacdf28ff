package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ratelimit-functions/ratelimit/client/internal/keytext"
)

// ErrNoKey is the error of a [Func] for a call that lacks what it is to be counted under. The caller then gets
// INVALID_ARGUMENT with the text of the error, or [FirstOf] tries what comes next. Any other error is one of the server, and
// there is no decision.
var ErrNoKey = errors.New("the call lacks what it is limited by")

// Key says what a call is counted under. The functions of this package make one; the zero value is not usable. It may be shared.
type Key struct{ key keytext.Key[call] }

// call is what a Key tells calls apart by.
type call struct {
	ctx    context.Context
	method string
}

var keys = keytext.Keys[call]{Missing: ErrNoKey, Such: "Peer()", Makers: "Peer, Metadata, Method or Func"}

// Func counts a call under what f returns for its context and full method: Func("tenant", tenant) uses "tenant=acme". An empty
// text is [ErrNoKey].
//
// Whatever f returns is safe to use: of a value above 128 bytes a hash is used, and control characters and % | { } are
// written as in a URL, so that no value passes for a part of another key or moves it in a cluster.
func Func(name string, f func(ctx context.Context, method string) (string, error)) Key {
	if f == nil {
		return Key{keys.Func(name, nil)}
	}
	return Key{keys.Func(name, func(c call) (string, error) { return f(c.ctx, c.method) })}
}

// Method counts a call under its full method: "method=/shop.Orders/List".
func Method() Key {
	return Func("method", func(_ context.Context, method string) (string, error) { return method, nil })
}

// Metadata counts a call under a value of the metadata that it came with, the first of several: Metadata("x-api-key"). Of
// the value the first 32 hexadecimal digits of its SHA-256 are used: "metadata:x-api-key~" and these.
//
// Who sends another value each time is a new client each time. Put an interceptor that verifies the value before this one.
func Metadata(name string) Key {
	if name == "" {
		return unusable(errors.New("Metadata without a name; give one, as in Metadata(\"x-api-key\")"))
	}
	name = strings.ToLower(name)
	return Key{keys.Secret("metadata", name, func(c call) string {
		values := metadata.ValueFromIncomingContext(c.ctx, name)
		if len(values) == 0 {
			return ""
		}
		return values[0]
	})}
}

// unusable is a Key that NewServer returns an error for.
func unusable(err error) Key { return Key{keytext.Key[call]{Err: err}} }

// Peer counts a call under the address that its connection is from: "peer=203.0.113.7", or, where that is not one of IP, the
// name of the network, such as "peer=unix". A port and an IPv6 zone are left out, and an IPv4 address written as IPv6 is the IPv4
// address. Behind a proxy that is the proxy's: use a [Func] that reads what the proxy writes into the metadata.
func Peer() Key { return PeerNetwork(128) }

// PeerNetwork is Peer with all IPv6 addresses of a network of this size counted as one, as in PeerNetwork(64): a household
// or a rented machine has at least a /64, and could otherwise take a new address for each call.
func PeerNetwork(ipv6Bits int) Key {
	if ipv6Bits < 1 || ipv6Bits > 128 {
		return unusable(fmt.Errorf("PeerNetwork(%d); give the size of a network, from 1 to 128, such as 64", ipv6Bits))
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
		addr := found.Addr().Unmap().WithZone("")
		if addr.Is6() && ipv6Bits < 128 {
			network, err := addr.Prefix(ipv6Bits)
			return network.String(), err
		}
		return addr.String(), nil
	})
}

// Join counts a call under all of these keys together: with Join(Method(), Peer()) each address has the limit on each method. A
// call that lacks one of them lacks all.
func Join(of ...Key) Key { return Key{keys.Join(parts(of))} }

// FirstOf counts a call under the first of these keys that it has: with FirstOf(Metadata("x-api-key"), Peer()) calls without the
// metadata are limited by their address.
func FirstOf(of ...Key) Key { return Key{keys.FirstOf(parts(of))} }

func parts(of []Key) []keytext.Key[call] {
	found := make([]keytext.Key[call], len(of))
	for i, k := range of {
		found[i] = k.key
	}
	return found
}
