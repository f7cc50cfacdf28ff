package functions

import (
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestTheLibraryKeepsTheRules(t *testing.T) {
	text := redistest.Must[string](t)(join(sources, func(body string) string { return body })) // with comments, so that lines are those of the sources
	problems := redistest.Must[[]lintProblem](t)(lint(text))
	for _, problem := range problems {
		t.Error(problem)
	}
}

func TestLintRules(t *testing.T) {
	for _, row := range []struct{ name, code, want string }{
		{"fine", "local function f(keys, key) redis.call('GET', keys[1]) redis.pcall('SET', key, 'a' .. key, 'PX', 1 + 2) end", ""},
		{"a record's key", "local function f(log, key) local t = { key = key } redis.call('GET', log.key) end", ""},
		{"a key that a record is given", "local function f(state, key) state.key = key end", ""},
		{"something else that a record is given", "state.key = name", "line 2: key is assigned; a key comes from KEYS and stays what it is"},
		{"a computed command", "redis.call(name, key)", "line 2: the command of redis.call is not a literal, so its rights are unknown"},
		{"no command", "redis.pcall()", "line 2: the command of redis.pcall is not a literal, so its rights are unknown"},
		{"a made-up key", "redis.call('GET', 'a:' .. key)", "line 2: the key of GET is not a variable named key, nor a field or an element of keys"},
		{"a literal key", "redis.call('GET', 'a')", "line 2: the key of GET is not a variable named key, nor a field or an element of keys"},
		{"no key", "redis.call('FLUSHALL')", "line 2: the key of FLUSHALL is not a variable named key, nor a field or an element of keys"},
		{"a key of one's own", "local key = 'a'", "line 2: a local variable is named key; a key comes from KEYS, as a parameter or a loop over keys"},
		{"a changed key", "key = key .. 'x'", "line 2: key is assigned; a key comes from KEYS and stays what it is"},
		{"a false key in a field", "local t = { key = 'a' }", "line 2: the field key is set to something other than a key"},
		{"TIME twice", "redis.call('TIME')\nredis.call('TIME')", "line 3: TIME is called in a second place; ask the clock that the first one fills"},
		{"tostring", "local s = tostring(n)", "line 2: tostring writes large numbers as 1e+15; use string.format with %d"},
		{"a sum in a string", "local s = 'a' .. n + 1", "line 2: the result of + is joined to a string, and a large number would become 1e+15; use string.format with %d"},
		{"math in a string", "local s = math.floor(n) .. 'a'", "line 2: the result of math.floor is joined to a string, and a large number would become 1e+15; use string.format with %d"},
		{"in its file", "\n--@ src/10_a.lua\nlocal a = {}\ndo\nlocal x = 1\nlocal s = 2 .. 'a'\nend",
			"src/10_a.lua:2: 2 is joined to a string, and a large number would become 1e+15; use string.format with %d"},
	} {
		t.Run(row.name, func(t *testing.T) {
			problems := redistest.Must[[]lintProblem](t)(lint("#!lua name=x\n" + row.code))
			var got []string
			for _, problem := range problems {
				got = append(got, problem.String())
			}
			if strings.Join(got, "\n") != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func TestWhatIsNotLua(t *testing.T) {
	if _, err := lint("#!lua name=x\nlocal = 1"); err == nil || !strings.HasPrefix(err.Error(), "the library is not Lua that can be run: user_function:2: ") {
		t.Errorf("got %v", err)
	}
}
