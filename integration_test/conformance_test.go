package integration_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/conformance"
)

var recordIn = flag.String("record-conformance", "", "record what the servers answer in this `file`, instead of checking it")

const conformanceFile = "../embedded/testdata/conformance.json"

// TestConformance checks that real servers reply as recorded in conformanceFile. Another test
// compares the embedded server with the same file, offline.
func TestConformance(t *testing.T) {
	file := must[*conformance.File](t)(conformance.Load(conformanceFile))
	if *recordIn != "" {
		record(t, file)
		return
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		conn := dial(t, b)
		server := serverName(b)
		skipped := map[string][]string{} // names of the cases that would crash the server, by reason
		for i := range file.Cases {
			c := &file.Cases[i]
			if why := c.Fatal(server, recorded(server)); why != "" {
				skipped[why] = append(skipped[why], c.Name)
				continue
			}
			broken := false
			t.Run(c.Name, func(t *testing.T) {
				got, err := c.Run(conn)
				if err != nil {
					broken = true
					t.Fatalf("%s%v\n%v", c.Lua, c.Calls, err)
				}
				if !c.Accepts(server, got, recorded(server)) {
					t.Errorf("%s%v\n got %s\nwant %s", c.Lua, c.Calls, got, c.Expected(server))
				}
			})
			if broken { // the next case needs a running server
				ctx := testContext(t)
				waitFor(ctx, t, "the server after "+c.Name, func() error { return b.Restore(ctx) })
				conn = dial(t, b)
			}
		}
		for why, cases := range skipped {
			exclude(b, fmt.Sprintf("conformance cases %s: %s", strings.Join(cases, ", "), why))
		}
	}, standalone)
}

// TestDifferencesAreAsThePageSays checks that real servers reply as docs/offline.md describes.
func TestDifferencesAreAsThePageSays(t *testing.T) {
	sections := must[[]conformance.Section](t)(conformance.LoadPage("../docs/offline.md"))
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		conn := dial(t, b)
		for _, section := range sections {
			for _, e := range section.Examples {
				got := must[string](t)(e.Case().Run(conn))
				if !conformance.SameExceptLuaErrors(got, e.Redis) {
					t.Errorf("%s: %s\n got %s\nwant %s", section.Name, e.Lua, got, e.Redis)
				}
			}
		}
	}, standalone)
}

// record records the replies of the standalone servers in this run that conformanceFile covers.
// Redis 7.0 comes first. For other servers, record keeps only the replies that differ from those of
// 7.0.
func record(t *testing.T, file *conformance.File) {
	for _, b := range backends(t) {
		if b.Cluster || !recorded(serverName(b)) {
			continue
		}
		restore(t, b)
		conn := dial(t, b)
		for i := range file.Cases {
			c := &file.Cases[i]
			got, err := c.Run(conn)
			why := "another version"
			if err != nil {
				got, why = "null", fmt.Sprintf("%s %s crashes", b.Product, b.Version)
				t.Logf("%s: %s %s: %v", c.Name, b.Product, b.Version, err)
				ctx := testContext(t)
				waitFor(ctx, t, "the server to start again", func() error { return b.Nodes[0].Restart(ctx) })
				conn = dial(t, b)
			}
			c.Record(serverName(b), got, why)
		}
	}
	require(t, file.Save(*recordIn))
}

func dial(t *testing.T, b *backend.Backend) *conformance.Conn {
	t.Helper()
	conn := must[*conformance.Conn](t)(conformance.Dial(b.Nodes[0].Addr))
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// serverName returns the product and version in the format of conformanceFile: "redis7.0".
func serverName(b *backend.Backend) string {
	parts := strings.SplitN(b.Version, ".", 3)
	return b.Product + strings.Join(parts[:min(2, len(parts))], ".")
}

// recorded reports whether conformanceFile has separate replies for this server.
func recorded(server string) bool {
	switch server {
	case conformance.Reference, "redis8.0", "valkey8.1":
		return true
	}
	return false
}
