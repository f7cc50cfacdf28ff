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

// What the embedded server is held against offline is what real servers answer.
func TestConformance(t *testing.T) {
	file, err := conformance.Load(conformanceFile)
	if err != nil {
		t.Fatal(err)
	}
	if *recordIn != "" {
		record(t, file)
		return
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		conn := dial(t, b)
		server := serverName(b)
		spared := map[string][]string{} // by reason: cases that would end the server
		for i := range file.Cases {
			c := &file.Cases[i]
			if why := c.Fatal(server, recorded(server)); why != "" {
				spared[why] = append(spared[why], c.Name)
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
			if broken { // the case after it has a server again
				ctx := testContext(t)
				waitFor(ctx, t, "the server after "+c.Name, func() error { return b.Restore(ctx) })
				conn = dial(t, b)
			}
		}
		for why, cases := range spared {
			exclude(b, fmt.Sprintf("conformance cases %s: %s", strings.Join(cases, ", "), why))
		}
	}, standalone)
}

// What the page on the embedded server says of Redis is so.
func TestDifferencesAreAsThePageSays(t *testing.T) {
	sections, err := conformance.LoadPage("../docs/offline.md")
	if err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		conn := dial(t, b)
		for _, section := range sections {
			for _, e := range section.Examples {
				got, err := e.Case().Run(conn)
				if err != nil {
					t.Fatal(err)
				}
				if !conformance.SameButForWords(got, e.Redis) {
					t.Errorf("%s: %s\n got %s\nwant %s", section.Name, e.Lua, got, e.Redis)
				}
			}
		}
	}, standalone)
}

// record writes down what every server of this run answers, Redis 7.0 first, since the others are noted where they
// differ from it.
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
				got, why = "null", fmt.Sprintf("%s %s ends with a fault", b.Product, b.Version)
				t.Logf("%s: %s %s: %v", c.Name, b.Product, b.Version, err)
				ctx := testContext(t)
				waitFor(ctx, t, "the server to start again", func() error { return b.Nodes[0].Restart(ctx) })
				conn = dial(t, b)
			}
			c.Record(serverName(b), got, why)
		}
	}
	if err := file.Save(*recordIn); err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, b *backend.Backend) *conformance.Conn {
	t.Helper()
	conn, err := conformance.Dial(b.Nodes[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// serverName returns product and version as the file of cases has them: "redis7.0".
func serverName(b *backend.Backend) string {
	parts := strings.SplitN(b.Version, ".", 3)
	return b.Product + strings.Join(parts[:min(2, len(parts))], ".")
}

// recorded tells whether the file of cases has this server's own replies.
func recorded(server string) bool {
	switch server {
	case conformance.Reference, "redis8.0", "valkey8.1":
		return true
	}
	return false
}
