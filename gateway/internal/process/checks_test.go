package process_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xds"
)

// checked returns options that are valid.
func checked() process.Options {
	return process.Options{Redis: "redis://nobody:1", GRPC: ":8081", HTTP: ":8080", Timeout: time.Second, IPv6Prefix: 64, Connections: 1}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "web.yaml"), "domain: web\ndescriptors:\n  - {key: a, rate_limit: {limit: \"@api\"}}\n  - {key: b, rate_limit: {unit: day}}\n")
	o := checked()
	o.EnvoyConfig, o.Policies = dir, []string{write(t, "policies.yaml", policyFile)}
	var out strings.Builder
	require(t, process.Check(o, &out))
	want := "--envoy-config: 2 rules\n" + file + ":4: rate_limit has no requests_per_unit, which counts as 0: every request is denied\n" +
		"these rules need policies on the servers, which were not asked: [@api]\n--policies: 1 policies, build "
	if got := out.String(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\nthe configuration is valid\n") {
		t.Errorf("%s\nwant %s", got, want)
	}

	write(t, file, "domain: web\ndescriptors:\n  - {key: a, rate_limit: {limit: 10/sx}}\n  - {key: b, limits: 1}\n")
	other := write(t, filepath.Join(dir, "x.yaml"), "domain: [\n")
	o.Policies = []string{write(t, "policies.yaml", "policies:\n  a: 1/x\n  b: 2/x\n")}
	o.GRPC, o.TLS.Key = "8081", "key.pem"
	out.Reset()
	err := process.Check(o, &out)
	if err == nil || out.String() != "" {
		t.Fatalf("%v, %s", err, &out)
	}
	for _, want := range []string{
		file + ":3:34: limit: ", file + ":4:14: unknown field", other + ":", o.Policies[0] + ":2:6: policy a: ", o.Policies[0] + ":3:6: policy b: ",
		"--tls-cert and --tls-key belong together", "--grpc \"8081\" names no port",
	} {
		if !strings.Contains("\n"+err.Error(), "\n"+want) {
			t.Errorf("no line begins with %s in\n%v", want, err)
		}
	}

	for want, change := range map[string]func(*process.Options){
		"--redis: ":              func(o *process.Options) { o.Redis = "mailto:x" },
		"--trusted-proxies: ":    func(o *process.Options) { o.TrustedProxies = []string{"x"} },
		"--timeout 0s ":          func(o *process.Options) { o.Timeout = 0 },
		"--batches \"x\" ":       func(o *process.Options) { o.Batches = "x" },
		"--xds \"control\" ":     func(o *process.Options) { o.XDS = xds.Options{Server: "control", Node: "me"} },
		"--envoy-config and ":    func(o *process.Options) { o.EnvoyConfig, o.XDS.Server = dir, "control:1" },
		"--admin-token-file is ": func(o *process.Options) { o.AdminTokenFile = write(t, "token", "0123456789abcdef") },
		"--tls-grpc-only is ":    func(o *process.Options) { o.TLS.GRPCOnly = true },
	} {
		o := checked()
		change(&o)
		if err := process.Check(o, &out); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// TestWhatRuns checks that the log says which build and policies the servers run, and warns if they are
// not those of --policies.
func TestWhatRuns(t *testing.T) {
	t.Parallel()
	srv := server(t)
	same, other := write(t, "policies.yaml", policyFile), write(t, "policies.yaml", policyFile+"  more:\n    limit: 1/m\n")
	for _, tt := range []struct {
		policies []string
		warns    bool
	}{{nil, false}, {[]string{same}, false}, {[]string{other}, true}} {
		g := start(t, process.Options{Redis: "redis://" + srv.Addr(), Deploy: true, Policies: tt.policies})
		g.says(t, "msg=ready library=")
		if !strings.Contains(g.log.String(), " policies=api\n") {
			t.Errorf("the log does not name the policies:\n%s", g.log)
		}
		if got := strings.Contains(g.log.String(), "the servers do not run --policies, and the gateway does not replace them; deploy them with: ratelimit deploy --policies "); got != tt.warns {
			t.Errorf("%v: warned %v:\n%s", tt.policies, got, g.log)
		}
	}
	empty := embedded.Run(t)
	g := start(t, process.Options{Redis: "redis://" + empty.Addr(), Deploy: true, Policies: []string{other}})
	g.says(t, " policies=api,more\n")
}

// TestNothingLimits checks that the log warns of a gateway that has neither rules nor policies.
func TestNothingLimits(t *testing.T) {
	t.Parallel()
	without, with := embedded.Run(t, embedded.WithLibrary(library(t))), server(t)
	none, one := t.TempDir(), t.TempDir()
	write(t, filepath.Join(none, "web.yaml"), "domain: web\n")
	write(t, filepath.Join(one, "web.yaml"), "domain: web\ndescriptors: [{key: a, rate_limit: {limit: 1/s}}]\n")
	for _, tt := range []struct {
		redis, files string
		warns        bool
	}{{without.Addr(), "", true}, {without.Addr(), none, true}, {without.Addr(), one, false}, {with.Addr(), "", false}} {
		g := start(t, process.Options{Redis: "redis://" + tt.redis, EnvoyConfig: tt.files})
		g.says(t, "msg=ready library=")
		if got := strings.Contains(g.log.String(), `level=WARN msg="there are no rules and no policies, so only a request with a limit of its own is limited; give --envoy-config or --xds, or deploy policies with: `); got != tt.warns {
			t.Errorf("%+v: warned %v:\n%s", tt, got, g.log)
		}
	}
}

// TestReadyWithAShortTimeout checks that readiness does not depend on whether the servers answer within
// --timeout: on a busy machine, the first connections take longer.
func TestReadyWithAShortTimeout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), "domain: web\ndescriptors: [{key: a, rate_limit: {limit: \"@api\"}}]\n")
	g := start(t, process.Options{Redis: "redis://" + server(t).Addr(), EnvoyConfig: dir, Timeout: time.Nanosecond})
	g.says(t, "msg=ready library=")
	require(t, g.stop())
	for _, wrong := range []string{"not ready", "was not checked"} {
		if strings.Contains(g.log.String(), wrong) {
			t.Errorf("the log has %q:\n%s", wrong, g.log)
		}
	}
}
