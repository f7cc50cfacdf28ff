package integration_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
// stopped. It starts the image with its own arguments, and as the service in the compose example of
// envoyproxy/ratelimit, which docs/swap.md repeats.
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
		t.Run("compose", func(t *testing.T) { swapped(t, image, b.Addrs()[0]) })
	}, inDocker, standalone, prepared(made))
}

// swapped runs an image with the command, the variables and the files of docs/swap.md, and asks three times
// for a rule of two requests a year.
func swapped(t *testing.T, image, redis string) {
	_, block, found := strings.Cut(string(must[[]byte](t)(os.ReadFile("../docs/swap.md"))), "    environment:\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatal("docs/swap.md has no environment")
	}
	folder := t.TempDir()
	require(t, os.Chmod(folder, 0o755)) // for the image's user
	require(t, os.WriteFile(filepath.Join(folder, "example.yaml"), []byte("domain: rl\ndescriptors: [{key: foo, rate_limit: {unit: year, requests_per_unit: 2}}]\n"), 0o644))
	args := []string{"run", "--detach", "--network", "host", "--volume", folder + ":/data/ratelimit/config:ro", "--env", "HOST=127.0.0.1", "--env", "PORT=0", "--env", "GRPC_HOST=127.0.0.1", "--env", "GRPC_PORT=0"}
	for line := range strings.Lines(block) {
		variable := strings.TrimPrefix(strings.TrimSpace(line), "- ")
		if strings.HasPrefix(variable, "REDIS_URL=") {
			variable = "REDIS_URL=" + redis
		}
		args = append(args, "--env", variable)
	}
	id := strings.TrimSpace(docker(t, 0, append(args, image, "/bin/ratelimit", "--timeout", "1m")...))
	defer docker(t, 0, "rm", "--force", id)
	log := ""
	redistest.Eventually(t, "the gateway is ready", func() bool {
		log = docker(t, 0, "logs", id)
		return strings.Contains(log, "msg=ready")
	})
	var got []byte
	for range 3 {
		got = append(got, shouldRateLimit(t, regexp.MustCompile(`msg=listening grpc=(\S+)`).FindStringSubmatch(log)[1], "rl", "foo", "bar"))
	}
	if string(got) != "\x01\x01\x02" {
		t.Errorf("the answers are %v, want OK, OK and OVER_LIMIT; the log:\n%s", got, docker(t, 0, "logs", id))
	}
}

// shouldRateLimit calls Envoy's rate limit service, and returns overall_code. The messages are written by
// hand, because this module has no gRPC.
func shouldRateLimit(t *testing.T, addr, domain, key, value string) (code byte) {
	t.Helper()
	field := func(number byte, text string) string { return string([]byte{number<<3 | 2, byte(len(text))}) + text }
	message := field(1, domain) + field(2, field(1, field(1, key)+field(2, value)))
	request := must[*http.Request](t)(http.NewRequestWithContext(testContext(t), http.MethodPost, "http://"+addr+"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		strings.NewReader("\x00\x00\x00\x00"+string([]byte{byte(len(message))})+message)))
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	response := must[*http.Response](t)(transport.RoundTrip(request))
	defer response.Body.Close()
	answer := must[[]byte](t)(io.ReadAll(response.Body))
	if len(answer) < 7 || answer[5] != 1<<3 {
		t.Fatalf("the answer is %q, with the trailer %v and the header %v", answer, response.Trailer, response.Header)
	}
	return answer[6]
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
