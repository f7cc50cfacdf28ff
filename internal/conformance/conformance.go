// Package conformance compares a server, embedded or real, with replies recorded from real servers.
//
// embedded/testdata/conformance.json lists cases. A case is the body of a Lua function, or a list
// of calls. It also has the replies from Redis 7.0, and those from other servers if they differ.
package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/replace"
)

// File is a file of recorded cases.
type File struct {
	About []string `json:"about"`
	Cases []Case   `json:"cases"`
}

// Case is a list of calls to an empty server and their replies.
type Case struct {
	Name    string          `json:"name"`
	Lua     string          `json:"lua,omitempty"`     // the body of a function f(KEYS, ARGV), loaded first
	Flags   []string        `json:"flags,omitempty"`   // the function's flags
	Command string          `json:"command,omitempty"` // command that calls f; "" means FCALL
	Keys    []string        `json:"keys,omitempty"`
	Args    []string        `json:"args,omitempty"`
	Calls   [][]string      `json:"calls,omitempty"`   // the calls, if there is no function
	Replies json.RawMessage `json:"replies,omitempty"` // from Redis 7.0, in the format of Conn.Do
	Differs []Difference    `json:"differs,omitempty"`
}

// Difference holds the replies of servers that reply differently from Redis 7.0.
type Difference struct {
	On      []string        `json:"on"` // servers, such as "redis8.0", "valkey8.1", "embedded"
	Why     string          `json:"why"`
	Replies json.RawMessage `json:"replies"` // null if the case crashes the server and must not run on it
}

func (d Difference) fatal() bool { return string(d.Replies) == "null" }

// Embedded is the name of the embedded server in Difference.On. If On contains no other name, Why
// is the title of a section in docs/offline.md.
const Embedded = "embedded"

// Reference is the server whose replies are recorded first.
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
		return nil, fmt.Errorf("%s has no cases", path)
	}
	names := map[string]bool{}
	for _, c := range f.Cases {
		if names[c.Name] {
			return nil, fmt.Errorf("%s: two cases are named %s", path, c.Name)
		}
		names[c.Name] = true
		for _, d := range c.Differs {
			if d.Why == "" || len(d.On) == 0 {
				return nil, fmt.Errorf("%s: %s needs both on and why; it has %v and %q", path, c.Name, d.On, d.Why)
			}
		}
	}
	return f, nil
}

// Save writes f to path with one case per line, for readable diffs.
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
	return replace.File(path, []byte(b.String()))
}

// Fatal returns the reason why the case must not run on the named server, or "" if it may run. A
// case must not run on a server that it crashes. recorded says whether the file has replies from this
// server. If it has none, the case must not run if it crashes any of the recorded servers.
func (c *Case) Fatal(server string, recorded bool) string {
	for _, d := range c.Differs {
		if d.fatal() && (!recorded || slices.Contains(d.On, server)) {
			return d.Why
		}
	}
	return ""
}

// Accepts reports whether replies, as returned by Run, are correct for the named server. If
// recorded is true, they must be the replies that are recorded for this server. Otherwise, for
// example for a later version, they must be the replies of one of the recorded servers.
func (c *Case) Accepts(server, replies string, recorded bool) bool {
	if recorded {
		return Same(replies, string(c.Expected(server)))
	}
	return Same(replies, string(c.Replies)) ||
		slices.ContainsFunc(c.Differs, func(d Difference) bool { return Same(replies, string(d.Replies)) })
}

// AcceptsEmbedded is like Accepts, for the embedded server. It also accepts a Lua error with
// different wording, if it begins with ERR.
func (c *Case) AcceptsEmbedded(replies string) bool {
	return SameExceptLuaErrors(replies, string(c.Expected(Embedded)))
}

// SameExceptLuaErrors is like Same, but treats all Lua errors as equal.
func SameExceptLuaErrors(got, want string) bool {
	x, errX := fromJSON(got)
	y, errY := fromJSON(want)
	return errX == nil && errY == nil && sameExceptLuaErrors(x, y)
}

func sameExceptLuaErrors(got, want any) bool {
	switch want := want.(type) {
	case []any:
		list, ok := got.([]any)
		return ok && slices.EqualFunc(list, want, sameExceptLuaErrors)
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

// luaError matches errors raised by Lua. They begin with a fixed phrase or with a position.
var luaError = regexp.MustCompile(`^ERR Error (compiling function|registering functions): |^ERR user_function:|^ERR attempt to `)

func sameError(got, want string) bool {
	text, _, _ := strings.Cut(got, " script: ")
	wanted, _, _ := strings.Cut(want, " script: ")
	if luaError.MatchString(wanted) {
		return strings.HasPrefix(text, "ERR ")
	}
	return text == wanted
}

// Expected returns the replies recorded from the named server. If there are none, because they do
// not differ, it returns those from Redis 7.0.
func (c *Case) Expected(server string) json.RawMessage {
	for _, d := range c.Differs {
		if slices.Contains(d.On, server) {
			return d.Replies
		}
	}
	return c.Replies
}

// Record stores the server's replies. If they differ from all recorded replies, it adds a Difference
// with the given reason. If replies is "null", the case crashed the server.
func (c *Case) Record(server, replies, reason string) {
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
	c.Differs = append(c.Differs, Difference{On: []string{server}, Why: reason, Replies: json.RawMessage(replies)})
}

// Run empties the server, runs the case there and returns the replies as a JSON array, in the
// format of Conn.Do. If the case's function does not load, the reply is {"load": error}. Run
// returns an error if the connection fails.
func (c *Case) Run(conn *Conn) (string, error) {
	for _, words := range [][]string{{"FUNCTION", "FLUSH"}, {"FLUSHALL"}, {"SELECT", "0"}} {
		if _, err := conn.Do(words...); err != nil {
			return "", err
		}
	}
	calls, setup := c.calls()
	var replies []any
	for i, words := range calls {
		reply, err := conn.Do(words...)
		if err != nil {
			return "", fmt.Errorf("%q: %w", words, err)
		}
		if i >= setup {
			replies = append(replies, reply)
		} else if m, ok := reply.(map[string]any); ok && m["error"] != nil {
			replies = append(replies, map[string]any{"load": m["error"]})
			break
		}
	}
	// If the case broke the server, report the failure here and not in the next case.
	if _, err := conn.Do("FUNCTION", "FLUSH"); err != nil {
		return "", fmt.Errorf("FUNCTION FLUSH after the case: %w", err)
	}
	return toJSON(replies), nil
}

// calls returns the case's commands. setup is the number of commands at the beginning that prepare
// the server.
func (c *Case) calls() (calls [][]string, setup int) {
	if c.Calls != nil {
		return c.Calls, 0
	}
	flags := ""
	for _, f := range c.Flags {
		flags += fmt.Sprintf("%q,", f)
	}
	text := fmt.Sprintf("#!lua name=t\nredis.register_function{function_name='f',callback=function(KEYS,ARGV) %s\nend,flags={%s}}", c.Lua, flags)
	call := append([]string{cmp.Or(c.Command, "FCALL"), "f", strconv.Itoa(len(c.Keys))}, c.Keys...)
	return [][]string{{"FUNCTION", "LOAD", text}, append(call, c.Args...)}, 1
}

// Same reports whether two JSON values are equal. It compares numbers as text.
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

// toJSON encodes a value that this package made or parsed. Encoding such a value cannot fail.
func toJSON(v any) string {
	text, err := printable.Encode(v, "")
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(text)
}
