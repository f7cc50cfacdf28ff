package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestSwappedImage starts the command with the variables of a deployment of envoyproxy/ratelimit, on a
// server without the library.
func TestSwappedImage(t *testing.T) {
	root := t.TempDir()
	require(t, os.MkdirAll(filepath.Join(root, "ratelimit", "config"), 0o700))
	require(t, os.WriteFile(filepath.Join(root, "ratelimit", "config", "web.yaml"), []byte("domain: web\n"), 0o600))
	for name, value := range map[string]string{
		"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": embedded.Run(t).Addr(), "RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "USE_STATSD": "false", "USE_STATSDD": "false", "LOG_LEVEL": "info",
	} {
		t.Setenv(name, value)
	}
	var log redistest.Output
	addr, _ := startGatewayLogging(t, &log, "/bin/ratelimit", "--log", "info")
	redistest.Eventually(t, "it is ready", func() bool {
		response, err := http.Get("http://" + addr + "/healthcheck")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	for _, want := range []string{
		`msg="a variable of envoyproxy/ratelimit has no effect" variable=USE_STATSD `,
		`msg="a variable has no effect" variable=USE_STATSDD because="nobody reads this name; was USE_STATSD meant?"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in\n%s", want, &log)
		}
	}

	for args, want := range map[string]string{
		"--envoy-config other":        "--envoy-config other and RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, which say " + root + "/ratelimit/config, contradict each other; keep one",
		"--redis redis://:secret@h:1": "--redis and REDIS_URL, REDIS_SOCKET_TYPE contradict each other; keep one",
		"--log debug":                 "--log debug and LOG_LEVEL, which say info, contradict each other",
	} {
		cmd := command()
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want %s", args, err, want)
		}
	}
	t.Setenv("SHADOW_MODE", "true")
	cmd := command()
	cmd.SetArgs(nil)
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "SHADOW_MODE=true: write shadow_mode: true into the descriptors") {
		t.Error(err)
	}
}
