package process_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
)

func TestUnixSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	grpc, http := "unix:"+filepath.Join(dir, "grpc"), "unix:"+filepath.Join(dir, "http")
	options := process.Options{Dev: true, GRPC: grpc, HTTP: http, Policies: []string{write(t, "policies.yaml", policyFile)}}
	g := start(t, options)
	g.ready(t)
	if status, body := g.get(t, "/check/api/header:X,address"); status != 503 { // no header identifies the caller
		t.Errorf("without X-Forwarded-For: %d %s", status, body)
	}
	if got := forwarded(t, g, "203.0.113.7"); got != 200 {
		t.Errorf("with X-Forwarded-For: %d", got)
	}
	fails(t, process.Options{Dev: true, GRPC: grpc}, "--grpc "+grpc, "address already in use")
	if status, _ := g.get(t, "/healthz"); status != 200 {
		t.Errorf("after another gateway's attempt: %d", status)
	}
	require(t, g.stop())

	// A killed process leaves its socket behind, and a new process replaces it. Any other file is
	// kept.
	address := must[*net.UnixAddr](t)(net.ResolveUnixAddr("unix", filepath.Join(dir, "http")))
	left := must[*net.UnixListener](t)(net.ListenUnix("unix", address))
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	start(t, options).ready(t)
	file := write(t, "notes", "mine")
	fails(t, process.Options{Dev: true, HTTP: "unix:" + file}, "--http unix:"+file, "address already in use; choose another address")
	if text, err := os.ReadFile(file); string(text) != "mine" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// forwarded returns the status of a check for a client's address.
func forwarded(t *testing.T, g *gateway, address string) int {
	t.Helper()
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), "GET", "http://gateway/check/api", nil))
	request.Header.Set("X-Forwarded-For", address)
	response := must[*http.Response](t)(g.client(nil).Do(request))
	_ = response.Body.Close()
	return response.StatusCode
}

// TestSlowClients checks that slow clients, and clients that stop in the middle of a request, are
// cut off in time, and that other clients are served meanwhile.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	g := start(t, process.Options{Dev: true, Policies: []string{write(t, "policies.yaml", policyFile)}})
	g.ready(t)
	var wait sync.WaitGroup
	for _, begun := range []struct {
		addr net.Addr
		text string
	}{
		{g.http, ""},
		{g.http, "GET /check/api HTTP/1.1\r\nHost: x\r\nX: "},
		{g.http, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"},
		{g.grpc, ""},
		{g.grpc, "PRI * HTTP/2.0\r\n"},
	} {
		conn := must[net.Conn](t)(net.Dial(begun.addr.Network(), begun.addr.String()))
		t.Cleanup(func() { _ = conn.Close() })
		must[int](t)(fmt.Fprint(conn, begun.text))
		wait.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // reads until the gateway ends the connection
	}
	if status, body := g.get(t, "/check/api"); status != http.StatusOK {
		t.Errorf("/check: %d %s", status, body)
	}
	wait.Wait()
}

// TestNoRedirects checks that no path is redirected: a proxy needs a decision or an error.
func TestNoRedirects(t *testing.T) {
	g := start(t, process.Options{Redis: "redis://" + server(t).Addr()})
	for path, want := range map[string]int{
		"//check/api/address": 404, "/./check/api": 404, "/check/../x": 400, "/check/./api": 400, "/check/api/../x": 400, "/x/../check/api": 404,
		"/check": 404, "/deny403/check": 404, "/deny403//check/api": 404, "/v1": 404, "/v1//take": 404, "/v1/../check/api": 404, "/healthz/": 404, "/": 404,
		"/check//api": 400, "/check/api//address": 200, "/%63heck/api": 400,
	} {
		conn := must[net.Conn](t)(net.Dial("tcp", g.http.String()))
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"); err != nil { // written by hand, because package http would clean the path
			t.Fatal(err)
		}
		answer := must[[]byte](t)(io.ReadAll(conn))
		if !strings.HasPrefix(string(answer), fmt.Sprintf("HTTP/1.1 %d ", want)) {
			t.Errorf("%s: %s, want %d", path, answer, want)
		}
		_ = conn.Close()
	}
}
