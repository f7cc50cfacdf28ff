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

// allow lets all requests of the Envoys that are due pass. It is called with b.mu.
func (b *bucket) allow() {
	now := b.server.Now()
	b.ticked = false
	for _, sh := range b.shares {
		if sh.due {
			sh.due = false
			sh.stream.send(sh, action{kind: allowAll, at: now})
		}
	}
}
