package api

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
)

// TestAccess checks who may call what: the operations for operators need the admin port and its
// token, and other operations are not served there. Requests with the name of an unknown host are
// refused on both ports, because a page may have given that name the address of this machine.
func TestAccess(t *testing.T) {
	limiter := newLimiter(t)
	const (
		take     = `{"keys":["a"],"limits":["9/m"]}`
		reset    = `{"keys":["a"]}`
		rebound  = "attacker.example:8080"
		onlyPort = "/v1/reset is served on the admin port only; start the gateway with --admin 127.0.0.1:8082, and call it there"
		asks     = "the request lacks the token of --admin; send it as Authorization: Bearer TOKEN"
		unknown  = `"attacker.example:8080" is not a known name of the gateway; call it by its address, or start it with --hosts and the name`
	)
	data := Options{Hosts: []string{"gateway.internal"}}
	admin := Options{Hosts: []string{"gateway.internal"}, Admin: true}
	secret, socket := admin, Options{AnyHost: true}
	secret.Token = "secret"
	for _, tt := range []struct {
		options                  Options
		method, name, body, host string
		authorization            string
		status                   int
		detail                   string
	}{
		{data, "POST", "take", take, "127.0.0.1:8080", "", 200, ""},
		{data, "POST", "take", take, "[::1]:8080", "", 200, ""},
		{data, "POST", "take", take, "[2001:db8::1]", "", 200, ""},
		{data, "POST", "take", take, "LocalHost", "", 200, ""},
		{data, "POST", "take", take, "Gateway.Internal:80", "", 200, ""},
		{data, "POST", "take", take, "gateway.internal.", "", 200, ""},
		{data, "POST", "take", take, rebound, "", 403, unknown},
		{data, "POST", "take", take, "localhost.attacker.example", "", 403, "is not a known name"},
		{data, "POST", "take", take, "127.0.0.1.attacker.example", "", 403, "is not a known name"},
		{data, "POST", "take", take, "", "", 403, `"" is not a known name`},
		{data, "GET", "info", "", rebound, "", 200, ""},
		{data, "POST", "info", "", rebound, "", 403, unknown},
		{data, "POST", "reset", reset, "127.0.0.1:8080", "", 403, onlyPort},
		{data, "POST", "reset", reset, "127.0.0.1:8080", "Bearer secret", 403, onlyPort},
		{data, "POST", "block", reset, "127.0.0.1:8080", "", 403, "admin port only"},
		{data, "POST", "unblock", reset, "127.0.0.1:8080", "", 403, "admin port only"},
		{data, "POST", "override", reset, "127.0.0.1:8080", "", 403, "admin port only"},
		{data, "POST", "override_end", reset, "127.0.0.1:8080", "", 403, "admin port only"},
		{socket, "POST", "take", take, rebound, "", 200, ""},
		{socket, "POST", "reset", reset, "localhost", "", 403, onlyPort},

		{admin, "POST", "reset", reset, "127.0.0.1:8082", "", 200, ""},
		{admin, "POST", "reset", reset, "gateway.internal", "", 200, ""},
		{admin, "POST", "reset", reset, rebound, "", 403, unknown},
		{admin, "GET", "reset", "", "127.0.0.1:8082", "", 405, ""},
		{admin, "POST", "take", take, "127.0.0.1:8082", "", 404, "/v1/take is served on the port of --http, and not on the admin port"},
		{secret, "POST", "reset", reset, "127.0.0.1:8082", "", 401, asks},
		{secret, "POST", "reset", reset, "127.0.0.1:8082", "Bearer wrong", 401, asks},
		{secret, "POST", "reset", reset, "127.0.0.1:8082", "Basic secret", 401, asks},
		{secret, "GET", "openapi.yaml", "", "127.0.0.1:8082", "", 401, asks},
		{secret, "POST", "reset", reset, "127.0.0.1:8082", "Bearer secret", 200, ""},
		{secret, "POST", "reset", reset, "127.0.0.1:8082", "bearer  secret", 200, ""},
		{secret, "POST", "reset", reset, rebound, "Bearer secret", 403, unknown},
	} {
		tt.options.Limiter, tt.options.Metrics, tt.options.Log = limiter, metrics.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)
		r := httptest.NewRequest(tt.method, Prefix+tt.name, strings.NewReader(tt.body))
		r.Host = tt.host
		if tt.authorization != "" {
			r.Header.Set("Authorization", tt.authorization)
		}
		answer := httptest.NewRecorder()
		New(tt.options).ServeHTTP(answer, r)
		var got struct{ Detail string }
		if answer.Code != http.StatusOK {
			if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
				t.Error(err)
			}
		}
		if answer.Code != tt.status || !strings.Contains(got.Detail, tt.detail) || (answer.Header().Get("WWW-Authenticate") == "Bearer") != (tt.status == 401) {
			t.Errorf("%s %s at %s with %q:\n%d %s, want\n%d %s", tt.method, tt.name, tt.host, tt.authorization, answer.Code, answer.Body, tt.status, tt.detail)
		}
	}
}
