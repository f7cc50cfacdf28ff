package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lualib"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/words"
	lua "github.com/yuin/gopher-lua"
)

const badName = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"

var validName = regexp.MustCompile(`^[A-Za-z0-9_]+$`).MatchString

// Load implements FUNCTION LOAD. It returns the library's name, or the same error as Redis. If Load
// fails, it changes nothing.
func (e *Engine) Load(code string, replace bool) (string, error) {
	name, engine, err := metadata(code)
	if err != nil {
		return "", err
	}
	if !validName(name) {
		return "", Error("ERR " + badName)
	}
	if !strings.EqualFold(engine, "lua") {
		return "", Error(fmt.Sprintf("ERR Engine '%s' not found", engine))
	}
	old := e.libraries[name]
	if old != nil && !replace {
		return "", Error(fmt.Sprintf("ERR Library '%s' already exists", name))
	}
	lib := &Library{Name: name, Code: code}
	if err := e.register(lib); err != nil {
		return "", err
	}
	if len(lib.Functions) == 0 {
		return "", Error("ERR No functions registered")
	}
	for _, f := range lib.Functions {
		if other := e.Lookup(f.Name); other != nil && other.library != old {
			return "", Error(fmt.Sprintf("ERR Function %s already exists", f.Name))
		}
	}
	e.Delete(name)
	e.libraries[name] = lib
	for _, f := range lib.Functions {
		e.functions[strings.ToLower(f.Name)] = f
	}
	return name, nil
}

// metadata parses the first line, "#!<engine> name=<library>".
func metadata(code string) (name, engine string, err error) {
	if !strings.HasPrefix(code, "#!") {
		return "", "", Error("ERR Missing library metadata")
	}
	line, _, ended := strings.Cut(code, "\n")
	parts, ok := words.Split(line)
	if !ended || !ok || strings.Contains(line, "\x00") {
		return "", "", Error("ERR Invalid library metadata")
	}
	named := false
	for _, p := range parts[1:] {
		if len(p) < 5 || !strings.EqualFold(p[:5], "name=") {
			return "", "", Error("ERR Invalid metadata value given: " + p)
		}
		if named {
			return "", "", Error("ERR Invalid metadata value, name argument was given multiple times")
		}
		name, named = p[5:], true
	}
	if !named {
		return "", "", Error("ERR Library name was not given")
	}
	return name, parts[0][2:], nil
}

// register compiles and runs a library's code. The code registers the library's functions.
func (e *Engine) register(lib *Library) error {
	chunk, err := e.lua.compile(lib.Code, e.globals)
	if err != nil {
		return Error("ERR Error compiling function: " + OneLine(err.Error()))
	}
	e.loading = lib
	e.showGlobals(e.loadGlobals)
	defer func() {
		e.loading = nil
		e.showGlobals(e.callGlobals)
	}()
	_, failure, stopped := e.run(chunk, e.LoadLimit)
	const failed = "ERR Error registering functions: "
	switch {
	case stopped == errTime:
		return Error(failed + "ERR FUNCTION LOAD timeout")
	case stopped != nil:
		return Error(failed + "ERR " + stopped.Error())
	case failure != nil:
		text, _ := errorText(failure)
		return Error(failed + OneLine(text))
	}
	return nil
}

func (e *Engine) registerFunction(L *lua.LState) int {
	check(L, e.loading != nil, "redis.register_function can only be called on FUNCTION LOAD command")
	f := &Function{library: e.loading}
	switch L.GetTop() {
	case 1:
		namedForm(L, f)
	case 2:
		f.Name = text(L, L.Get(1), "first argument to")
		f.callback = callback(L, L.Get(2), "second argument to")
	default:
		raise(L, "wrong number of arguments to redis.register_function")
	}
	check(L, validName(f.Name), badName)
	for _, other := range e.loading.Functions {
		check(L, other.Name != f.Name, "Function already exists in the library")
		if strings.EqualFold(other.Name, f.Name) {
			raise(L, fmt.Sprintf("the embedded server refuses two functions whose names differ only in case, %s and %s: "+
				"Redis accepts them, but ignores case when it looks up a function, so it calls the same one under both names", other.Name, f.Name))
		}
	}
	e.loading.Functions = append(e.loading.Functions, f)
	return 0
}

// text returns v, a string or a number, as a string. For any other value it raises an error.
// argument describes v in the error.
func text(L *lua.LState, v lua.LValue, argument string) string {
	s, ok := lualib.ToText(v)
	check(L, ok, argument+" redis.register_function must be a string")
	return s
}

// callback returns v as a function. If v is not a function, callback raises an error. argument
// describes v in the error.
func callback(L *lua.LState, v lua.LValue, argument string) *lua.LFunction {
	f, ok := v.(*lua.LFunction)
	check(L, ok, argument+" redis.register_function must be a function")
	return f
}

func namedForm(L *lua.LState, f *Function) {
	t, ok := L.Get(1).(*lua.LTable)
	check(L, ok, "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).")
	named := false
	t.ForEach(func(k, v lua.LValue) {
		key, ok := lualib.ToText(k)
		check(L, ok, "named argument key given to redis.register_function is not a string")
		switch strings.ToLower(key) {
		case "function_name":
			f.Name, named = text(L, v, "function_name argument given to"), true
		case "description":
			f.Description = text(L, v, "description argument given to")
		case "callback":
			f.callback = callback(L, v, "callback argument given to")
		case "flags":
			flags, ok := v.(*lua.LTable)
			check(L, ok, "flags argument to redis.register_function must be a table representing function flags")
			f.Flags = readFlags(L, flags)
		default:
			raise(L, "unknown argument given to redis.register_function")
		}
	})
	check(L, named, "redis.register_function must get a function name argument")
	check(L, f.callback != nil, "redis.register_function must get a callback argument")
}

func readFlags(L *lua.LState, t *lua.LTable) []string {
	given := map[string]bool{}
	for i := 1; t.RawGetInt(i) != lua.LNil; i++ {
		name, _ := t.RawGetInt(i).(lua.LString)
		check(L, slices.Contains(flagNames, string(name)), "unknown flag given")
		given[string(name)] = true
	}
	return slices.DeleteFunc(slices.Clone(flagNames), func(name string) bool { return !given[name] })
}
