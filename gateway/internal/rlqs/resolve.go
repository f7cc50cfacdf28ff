package rlqs

import (
	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
)

// resolve finds the bucket's limit. It is called with b.mu.
func (b *bucket) resolve() {
	config := b.server.config.Load()
	if b.read && config == b.config {
		return
	}
	limit, key := b.limit, b.key
	defer func() {
		if b.limit != limit || b.key != key { // what the Envoys hold was charged under the other limit
			b.orphans = nil
			for _, sh := range b.shares {
				sh.open = 0
			}
		}
	}()
	b.config, b.read, b.known, b.trial = config, true, false, false
	b.limit, b.key, b.class, b.shadow, b.period = "", "", "", false, interval
	list := b.id.entries()
	if config != nil && config.Known(b.domain) {
		if rule, key := config.Find(b.domain, list); rule != nil && !rule.Unlimited {
			b.limit, b.key, b.shadow = rule.Limit, key, rule.Shadow || rule.Quota
		}
		return
	}
	if named, err := envoyconfig.Policy(list); err == nil && named.Policy != "" {
		b.limit, b.key, b.class = client.Limit("@"+named.Policy), named.Key, named.Class
	}
}

// allow lets all requests of the Envoys in list pass, and returns how many shares have ended. It is called
// with b.mu.
func (b *bucket) allow(list []*portion) (ended int) {
	for _, p := range list {
		switch {
		case p.gone.Load():
		case b.abandons(p):
			ended++
		default:
			p.stream.send(p.share, action{kind: allowAll, at: b.server.Now()})
		}
	}
	return ended
}

// abandons ends the share of an Envoy whose last two reports had no requests, and reports whether it did.
func (b *bucket) abandons(p *portion) bool {
	if !p.fresh || p.idle < 2 {
		return false
	}
	b.remove(p.share)
	p.stream.send(p.share, action{kind: abandon, at: b.server.Now()})
	return true
}
