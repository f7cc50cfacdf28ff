// Package engine implements Redis Functions: it loads libraries, stores their functions, and calls
// them with Redis's Lua API.
package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Command runs one command for the running function, and returns its reply.
type Command func(run *Run, words []string) Reply

// Reply is a Redis reply: int64, string (bulk), Status, Error, nil, []Reply, Map or Set.
type Reply any

// Status is a simple string reply.
type Status string

// Error is an error reply that begins with its code.
type Error string

func (e Error) Error() string { return string(e) }

// Map is a reply that RESP3 sends as a map: alternating keys and values. RESP2 sends it as an
// array.
type Map []Reply

// Set is a reply that RESP3 sends as a set.
type Set []Reply

// Engine holds the libraries of one server. It is not safe for concurrent use.
type Engine struct {
	lua     *threads
	command Command

	CallLimit time.Duration // maximum duration of a call
	LoadLimit time.Duration // maximum duration of a load

	// MemoryLimit is the number of bytes by which the heap of the process may grow while a function or
	// a library's code runs.
	MemoryLimit uint64

	libraries map[string]*Library
	functions map[string]*Function // by lower-case name

	globals     *lua.LTable       // shared by all libraries; showGlobals sets its contents
	showGlobals func(*lua.LTable) // makes globals contain loadGlobals or callGlobals
	loadGlobals *lua.LTable
	callGlobals *lua.LTable
	loading     *Library // the library that is being loaded, or nil
	running     *Run     // the running call, or nil
}

// Library is a loaded library. It does not change after it is loaded.
type Library struct {
	Name      string
	Code      string
	Functions []*Function // in the order of registration
}

// Function is one function of a library.
type Function struct {
	Name        string
	Description Reply    // a string, or nil
	Flags       []string // in the order of FUNCTION LIST
	library     *Library
	callback    *lua.LFunction
}

// noWrites is the flag of functions that do not write.
const noWrites = "no-writes"

// flagNames lists the flags of Redis 7 in the order of FUNCTION LIST.
var flagNames = []string{noWrites, "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"}

// New returns an engine without libraries.
func New(command Command) *Engine {
	e := &Engine{
		lua:     newThreads(),
		command: command,
		// Redis reports BUSY after 5 s, and stops a load after 0.5 s. These limits are longer, because
		// gopher-lua is slower, and a machine that runs many tests may be twenty times slower still.
		CallLimit:   30 * time.Second,
		LoadLimit:   30 * time.Second,
		MemoryLimit: 1 << 30,

		libraries: map[string]*Library{},
		functions: map[string]*Function{},
	}
	e.openAPI()
	return e
}

// Close frees the Lua state.
func (e *Engine) Close() { e.lua.budget.close() }

// Libraries returns the libraries whose name matches, sorted by name.
func (e *Engine) Libraries(match func(name string) bool) []*Library {
	var libs []*Library
	for _, name := range slices.Sorted(maps.Keys(e.libraries)) {
		if match(name) {
			libs = append(libs, e.libraries[name])
		}
	}
	return libs
}

// Counts returns the number of libraries and of functions.
func (e *Engine) Counts() (libraries, functions int) { return len(e.libraries), len(e.functions) }

// Flush deletes all libraries.
func (e *Engine) Flush() {
	e.libraries = map[string]*Library{}
	e.functions = map[string]*Function{}
}

// Delete deletes one library, and reports whether it existed.
func (e *Engine) Delete(name string) bool {
	lib := e.libraries[name]
	if lib == nil {
		return false
	}
	delete(e.libraries, name)
	for _, f := range lib.Functions {
		delete(e.functions, strings.ToLower(f.Name))
	}
	return true
}

// Lookup returns the function with this name, ignoring case, or nil.
func (e *Engine) Lookup(name string) *Function {
	if f, ok := e.functions[name]; ok {
		return f
	}
	return e.functions[strings.ToLower(name)]
}
