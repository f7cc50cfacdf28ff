// Package conformance holds a server, embedded or real, against recorded replies of real ones.
//
// embedded/testdata/conformance.json lists cases: the body of a Lua function, or plain calls, and the replies that
// Redis 7.0 gave, with what other servers answer where they differ.
package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// File is the recorded cases.
type File struct {
	About []string `json:"about"`
	Cases []Case   `json:"cases"`
}

// Case is calls on an empty server, and what they answer.
type Case struct {
	Name    string          `json:"name"`
	Lua     string          `json:"lua,omitempty"`     // the body of a function f(KEYS, ARGV), loaded first
	Flags   []string        `json:"flags,omitempty"`   // of that function
	Command string          `json:"command,omitempty"` // that calls it; "" is FCALL
	Keys    []string        `json:"keys,omitempty"`
	Args    []string        `json:"args,omitempty"`
	Calls   [][]string      `json:"calls,omitempty"`   // instead of a function: the calls themselves
	Replies json.RawMessage `json:"replies,omitempty"` // of Redis 7.0, in the form of Conn.Do
	Differs []Difference    `json:"differs,omitempty"`
}

// Difference is what other servers than Redis 7.0 answer.
type Difference struct {
	On      []string        `json:"on"` // servers, as "redis8.0", "valkey8.1", "embedded"
	Why     string          `json:"why"`
	Replies json.RawMessage `json:"replies"` // null: the case ends the server, and is not run on it
}

func (d Difference) fatal() bool { return string(d.Replies) == "null" }

// Embedded is how cases name the embedded server. Where it alone differs, why is the name of a section of docs/offline.md.
const Embedded = "embedded"

// Reference is the server whose replies a case records first.
const Reference = "redis7.0"

// Load reads and checks a file of cases.
func Load(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	f := &File{}
	if err := decoder.Decode(f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(f.Cases) == 0 {
		return nil, fmt.Errorf("%s holds no cases", path)
	}
	names := map[string]bool{}
	for _, c := range f.Cases {
		if names[c.Name] {
			return nil, fmt.Errorf("%s: two cases are called %s", path, c.Name)
		}
		names[c.Name] = true
		for _, d := range c.Differs {
			if d.Why == "" || len(d.On) == 0 {
				return nil, fmt.Errorf("%s: %s differs on %v for the reason %q; both must be given", path, c.Name, d.On, d.Why)
			}
		}
	}
	return f, nil
}

// Save writes the file with one case a line, so that a change can be read.
func (f *File) Save(path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "{\"about\": %s,\n\"cases\": [\n", toJSON(f.About))
	for i, c := range f.Cases {
		b.WriteString(toJSON(c))
		if i < len(f.Cases)-1 {
			b.WriteString(",")
		}
		b.WriteString("\n")
	}
	b.WriteString("]}\n")
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// Fatal returns why the case is not to be run on the named server, because it ends it; "" where it does not. A server that
// is not recorded is spared whatever has ended another.
func (c *Case) Fatal(server string, recorded bool) string {
	for _, d := range c.Differs {
		if d.fatal() && (!recorded || slices.Contains(d.On, server)) {
			return d.Why
		}
	}
	return ""
}

// Accepts tells whether the replies, as Run returns them, are right for the named server. One that is not recorded,
// such as a later version, must answer as one of the recorded servers does.
func (c *Case) Accepts(server, replies string, recorded bool) bool {
	if recorded {
		return Same(replies, string(c.Expected(server)))
	}
	return Same(replies, string(c.Replies)) ||
		slices.ContainsFunc(c.Differs, func(d Difference) bool { return Same(replies, string(d.Replies)) })
}

// AcceptsEmbedded is Accepts for the embedded server, which is held to what it returns and not to how it words what goes
// wrong in Lua: where a Lua error is recorded, another one will do, with the same code.
func (c *Case) AcceptsEmbedded(replies string) bool {
	return SameButForWords(replies, string(c.Expected(Embedded)))
}

// SameButForWords is Same, but that one Lua error is as good as another.
func SameButForWords(got, want string) bool {
	x, errX := fromJSON(got)
	y, errY := fromJSON(want)
	return errX == nil && errY == nil && sameButForWords(x, y)
}

func sameButForWords(got, want any) bool {
	switch want := want.(type) {
	case []any:
		list, ok := got.([]any)
		return ok && slices.EqualFunc(list, want, sameButForWords)
	case map[string]any:
		for _, kind := range []string{"error", "load"} {
			text, ok := want[kind].(string)
			if !ok {
				continue
			}
			m, _ := got.(map[string]any)
			other, ok := m[kind].(string)
			return ok && sameError(other, text)
		}
	}
	return toJSON(got) == toJSON(want)
}

// luaError is how errors begin, or where they were raised, that are Lua's.
var luaError = regexp.MustCompile(`^ERR Error (compiling function|registering functions): |^ERR user_function:|^ERR attempt to `)

func sameError(got, want string) bool {
	text, _, _ := strings.Cut(got, " script: ")
	wanted, _, _ := strings.Cut(want, " script: ")
	if luaError.MatchString(wanted) {
		return strings.HasPrefix(text, "ERR ")
	}
	return text == wanted
}

// Expected returns the replies recorded for the server: its own, or those of Redis 7.0 where it does not differ.
func (c *Case) Expected(server string) json.RawMessage {
	for _, d := range c.Differs {
		if slices.Contains(d.On, server) {
			return d.Replies
		}
	}
	return c.Replies
}

// Record notes what the server answers, with the reason why that is not what Redis 7.0 answers, if it is not. "null" for
// the replies says that the case ended the server. A reason that stands there already is kept.
func (c *Case) Record(server, replies, why string) {
	if server == Reference {
		c.Replies = json.RawMessage(replies)
		return
	}
	if Same(replies, string(c.Expected(server))) {
		return
	}
	for i := range c.Differs {
		d := &c.Differs[i]
		d.On = slices.DeleteFunc(d.On, func(s string) bool { return s == server })
	}
	c.Differs = slices.DeleteFunc(c.Differs, func(d Difference) bool { return len(d.On) == 0 })
	if Same(replies, string(c.Replies)) {
		return
	}
	for i := range c.Differs {
		if d := &c.Differs[i]; Same(replies, string(d.Replies)) {
			d.On = append(d.On, server)
			return
		}
	}
	c.Differs = append(c.Differs, Difference{On: []string{server}, Why: why, Replies: json.RawMessage(replies)})
}

// Run empties the server, runs the case there and returns the replies as a JSON array, in the form of Conn.Do. Where
// the case's function does not load, that is {"load": error}. An error means that the connection failed.
func (c *Case) Run(conn *Conn) (string, error) {
	for _, words := range [][]string{{"FUNCTION", "FLUSH"}, {"FLUSHALL"}, {"SELECT", "0"}} {
		if _, err := conn.Do(words...); err != nil {
			return "", err
		}
	}
	calls, shown := c.calls()
	var replies []any
	for i, words := range calls {
		reply, err := conn.Do(words...)
		if err != nil {
			return "", fmt.Errorf("%q: %w", words, err)
		}
		if i >= shown {
			replies = append(replies, reply)
		} else if m, ok := reply.(map[string]any); ok && m["error"] != nil {
			replies = append(replies, map[string]any{"load": m["error"]})
			break
		}
	}
	// A server that the case has broken shows it here, and not in the case after it.
	if _, err := conn.Do("FUNCTION", "FLUSH"); err != nil {
		return "", fmt.Errorf("FUNCTION FLUSH after the case: %w", err)
	}
	return toJSON(replies), nil
}

// calls returns the case's commands; those before shown are its set-up.
func (c *Case) calls() (calls [][]string, shown int) {
	if c.Calls != nil {
		return c.Calls, 0
	}
	flags := ""
	for _, f := range c.Flags {
		flags += fmt.Sprintf("%q,", f)
	}
	text := fmt.Sprintf("#!lua name=t\nredis.register_function{function_name='f',callback=function(KEYS,ARGV) %s\nend,flags={%s}}", c.Lua, flags)
	command := c.Command
	if command == "" {
		command = "FCALL"
	}
	call := append([]string{command, "f", strconv.Itoa(len(c.Keys))}, c.Keys...)
	return [][]string{{"FUNCTION", "LOAD", text}, append(call, c.Args...)}, 1
}

// Same tells whether two JSON texts say the same. Numbers must be written alike.
func Same(a, b string) bool {
	x, errX := fromJSON(a)
	y, errY := fromJSON(b)
	return errX == nil && errY == nil && toJSON(x) == toJSON(y)
}

func fromJSON(text string) (v any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&v)
	return v, err
}

// toJSON writes what this package makes or has read, all of which JSON can say.
func toJSON(v any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}
