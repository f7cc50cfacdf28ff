package process_test

import (
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
)

func TestWrongUse(t *testing.T) {
	t.Parallel()
	policies := write(t, "policies.yaml", policyFile)
	for _, tt := range []struct {
		options process.Options
		want    string
	}{
		{process.Options{Redis: "http://x"}, "--redis: the URL "},
		{process.Options{Redis: "redis://user:secret@h:x"}, "--redis: the URL "},
		{process.Options{Dev: true, Timeout: -1}, "--timeout -1ns is not above 0; give one such as 15ms"},
		{process.Options{Policies: []string{policies}}, "--policies " + policies + " is for --deploy and --dev; add one of them, or leave it out"},
		{process.Options{Dev: true, Policies: []string{"none.yaml"}}, "none.yaml"},
		{process.Options{Dev: true, Policies: []string{policies, write(t, "second.yaml", policyFile)}}, "second.yaml:"},
		{process.Options{Dev: true, Batches: "100"}, `--batches "100" is not of the form n,ttl; write 2 units or more and a time of 1ms or more, as in 100,100ms`},
		{process.Options{Dev: true, Batches: "x,1s"}, `--batches "x,1s" is not`},
		{process.Options{Dev: true, Batches: "10,1"}, `--batches "10,1" is not`},
		{process.Options{Dev: true, Batches: "1,1s"}, `--batches "1,1s" is not`},
		{process.Options{Dev: true, Batches: "2,1us"}, `--batches "2,1us" is not`},
		{process.Options{Dev: true, TrustedProxies: []string{"10.0.0"}}, `--trusted-proxies: `},
		{process.Options{Dev: true, EnvoyConfig: "/none"}, "/none"},
		{process.Options{Dev: true, GRPC: "nowhere"}, "--grpc nowhere: "},
		{process.Options{Dev: true, HTTP: "127.0.0.1:99999"}, "--http 127.0.0.1:99999: "},
		{process.Options{Dev: true, HTTP: "unix:"}, `--http "unix:" names no port; write an address such as 127.0.0.1:8080, or unix:/path`},
		{process.Options{Dev: true, HTTP: "unix:/none/socket"}, "--http unix:/none/socket: "},
	} {
		fails(t, tt.options, tt.want)
	}
	t.Run("secret", func(t *testing.T) {
		err := process.Run(t.Context(), process.Options{Redis: "redis://user:secret@h:x", Timeout: 1}, nil)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	})
}
