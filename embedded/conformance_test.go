package embedded

import (
	"flag"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/conformance"
)

var record = flag.String("record-conformance", "", "note in the cases where the embedded server differs, with this `reason`, instead of failing")

const conformanceFile = "testdata/conformance.json"

// The replies were recorded from real servers; the integration tests hold real
// servers against the same file.
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
			case c.Accepts("embedded", got, true):
			case *record != "":
				c.Record("embedded", got, *record)
			default:
				t.Errorf("%s%q\n got %s\nwant %s", c.Lua, c.Calls, got, c.Expected("embedded"))
			}
		})
	}
	if *record != "" {
		if err := file.Save(conformanceFile); err != nil {
			t.Fatal(err)
		}
	}
}
