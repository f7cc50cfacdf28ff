package environ_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/environ"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// flags returns the flags as on a command line, and the names of the variables without effect.
func flags(t *testing.T, environment ...string) (line, without string) {
	t.Helper()
	settings := redistest.Must[*environ.Settings](t)(environ.Read(environment))
	var words, names []string
	for _, f := range settings.Flags {
		words = append(words, "--"+f.Name+"="+f.Value)
	}
	for _, n := range settings.Notes {
		names = append(names, n.Name)
	}
	return strings.Join(words, " "), strings.Join(names, " ")
}

func TestDeployments(t *testing.T) {
	const ports = "--http=0.0.0.0:8080 --grpc=0.0.0.0:8081 "
	const redis = "REDIS_SOCKET_TYPE=tcp"
	for _, tt := range []struct {
		name          string
		environment   string
		want, without string
	}{
		{
			"the compose example of envoyproxy/ratelimit",
			"USE_STATSD=true STATSD_HOST=statsd STATSD_PORT=9125 LOG_LEVEL=debug REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_WATCH_ROOT=false CONFIG_TYPE=FILE CONFIG_GRPC_XDS_NODE_ID=test-node-id CONFIG_GRPC_XDS_SERVER_URL=ratelimit-xds-config-server:18000",
			ports + "--redis=redis://redis:6379 --deploy=true --envoy-config=/data/ratelimit/config --log=debug",
			"CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_SERVER_URL RUNTIME_WATCH_ROOT STATSD_HOST STATSD_PORT USE_STATSD",
		},
		{
			"what Envoy Gateway sets",
			"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis.redis.svc:6379 RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_IGNOREDOTFILES=true RUNTIME_WATCH_ROOT=false LOG_LEVEL=info USE_STATSD=false CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001 CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/certs/tls.crt GRPC_SERVER_TLS_KEY=/certs/tls.key GRPC_CLIENT_TLS_CACERT=/certs/ca.crt CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt FORCE_START_WITHOUT_INITIAL_CONFIG=true USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001 PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
			ports + "--tls-grpc-only=true --tls-cert=/certs/tls.crt --tls-key=/certs/tls.key --tls-client-ca=/certs/ca.crt --redis=redis://redis.redis.svc:6379 --deploy=true --xds=envoy-gateway:18001 --xds-node=envoy-ratelimit --xds-tls=true --xds-tls-cert=/certs/tls.crt --xds-tls-key=/certs/tls.key --xds-tls-ca=/certs/ca.crt --xds-optional=true --log=info",
			"PROMETHEUS_ADDR PROMETHEUS_MAPPER_YAML RUNTIME_IGNOREDOTFILES RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_WATCH_ROOT USE_PROMETHEUS USE_STATSD",
		},
		{"a socket", "CONFIG_TYPE=FILE REDIS_URL=/run/redis.sock GRPC_UDS=/run/rls.sock PORT=80", "--http=0.0.0.0:80 --grpc=unix:/run/rls.sock --redis=unix:///run/redis.sock --deploy=true --envoy-config=/srv/runtime_data/current/config", ""},
		{"a URL with TLS", redis + " REDIS_URL=redis://u:p@h:1 REDIS_TLS=true", ports + "--redis=rediss://u:p@h:1 --deploy=true --envoy-config=/srv/runtime_data/current/config", ""},
		{"a password", redis + " REDIS_URL=h:1 REDIS_AUTH=p/w REDIS_TLS=true", ports + "--redis=rediss://:p%2Fw@h:1 --deploy=true --envoy-config=/srv/runtime_data/current/config", ""},
		{"a user", redis + " REDIS_URL=h:1 REDIS_AUTH=me:pw CONFIG_TYPE=GRPC_XDS_SOTW", ports + "--redis=redis://me:pw@h:1 --deploy=true --xds=localhost:18000 --xds-node=default", ""},
		{"a cluster", redis + " REDIS_URL=h:1,h:2 REDIS_TYPE=CLUSTER", ports + "--redis=redis+cluster://h:1,h:2 --deploy=true --envoy-config=/srv/runtime_data/current/config", ""},
		{"Sentinels", redis + " REDIS_URL=main,h:1,h:2 REDIS_TYPE=sentinel REDIS_AUTH=a REDIS_SENTINEL_AUTH=b", ports + "--redis=redis-sentinel://:a@h:1,h:2/main?sentinel_password=b --deploy=true --envoy-config=/srv/runtime_data/current/config", ""},
		{"certificates for Redis", redis + " REDIS_URL=h:1 REDIS_TLS=true REDIS_TLS_CACERT=/ca REDIS_TLS_CLIENT_CERT=/cert REDIS_TLS_CLIENT_KEY=/key",
			ports + "--redis=rediss://h:1 --redis-tls-ca=/ca --redis-tls-cert=/cert --redis-tls-key=/key --deploy=true --envoy-config=/srv/runtime_data/current/config", ""},
		{"certificates without TLS", redis + " REDIS_URL=h:1 REDIS_TLS_CACERT=/ca REDIS_TLS_CLIENT_KEY=/key",
			ports + "--redis=redis://h:1 --deploy=true --envoy-config=/srv/runtime_data/current/config", "REDIS_TLS_CACERT REDIS_TLS_CLIENT_KEY"},
		{"a whole URL", redis + " REDIS_URL=rediss://h:1/2", ports + "--redis=rediss://h:1/2 --deploy=true --envoy-config=/srv/runtime_data/current/config", ""},
		{
			"ready only with rules",
			redis + " REDIS_URL=h:1 CONFIG_TYPE=GRPC_XDS_SOTW FORCE_START_WITHOUT_INITIAL_CONFIG=true HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=1 MERGE_DOMAIN_CONFIG=true SHADOW_MODE=false",
			ports + "--redis=redis://h:1 --deploy=true --xds=localhost:18000 --xds-node=default --all-or-none=true --merge-domains=true", "",
		},
	} {
		if line, without := flags(t, strings.Fields(tt.environment)...); line != tt.want || without != tt.without {
			t.Errorf("%s:\n%s\n%s\nwant:\n%s\n%s", tt.name, line, without, tt.want, tt.without)
		}
	}
}

func TestNotADeployment(t *testing.T) {
	for _, environment := range [][]string{nil, {"PORT=3000", "HOST=me", "LOG_LEVEL=loud", "REDIS_URL=redis://h", "SHADOW_MODE=true"}, {"CONFIG_TYPE="}} {
		if settings, err := environ.Read(environment); settings != nil || err != nil {
			t.Errorf("%v: %v, %v", environment, settings, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for variable, want := range map[string]string{
		"REDIS_URL=":                               "REDIS_URL is not set; give the address",
		"REDIS_TYPE=MANY":                          "REDIS_TYPE=MANY: write SINGLE, SENTINEL or CLUSTER",
		"REDIS_TYPE=SENTINEL":                      "REDIS_URL has no comma",
		"REDIS_SOCKET_TYPE=udp":                    "REDIS_SOCKET_TYPE=udp: write tcp or unix",
		"CONFIG_TYPE=ETCD":                         "CONFIG_TYPE=ETCD: write FILE or GRPC_XDS_SOTW",
		"LOG_LEVEL=loud":                           "LOG_LEVEL=loud: write debug, info, warn or error",
		"LOG_FORMAT=json":                          "LOG_FORMAT=json: the log has lines of text",
		"REDIS_URL=redis://h:1 REDIS_TYPE=CLUSTER": "REDIS_TYPE=CLUSTER: write redis+cluster:// or redis-sentinel:// in REDIS_URL, or give only host:port",
		"REDIS_SOCKET_TYPE=unix REDIS_URL=/s REDIS_TLS=true": "REDIS_TLS=true: leave it out for a socket, or set REDIS_SOCKET_TYPE to tcp",
		"PORT=abc":                                    "PORT=abc: write a number from 0 to 65535, such as 8080",
		"GRPC_PORT=65536":                             "GRPC_PORT=65536: write a number from 0 to 65535, such as 8081",
		"REDIS_SOCKET_TYPE=unix":                      "REDIS_URL=h:1: this is the path of a socket unless REDIS_SOCKET_TYPE is tcp; set REDIS_SOCKET_TYPE=tcp, or write a path such as /run/redis.sock",
		"REDIS_TLS=perhaps":                           "REDIS_TLS=perhaps: write true or false",
		"SHADOW_MODE=true":                            "SHADOW_MODE=true: write shadow_mode: true into the descriptors, and remove the variable",
		"CACHE_KEY_PREFIX=a":                          "CACHE_KEY_PREFIX=a: keys begin with the domain",
		"BACKEND_TYPE=memcache":                       "BACKEND_TYPE=memcache: the gateway counts in Redis",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=s": "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS is set, and the gateway sends only",
	} {
		environment := append([]string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=h:1", "CONFIG_TYPE=GRPC_XDS_SOTW"}, strings.Fields(variable)...)
		if _, err := environ.Read(environment); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %s", variable, err, want)
		}
	}
	_, err := environ.Read([]string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=h:1", "SHADOW_MODE=true", "QUOTA_MODE=true"})
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%v; want both", err)
	}
}

// TestMisspelled checks that a variable with a typing error is named, with the one that was perhaps meant.
func TestMisspelled(t *testing.T) {
	for environment, want := range map[string]string{
		"REDIS_SOCKET_TYPE=tcp REDIS_URLL=h:1 USE_STATSDD=true PATH=/bin HOSTS=a STATSD_HOST=b": "REDIS_URLL: nobody reads this name; was REDIS_URL meant?; USE_STATSDD: nobody reads this name; was USE_STATSD meant?",
		"RUNTIME_ROTO=/data REDIS_URI=h USE_STATSDD=true":                                       "RUNTIME_ROTO: nobody reads this name; was RUNTIME_ROOT meant?; REDIS_URI: nobody reads this name; was REDIS_URL meant?",
		"CONFIG_GRPC_XDS_SERVER_URI=h:1":                                                        "CONFIG_GRPC_XDS_SERVER_URI: nobody reads this name; was CONFIG_GRPC_XDS_SERVER_URL meant?",
		"REDIS_URLL= CONFIG_TYPE=FILE REDIS_URL=/s":                                             "",
		"REDIS_TLS=true REDIS_HOST=a REDIS_PORT=1 LOG_LEVELS=info":                              "",
	} {
		var got []string
		for _, n := range environ.Misspelled(strings.Fields(environment)) {
			got = append(got, n.Name+": "+n.Why)
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%s:\n%s\nwant\n%s", environment, text, want)
		}
	}
	_, err := environ.Read([]string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URLL=h:1"})
	if err == nil || err.Error() != "REDIS_URL is not set; give the address of Redis, such as redis:6379\nREDIS_URLL: nobody reads this name; was REDIS_URL meant?" {
		t.Error(err)
	}
}

// TestEveryVariable checks that no variable of envoyproxy/ratelimit is passed over in silence: each is
// a flag, is noted or is refused. docs/swap.md names those that are flags or are refused.
// variables.txt has their names.
func TestEveryVariable(t *testing.T) {
	names := strings.Fields(string(redistest.Must[[]byte](t)(os.ReadFile("variables.txt"))))
	if len(names) != 108 {
		t.Errorf("%d variables", len(names))
	}
	page := string(redistest.Must[[]byte](t)(os.ReadFile("../../../docs/swap.md")))
	for _, base := range []string{"CONFIG_TYPE=FILE", "CONFIG_TYPE=GRPC_XDS_SOTW"} {
		for _, name := range names {
			known, noted := false, false
			for _, value := range []string{"true", "x"} {
				settings, err := environ.Read([]string{"REDIS_URL=/s", "GRPC_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", base, name + "=" + value})
				if err != nil {
					known = known || strings.Contains(err.Error(), name)
					continue
				}
				known = known || slices.ContainsFunc(settings.Flags, func(f environ.Flag) bool { return slices.Contains(f.From, name) })
				noted = noted || slices.ContainsFunc(settings.Notes, func(n environ.Note) bool { return n.Name == name })
			}
			if !known && !noted {
				t.Errorf("%s with %s is passed over", name, base)
			}
			if known && !strings.Contains(page, name) {
				t.Errorf("docs/swap.md does not name %s", name)
			}
		}
	}
}

func ExampleRead() {
	settings, err := environ.Read([]string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379", "USE_STATSD=true"})
	fmt.Println(settings.Notes, err)
	// Output: [{USE_STATSD metrics are at /metrics of the HTTP port, for Prometheus, under names of their own}] <nil>
}
