package environ

import (
	"maps"
	"slices"
	"strings"
)

// trues are variables that must not be true, because the gateway has nothing that means the same.
var trues = map[string]string{
	"SHADOW_MODE":                    "write shadow_mode: true into the descriptors, and remove the variable",
	"QUOTA_MODE":                     "write quota_mode: true into the descriptors, and remove the variable",
	"RESPONSE_DYNAMIC_METADATA":      "the gateway sends no metadata; remove the variable, and what reads the metadata",
	"LIMIT_RESPONSE_HEADERS_ENABLED": "the gateway has X-RateLimit-Limit, -Remaining and -Reset instead; remove the variable, and give --headers",
	"REDIS_PERSECOND":                "the gateway counts all units on the same servers; remove the variable",

	"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "the gateway always verifies the name; connect to a name that the certificate has, and remove the variable",
}

// texts are variables that must not be set, except to the given value.
var texts = map[string]struct{ value, remedy string }{
	"BACKEND_TYPE":     {"redis", "the gateway counts in Redis or Valkey; write redis, and give REDIS_URL"},
	"LOG_FORMAT":       {"text", "the log has lines of text, key=value; write text"},
	"CACHE_KEY_PREFIX": {"", "keys begin with the domain; give the gateway a database of its own, as in REDIS_URL=redis://host:6379/1, and remove the variable"},
}

// without are variables without effect, and why. A name that ends with * is a prefix.
var without = map[string]string{
	"GRPC_MAX_CONNECTION_AGE*": "connections end after half an hour",
	"DEBUG_HOST":               "there is no debug port",
	"DEBUG_PORT":               "there is no debug port",

	"USE_STATSD": metrics, "STATSD_*": metrics, "STATS_FLUSH_INTERVAL": metrics, "EXTRA_TAGS": metrics, "DISABLE_STATS": metrics,
	"USE_DOG_STATSD*": metrics, "DOG_STATSD_*": metrics, "USE_PROMETHEUS": metrics, "PROMETHEUS_*": metrics, "NEAR_LIMIT_RATIO": metrics,

	"TRACING_*":                            "the gateway sends no traces",
	"REDIS_POOL_*":                         "the client chooses the number of its connections",
	"REDIS_PIPELINE_*":                     "calls share round trips without a setting",
	"REDIS_TIMEOUT":                        "--timeout bounds each decision, with 15ms by default",
	"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": "readiness never depends on Redis after the start",
	"REDIS_PERSECOND_*":                    "REDIS_PERSECOND is not true",
	"MEMCACHE_*":                           "BACKEND_TYPE is redis",
	"EXPIRATION_JITTER_MAX_SECONDS":        "a key expires when its limit is full again",
	"LOCAL_CACHE_SIZE_IN_BYTES":            "the gateway remembers denials for 100ms without a setting",
	"LIMIT_*_HEADER":                       "LIMIT_RESPONSE_HEADERS_ENABLED is not true",
}

const metrics = "metrics are at /metrics of the HTTP port, for Prometheus, under names of their own"

// others reads the variables that have nothing to do with ports, Redis or the source of the rules.
func (r *reader) others() {
	if r.vars["LOG_LEVEL"] != "" {
		levels := map[string]string{"trace": "debug", "debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error", "fatal": "error", "panic": "error"}
		level := levels[strings.ToLower(r.vars["LOG_LEVEL"])]
		if level == "" {
			r.refuse("LOG_LEVEL", "write debug, info, warn or error")
		}
		r.flag("log", level, "LOG_LEVEL")
	}
	if r.on("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") {
		r.flag("all-or-none", "true", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
	}
	if r.on("MERGE_DOMAIN_CONFIG") {
		r.flag("merge-domains", "true", "MERGE_DOMAIN_CONFIG")
	}
	for _, name := range slices.Sorted(maps.Keys(trues)) {
		if r.on(name) {
			r.refuse(name, trues[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if value := r.vars[name]; value != "" && !strings.EqualFold(value, texts[name].value) {
			r.refuse(name, texts[name].remedy)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.vars)) {
		for pattern, why := range without {
			prefix, suffix, many := strings.Cut(pattern, "*")
			if name == pattern || many && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix) {
				r.note(why, name)
				break
			}
		}
	}
}
