package embedded

import (
	"flag"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/conformance"
)

var record = flag.String("record-conformance", "", "note in the cases where the embedded server differs, with this `reason`, instead of failing")

const conformanceFile = "testdata/conformance.json"

// TestConformance compares this server's replies with replies recorded from real servers. The
// integration tests compare real servers with the same file.
func TestConformance(t *testing.T) {
	file, err := conformance.Load(conformanceFile)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := conformance.Dial(Run(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for i := range file.Cases {
		c := &file.Cases[i]
		t.Run(c.Name, func(t *testing.T) {
			got, err := c.Run(conn)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.AcceptsEmbedded(got):
			case *record != "":
				c.Record(conformance.Embedded, got, *record)
			default:
				t.Errorf("%s%q\n got %s\nwant %s", c.Lua, c.Calls, got, c.Expected(conformance.Embedded))
			}
		})
	}
	if *record != "" {
		if err := file.Save(conformanceFile); err != nil {
			t.Fatal(err)
		}
	}
}

// differencesFile documents the differences from Redis, with examples. The integration tests run
// the same examples on real servers.
const differencesFile = "../docs/offline.md"

func TestDifferencesAreAsThePageSays(t *testing.T) {
	sections, err := conformance.LoadPage(differencesFile)
	if err != nil {
		t.Fatal(err)
	}
	server := Run(t)
	server.engine.CallLimit = 2 * time.Minute // long enough even for a busy machine
	conn, err := conformance.Dial(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	listed := map[string]bool{}
	for _, section := range sections {
		listed[section.Name] = true
		for _, e := range section.Examples {
			got, err := e.Case().Run(conn)
			if err != nil {
				t.Fatal(err)
			}
			if !conformance.Same(got, e.Here) || conformance.SameExceptLuaErrors(got, e.Redis) {
				t.Errorf("%s: %s\n got %s\nwant %s, which differs from %s", section.Name, e.Lua, got, e.Here, e.Redis)
			}
		}
	}
	file, err := conformance.Load(conformanceFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		for _, d := range c.Differs {
			if len(d.On) == 1 && d.On[0] == conformance.Embedded && !listed[d.Why] {
				t.Errorf("%s differs here by %q, which is not a section of %s", c.Name, d.Why, differencesFile)
			}
		}
	}
}
