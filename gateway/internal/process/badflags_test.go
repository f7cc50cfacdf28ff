package process_test

import (
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
)

// TestBadFlags checks the whole text of errors that need no server.
func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		change func(*process.Options)
		want   string
	}{
		{func(o *process.Options) { o.Batches = "9223372036854775807,1s" }, `--batches "9223372036854775807,1s" takes more than 9007199254740992 units at once, the most; write fewer, as in 100,100ms`},
		{func(o *process.Options) { o.Batches = "9223372036854775808,1s" }, `--batches "9223372036854775808,1s" is not of the form n,ttl; write 2 units or more and a time of 1ms or more, as in 100,100ms`},
		{func(o *process.Options) { o.Batches = "100,1s,3" }, `--batches "100,1s,3" is not of the form n,ttl; write 2 units or more and a time of 1ms or more, as in 100,100ms`},
		{func(o *process.Options) { o.Connections = math.MaxInt }, "--max-connections 9223372036854775807 is above 1000000, the most; give one such as 1024"},
		{func(o *process.Options) { o.HTTP = "127.0.0.1:99999" }, `--http "127.0.0.1:99999" has the port 99999; write one from 0 to 65535, such as 8080`},
		{func(o *process.Options) { o.GRPC = ":-1" }, `--grpc ":-1" has the port -1; write one from 0 to 65535, such as 8080`},
		{func(o *process.Options) { o.GRPC = ":abc" }, `--grpc ":abc" has the port abc; write one from 0 to 65535, such as 8080`},
		{func(o *process.Options) { o.Redis = "localhost:26379:9" }, "--redis: the URL has a host with more than one colon; write one port, and an IPv6 address as in [::1]:6379; give one such as redis://user:password@host:6379"},
		{func(o *process.Options) { o.RedisTLS.CA = "/dev/null" }, "--redis-tls-ca, --redis-tls-cert and --redis-tls-key need a URL with TLS; write rediss:// in place of redis://, or rediss-sentinel:// in place of redis-sentinel://"},
		{func(o *process.Options) { o.Redis, o.RedisTLS.CA = "rediss://h", "/dev/null" }, "--redis-tls-ca: /dev/null contains no certificate; name a file in PEM form"},
		{func(o *process.Options) { o.Redis, o.RedisTLS.Key = "rediss://h", "/dev/null" }, "--redis-tls-cert and --redis-tls-key belong together; give both"},
		{func(o *process.Options) { o.HTTP = o.GRPC }, "--grpc and --http are both 127.0.0.1:8081; give each its own address"},
		{func(o *process.Options) { o.HTTP = "unix:/a"; o.Admin = o.HTTP }, "--http and --admin are both unix:/a; give each its own address"},
		{func(o *process.Options) { o.EnvoyConfig = t.TempDir(); o.XDS.Server = "h:1" }, "--envoy-config and --xds are two sources of the same rules; give one of them"},
		{func(o *process.Options) { o.GRPC = "" }, `--grpc "" names no port; write an address such as 127.0.0.1:8080, or unix:/path`},
		{func(o *process.Options) { o.Hosts = []string{"http://x"} }, `--hosts "http://x" is not the name of a host; write it without a scheme, a port and *, as in ratelimit.internal`},
		{func(o *process.Options) { o.Hosts = []string{""} }, `--hosts "" is not the name of a host; write it without a scheme, a port and *, as in ratelimit.internal`},
		{func(o *process.Options) { o.TrustedProxies = []string{""} }, `--trusted-proxies: "" is not a network; write an address, unix: or one such as 10.0.0.0/8`},
		{func(o *process.Options) { o.Policies = []string{""} }, `the name of a policies file is ""; write one such as policies.yaml`},
		{func(o *process.Options) { o.Admin = "[::]:8082" }, "--admin [::]:8082 can be reached from other machines, and anyone there could reset limits; give --admin-token-file or RATELIMIT_ADMIN_TOKEN, or write 127.0.0.1:8082"},
		{func(o *process.Options) { o.Admin = ":8082" }, "--admin :8082 can be reached from other machines, and anyone there could reset limits; give --admin-token-file or RATELIMIT_ADMIN_TOKEN, or write 127.0.0.1:8082"},
		{func(o *process.Options) { o.Admin = "127.0.0.1:8082"; o.AdminTokenFile = "/dev/null" }, "--admin-token-file /dev/null: the token has 0 characters, which can be guessed; give at least 16"},
	} {
		o := process.Options{Redis: "redis://h", GRPC: "127.0.0.1:8081", HTTP: "127.0.0.1:8080", Timeout: time.Second, Connections: 1024, IPv6Prefix: 64}
		tt.change(&o)
		if err := process.Check(o, io.Discard); err == nil || err.Error() != tt.want {
			t.Errorf("%v\nwant %s", err, tt.want)
		}
	}
}

// TestDangerousFlags checks what is valid and yet gets a warning, and what gets none.
func TestDangerousFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		change func(*process.Options)
		want   string
	}{
		{func(o *process.Options) { o.TrustedProxies = []string{"10.0.0.0/8", "::/0"} }, "--trusted-proxies ::/0: every client can choose the address that it is limited by; name only the networks of your proxies\n"},
		{func(o *process.Options) {
			o.TrustedProxies = []string{"10.0.0.0/8", "::1", "unix:"}
			o.Hosts = []string{"ratelimit.internal"}
		}, ""},
		{func(o *process.Options) { o.Admin = "127.0.0.1:8082" }, ""},
		{func(o *process.Options) { o.HTTP = ":http" }, ""},
		{func(o *process.Options) { o.Admin = "localhost:8082" }, ""},
		{func(o *process.Options) { o.Admin = "unix:/a" }, ""},
		{func(o *process.Options) { o.Admin = ":8082"; o.AdminToken = "0123456789abcdef" }, ""},
	} {
		o := checked()
		tt.change(&o)
		var out strings.Builder
		const only = "only flags were checked: neither --envoy-config nor --policies names files\n"
		if err := process.Check(o, &out); err != nil || out.String() != only+tt.want+"the configuration is valid\n" {
			t.Errorf("%v, %s\nwant %s", err, &out, tt.want)
		}
	}
}
