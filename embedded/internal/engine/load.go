package engine

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lualib"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/words"
	lua "github.com/yuin/gopher-lua"
)

const badName = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"

// Load implements FUNCTION LOAD. It returns the library's name, or an error with Redis's text. A
// load that fails changes nothing.
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
		if other := e.functions[strings.ToLower(f.Name)]; other != nil && other.library != old {
			return "", Error(fmt.Sprintf("ERR Function %s already exists", f.Name))
		}
	}
	if old != nil {
		e.drop(old)
	}
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
	end := strings.IndexAny(code, "\n\x00")
	if end < 0 || code[end] == 0 {
		return "", "", Error("ERR Invalid library metadata")
	}
	parts, ok := words.Split(code[:end])
	if !ok || len(parts) == 0 {
		return "", "", Error("ERR Invalid library metadata")
	}
	engine = parts[0][2:]
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
	return name, engine, nil
}

func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c|32 >= 'a' && c|32 <= 'z' || c >= '0' && c <= '9' || c == '_') {
			return false
		}
	}
	return s != ""
}

// register compiles and runs a library's text, which registers the functions.
func (e *Engine) register(lib *Library) error {
	chunk, err := e.lua.compile(lib.Code, e.globals)
	if err != nil {
		return Error("ERR Error compiling function: " + oneLine(err.Error()))
	}
	e.loading = lib
	e.showGlobals(e.loadGlobals)
	defer func() {
		e.loading = nil
		e.showGlobals(e.callGlobals)
	}()
	_, failure, stopped := e.run(chunk, e.LoadLimit)
	switch {
	case stopped == errTime:
		return Error("ERR Error registering functions: ERR FUNCTION LOAD timeout")
	case stopped != nil:
		return Error("ERR Error registering functions: ERR " + stopped.Error())
	case failure != nil:
		text, _ := errorText(failure)
		return Error("ERR Error registering functions: " + oneLine(text))
	}
	return nil
}

// registerFunction implements redis.register_function.
func (e *Engine) registerFunction(L *lua.LState) int {
	if e.loading == nil {
		raise(L, "redis.register_function can only be called on FUNCTION LOAD command")
	}
	f := &Function{library: e.loading}
	switch L.GetTop() {
	case 1:
		e.namedForm(L, f)
	case 2:
		name, ok := lualib.ToText(L.Get(1))
		if !ok {
			raise(L, "first argument to redis.register_function must be a string")
		}
		f.Name = name
		f.callback = callback(L, L.Get(2), "second argument to redis.register_function must be a function")
	default:
		raise(L, "wrong number of arguments to redis.register_function")
	}
	if !validName(f.Name) {
		raise(L, badName)
	}
	for _, other := range e.loading.Functions {
		if other.Name == f.Name {
			raise(L, "Function already exists in the library")
		}
		if strings.EqualFold(other.Name, f.Name) {
			raise(L, fmt.Sprintf("the embedded server refuses two functions whose names differ only in case, %s and %s: "+
				"Redis takes them, but finds functions without regard to case, and so calls only one of both", other.Name, f.Name))
		}
	}
	e.loading.Functions = append(e.loading.Functions, f)
	return 0
}

func callback(L *lua.LState, v lua.LValue, otherwise string) *lua.LFunction {
	fn, ok := v.(*lua.LFunction)
	if !ok {
		raise(L, otherwise)
	}
	return fn
}

func (e *Engine) namedForm(L *lua.LState, f *Function) {
	t, ok := L.Get(1).(*lua.LTable)
	if !ok {
		raise(L, "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).")
	}
	named := false
	t.ForEach(func(k, v lua.LValue) {
		key, ok := lualib.ToText(k)
		if !ok {
			raise(L, "named argument key given to redis.register_function is not a string")
		}
		switch strings.ToLower(key) {
		case "function_name":
			s, ok := lualib.ToText(v)
			if !ok {
				raise(L, "function_name argument given to redis.register_function must be a string")
			}
			f.Name, named = s, true
		case "description":
			s, ok := lualib.ToText(v)
			if !ok {
				raise(L, "description argument given to redis.register_function must be a string")
			}
			f.Description, f.HasDesc = s, true
		case "callback":
			f.callback = callback(L, v, "callback argument given to redis.register_function must be a function")
		case "flags":
			flags, ok := v.(*lua.LTable)
			if !ok {
				raise(L, "flags argument to redis.register_function must be a table representing function flags")
			}
			f.Flags = readFlags(L, flags)
		default:
			raise(L, "unknown argument given to redis.register_function")
		}
	})
	if !named {
		raise(L, "redis.register_function must get a function name argument")
	}
	if f.callback == nil {
		raise(L, "redis.register_function must get a callback argument")
	}
}

func readFlags(L *lua.LState, t *lua.LTable) Flags {
	var flags Flags
	for i := 1; ; i++ {
		v := t.RawGetInt(i)
		if v == lua.LNil {
			return flags
		}
		known := false
		for _, n := range flagNames {
			if s, ok := v.(lua.LString); ok && string(s) == n.name {
				flags |= n.flag
				known = true
			}
		}
		if !known {
			raise(L, "unknown flag given")
		}
	}
}
