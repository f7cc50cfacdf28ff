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
	file := must[*conformance.File](t)(conformance.Load(conformanceFile))
	server := Run(t)
	server.engine.LoadLimit = time.Second // one case exceeds it
	conn := must[*conformance.Conn](t)(conformance.Dial(server.Addr()))
	t.Cleanup(func() { conn.Close() })
	for i := range file.Cases {
		c := &file.Cases[i]
		t.Run(c.Name, func(t *testing.T) {
			got := must[string](t)(c.Run(conn))
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
		require(t, file.Save(conformanceFile))
	}
}

// differencesFile documents the differences from Redis, with examples. The integration tests run
// the same examples on real servers.
const differencesFile = "../docs/offline.md"

func TestDifferencesAreAsThePageSays(t *testing.T) {
	sections := must[[]conformance.Section](t)(conformance.LoadPage(differencesFile))
	server := Run(t)
	server.engine.CallLimit = 2 * time.Minute // long enough even for a busy machine
	conn := must[*conformance.Conn](t)(conformance.Dial(server.Addr()))
	t.Cleanup(func() { conn.Close() })
	listed := map[string]bool{}
	for _, section := range sections {
		listed[section.Name] = true
		for _, e := range section.Examples {
			got := must[string](t)(e.Case().Run(conn))
			if !conformance.Same(got, e.Here) || conformance.SameExceptLuaErrors(got, e.Redis) {
				t.Errorf("%s: %s\n got %s\nwant %s, which differs from %s", section.Name, e.Lua, got, e.Here, e.Redis)
			}
		}
	}
	file := must[*conformance.File](t)(conformance.Load(conformanceFile))
	for _, c := range file.Cases {
		for _, d := range c.Differs {
			if len(d.On) == 1 && d.On[0] == conformance.Embedded && !listed[d.Why] {
				t.Errorf("%s differs here by %q, which is not a section of %s", c.Name, d.Why, differencesFile)
			}
		}
	}
}
