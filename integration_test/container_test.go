package integration_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// image returns a function that builds a program's image on its first call. The image trusts the CA
// certificates in the file certificates, and is removed at the end of the test.
func image(t *testing.T, program, certificates string) func() (name string, err error) {
	t.Helper()
	name := "ratelimit-test/" + program + ":" + strconv.Itoa(os.Getpid())
	return sync.OnceValues(func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "../docker/container.sh", program, name)
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+certificates)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		t.Cleanup(func() { docker(t, 0, "image", "rm", "--force", name) })
		return name, nil
	})
}

// holdsNotices checks that an image contains the licences of a program's modules, and its bill of materials,
// and that the health of its containers is checked by running the words in healthcheck.
func holdsNotices(t *testing.T, image, program, healthcheck string) {
	t.Helper()
	dir := t.TempDir()
	id := strings.TrimSpace(docker(t, 0, "create", image))
	defer docker(t, 0, "rm", id)
	file := func(name string) []byte {
		docker(t, 0, "cp", id+":/"+name, dir)
		return must[[]byte](t)(os.ReadFile(filepath.Join(dir, name)))
	}
	var bill struct {
		Format     string `json:"bomFormat"`
		Components []struct{ Name, Version string }
	}
	require(t, json.Unmarshal(file(program+".cdx.json"), &bill))
	notices := string(file(program + "_NOTICES.txt"))
	names := ""
	for _, c := range bill.Components {
		names += c.Name + "\n"
		title := c.Name + " " + c.Version
		if c.Name == "std" {
			title = "The Go standard library, " + c.Version
		}
		if !strings.Contains(notices, title+": ") {
			t.Errorf("the image has no licence of %s", title)
		}
	}
	if bill.Format != "CycloneDX" || !strings.Contains(names, "github.com/redis/go-redis/v9\n") || !strings.Contains(notices, "Redistribution and use in source and binary forms") {
		t.Errorf("%s: the components are\n%s", bill.Format, names)
	}
	if got := docker(t, 0, "image", "inspect", "--format", "{{range .Config.Healthcheck.Test}}{{.}} {{end}}", image); strings.TrimSpace(got) != healthcheck {
		t.Errorf("HEALTHCHECK is %q, want %q", got, healthcheck)
	}
}

// docker runs the docker command, checks its exit code, and returns its output.
func docker(t *testing.T, wantCode int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), "docker", args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != wantCode {
		t.Fatalf("docker %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, wantCode, out)
	}
	return string(out)
}

// TestContainerOverTLS checks that the image trusts the certificates that it was built with, and
// that it does not run as root.
func TestContainerOverTLS(t *testing.T) {
	authority := httptest.NewTLSServer(nil)
	authority.Close() // only the authority's certificate is needed
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw})
	require(t, os.WriteFile(bundle, text, 0o600))
	made := image(t, "ratelimit", bundle)
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		image := must[string](t)(made())
		addr := serveTLS(t, authority.TLS.Certificates, b.Addrs()[0])
		got := docker(t, 0, "run", "--rm", "--network", "host", image, "deploy", "--redis", "rediss://"+addr)
		if !strings.Contains(got, "deployed ratelimit "+functions.Version()) {
			t.Errorf("deploy says:\n%s", got)
		}
		if user := docker(t, 0, "image", "inspect", "--format", "{{.Config.User}}", image); user != "65532:65532\n" {
			t.Errorf("the image's user is %q", user)
		}
		holdsNotices(t, image, "ratelimit", "NONE")
	}, inDocker, standalone, prepared(made))
}

// TestGatewayContainer checks that the gateway deploys the library and becomes ready in its
// container, that it does not run as root, and that it exits with code 0 when the container is
// stopped.
func TestGatewayContainer(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	require(t, os.WriteFile(bundle, []byte("none"), 0o600))
	made := image(t, "ratelimit-gateway", bundle)
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		image := must[string](t)(made())
		id := strings.TrimSpace(docker(t, 0, "run", "--detach", "--network", "host", "--env", "REDIS_URL=redis://"+b.Addrs()[0], image,
			"--deploy", "--timeout", "1m", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"))
		defer docker(t, 0, "rm", "--force", id)
		redistest.Eventually(t, "the gateway is ready", func() bool { return strings.Contains(docker(t, 0, "logs", id), "msg=ready") })
		holdsNotices(t, image, "ratelimit-gateway", "CMD /ratelimit-gateway --health")
		_, at, _ := strings.Cut(docker(t, 0, "logs", id), " http=") // not 8080, which HEALTHCHECK asks
		docker(t, 0, "exec", id, "/ratelimit-gateway", "--health", "--http", strings.Fields(at)[0])
		docker(t, 0, "stop", id)
		if code := docker(t, 0, "inspect", "--format", "{{.State.ExitCode}} {{.Config.User}}", id); code != "0 65532:65532\n" {
			t.Errorf("exit code and user: %s; the log:\n%s", code, docker(t, 0, "logs", id))
		}
	}, inDocker, standalone, prepared(made))
}

// serveTLS accepts TLS connections and forwards them to a server without TLS.
func serveTLS(t *testing.T, certificates []tls.Certificate, server string) (addr string) {
	t.Helper()
	listener := must[net.Listener](t)(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates}))
	var open sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		open.Wait()
	})
	open.Go(func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer caller.Close()
				behind, err := net.Dial("tcp", server)
				if err != nil {
					t.Error(err)
					return
				}
				open.Go(func() {
					_, _ = io.Copy(caller, behind)
				})
				_, _ = io.Copy(behind, caller)
				_ = behind.Close()
			})
		}
	})
	return listener.Addr().String()
}
