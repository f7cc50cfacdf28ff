package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestRecordAndAccept(t *testing.T) {
	c := Case{Name: "a"}
	for _, r := range []struct{ server, replies string }{
		{Reference, `[1]`},
		{"redis8.0", `["one"]`},
		{"valkey8.1", `[2]`},
		{"redis8.0", `[2]`}, // redis8.0 is recorded again, and now agrees with Valkey
		{"valkey8.1", `[1]`},
		{"embedded", `null`},
	} {
		c.Record(r.server, r.replies, "because")
	}
	want := `{"name":"a","replies":[1],"differs":[{"on":["redis8.0"],"why":"because","replies":[2]},{"on":["embedded"],"why":"because","replies":null}]}`
	if got := toJSON(c); got != want {
		t.Errorf("recorded %s\nwant     %s", got, want)
	}
	for _, row := range []struct {
		server, replies string
		recorded, want  bool
	}{
		{Reference, `[1]`, true, true},
		{Reference, `[2]`, true, false},
		{"redis8.0", ` [ 2 ]`, true, true},
		{"redis8.0", `[1]`, true, false},
		{"valkey8.1", `[1]`, true, true},
		{"valkey8.1", `[2]`, true, false},
		{"redis9.9", `[1]`, false, true},
		{"redis9.9", `[2]`, false, true},
		{"redis9.9", `[3]`, false, false},
	} {
		if got := c.Accepts(row.server, row.replies, row.recorded); got != row.want {
			t.Errorf("Accepts(%q, %s, recorded %v) is %v", row.server, row.replies, row.recorded, got)
		}
	}
	for server, want := range map[string]string{"embedded": "because", "redis8.0": ""} {
		if got := c.Fatal(server, true); got != want {
			t.Errorf("Fatal(%q) is %q", server, got)
		}
	}
	if c.Fatal("redis9.9", false) == "" {
		t.Error("a case that crashes a recorded server runs on a server that is not recorded")
	}
}

func TestSame(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{`[{"error":"x"}]`, `[ {"error": "x"} ]`, true},
		{`9007199254740993`, `9007199254740992`, false}, // equal when converted to float64
		{`1`, `1.0`, false},
		{`"<"`, `"\u003c"`, true},
		{`[1]`, ``, false},
	} {
		if got := Same(row.a, row.b); got != row.want {
			t.Errorf("Same(%s, %s) is %v", row.a, row.b, got)
		}
	}
}

func TestLoadRefusesWhatWouldHideACase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cases.json")
	for text, want := range map[string]string{
		`{"cases":[]}`:                          "no cases",
		`{"cases":[{"name":"a"},{"name":"a"}]}`: "two cases are named a",
		`{"cases":[{"name":"a","replys":[1]}]}`: "unknown field",
		`{"cases":[{"name":"a","differs":[{"on":["redis8.0"],"why":"","replies":[1]}]}]}`: "needs both on and why",
	} {
		redistest.Require(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestSaveIsReadBackAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cases.json")
	f := &File{About: []string{"x"}, Cases: []Case{
		{Name: "a", Lua: "return 1 < 2", Replies: json.RawMessage(`[1]`)},
		{Name: "b", Calls: [][]string{{"PING"}}, Replies: json.RawMessage(`[{"status":"PONG"}]`)},
	}}
	redistest.Require(t, f.Save(path))
	got := redistest.Must[*File](t)(Load(path))
	if toJSON(got) != toJSON(f) {
		t.Errorf("read back %s, want %s", toJSON(got), toJSON(f))
	}
}
