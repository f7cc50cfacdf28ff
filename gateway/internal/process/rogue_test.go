package process_test

import (
	"bytes"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
)

// impostor forwards calls of functions to a server, and answers all other commands with reply, except
// those that begin a connection.
func impostor(t *testing.T, to, reply string) (addr string) {
	t.Helper()
	port := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			from, err := port.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, from, server)
			mu.Unlock()
			all.Go(func() {
				pass(from, server, func(text []byte) {
					for _, forwarded := range []string{"hello", "client", "fcall", "fcall_ro"} {
						if bytes.Contains(bytes.ToLower(text), []byte("\r\n"+forwarded+"\r\n")) {
							return
						}
					}
					_, _ = from.Write([]byte(reply)) // before the true reply
				})
			})
			all.Go(func() { pass(server, from, func([]byte) {}) })
		}
	})
	t.Cleanup(func() {
		_ = port.Close()
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return port.Addr().String()
}

// TestReservationsFromARogueServer checks that the connections for reservations, which the limiter does
// not make, also refuse a reply of more than the bounds when it is announced.
func TestReservationsFromARogueServer(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"*1000000000\r\n", "$500000000\r\n", "%500000000\r\n"} {
		g := start(t, process.Options{Redis: "redis://" + impostor(t, server(t).Addr(), reply), Timeout: 10 * time.Second})
		g.ready(t)
		if code, body := g.get(t, "/check/api"); code != http.StatusOK {
			t.Errorf("%q: the limiter's connections: %d %s", reply, code, body)
		}
		const announces = "the server announces a reply of more than "
		for path, body := range map[string]string{"reserve": reserveBody, "commit": `{"reservation_id":"aAAAAAAAAAAAAAAAAAAAAAAAAAA","actual":1}`} {
			if code, text := g.send(t, "POST", "/v1/"+path, body); code != http.StatusServiceUnavailable || !strings.Contains(text, announces) {
				t.Errorf("%q, %s: %d %s", reply, path, code, text)
			}
		}
		g.says(t, `level=ERROR msg="reservations that have ended are not given back yet" error="`+announces)
	}
}
