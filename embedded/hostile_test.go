package embedded

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Prefixes of the errors from calls that the engine stops.
const (
	tooLong = "ERR function f ran for more than "
	tooMuch = "ERR function f made the process use 16 MiB more memory"
)

// TestFunctionsDoNotEndTheProcess checks that no function can crash the process. The call returns
// an error, and the server serves the next call.
func TestFunctionsDoNotEndTheProcess(t *testing.T) {
	before := heapInUse()
	for _, row := range []struct{ name, body, want string }{
		{"endless loop", "while true do end", tooLong},
		{"endless empty for", "for i = 1, 1e18 do end", tooLong},
		{"endless pcalls", "while true do pcall(error, 'x') end", tooLong},
		{"endless loop in a pcall", "pcall(function() while true do end end) return 1", tooLong},
		{"endless iterator", "for k in function() return 1 end do end", tooLong},
		{"endless metamethod", "local t = setmetatable({}, {__index = function(t, k) while true do end end}) return t.x", tooLong},
		{"endless tail calls", "local function f() return f() end return f()", tooLong},
		{"endless tail calls of two", "local f, g function f(n) return g(n + 1) end function g(n) return f(n + 1) end return f(1)", tooLong},
		{"endless sort", "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.sort(t) end", tooLong},
		{"sort that changes its mind", "local t, n = {}, 0 for i = 1, 1e5 do t[i] = i end while true do pcall(table.sort, t, function() n = n + 1 return n % 3 == 0 end) end", tooLong},
		{"pattern that backtracks", "return ('a'):rep(40):find(('a*'):rep(40) .. 'b')", tooLong},
		{"gsub that backtracks", "return (('a'):rep(40):gsub(('a*'):rep(40) .. 'b', ''))", tooLong},
		{"gmatch that backtracks", "for x in ('a'):rep(40):gmatch(('a*'):rep(40) .. 'b') do end", tooLong},
		{"match within matches", "return ('a'):rep(1000):match(('a?'):rep(300))", "ERR "},
		{"endless recursion", "local function f(n) return 1 + f(n + 1) end return f(1)", "ERR "},
		{"recursion through metamethods", "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k + 1] end return t[1]", "ERR "},
		{"recursion through tostring", "local t = setmetatable({}, {}) getmetatable(t).__tostring = function(t) return tostring(t) end return tostring(t)", "ERR "},
		{"recursion through sort", "local function f() table.sort({1, 2, 3}, function(a, b) f() return a < b end) end return f()", "ERR "},
		{"recursion through gsub", "local function f() return (('a'):gsub('a', f)) end return f()", "ERR "},
		{"recursion through metamethods and pcalls", "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) if k % 4000 == 0 then pcall(function() return t[k + 1] end) end return t[k + 1] end return t[1]", "ERR lua callstack overflow"},
		{"pcalls within one another", "local function f() return assert(pcall(f)) end return f()", "ERR "},
		{"index loop", "local t = {} setmetatable(t, {__index = t}) return t.x", "ERR "},
		{"doubled string", "local s = 'x' while true do s = s .. s end", "ERR user_function:2: the embedded server makes no string of more than 64 MiB"},
		{"doubled string in a pcall", "local s = 'x' while true do pcall(function() s = s .. s end) end", tooLong},
		{"huge rep", "return #string.rep('x', 1e18)", "ERR user_function:2: the embedded server makes no string"},
		{"huge rep of much", "return #string.rep(string.rep('x', 1000), 1e6)", "ERR user_function:2: the embedded server makes no string"},
		{"huge table.concat", "local s, t = string.rep('x', 1e6), {} for i = 1, 2000 do t[i] = s end return #table.concat(t)", "ERR user_function:2: the embedded server makes no string"},
		{"huge separator", "return #table.concat({1, 2, 3, 4, 5}, string.rep('x', 30e6))", "ERR user_function:2: the embedded server makes no string"},
		{"huge format", "local s = string.rep('x', 30e6) return #string.format('%s%s%s', s, s, s)", "ERR user_function:2: the embedded server makes no string"},
		{"huge gsub", "return #string.gsub(string.rep('x', 1e6), 'x', string.rep('y', 1000))", "ERR user_function:2: the embedded server makes no string"},
		{"huge gsub of the match", "return #string.gsub(string.rep('x', 1e6), '.*', string.rep('%0', 1e6))", "ERR user_function:2: the embedded server makes no string"},
		{"huge struct.pack", "local s = string.rep('x', 30e6) return #struct.pack('c30000000c30000000c30000000', s, s, s)", "ERR user_function:2: the embedded server makes no string"},
		{"struct.pack of much", "return struct.pack(string.rep('b', 30e6))", "ERR user_function:2: bad argument #1 to pack (too many items)"},
		{"match in a long set", "return string.find(string.rep('a', 1e6), '^[' .. string.rep('b', 1e6) .. 'a]*$')", tooLong},
		{"many strings", "local t = {} for i = 1, 1e9 do t[i] = string.rep('x', 60e6) .. i end", tooMuch},
		{"many tables", "local t = {} for i = 1, 1e12 do t[i % 4e6 + 1] = {i, {i}, x = {}} end", "ERR function f "},
		{"sparse tables", "local t = {} for i = 1, 1e6 do t[i] = {} t[i][400000] = 1 end", tooMuch},
		{"long unpack", "return {unpack({}, 1, 1e9)}", "ERR user_function:2: too many results"},
		{"longest unpack", "return {unpack({}, -9e15, 9e15)}", "ERR user_function:2: too many results"},
		{"long concat of nothing", "return table.concat({}, '', 1, 1e15)", "ERR "},
		{"reply that grows without end", "local t = {} t[1] = t t[2] = t return t", "ERR function f "},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := Run(t, WithLibrary(lib(row.body)))
			s.engine.CallLimit, s.engine.MemoryLimit = callLimit(row.want), 128<<20
			if strings.HasPrefix(row.want, tooMuch) {
				s.engine.MemoryLimit = 16 << 20
				runtime.GC() // otherwise, garbage of earlier calls would count as memory in use before this call
			}
			if _, err := s.Do("FCALL", "f", 0); err == nil || !strings.HasPrefix(err.Error(), row.want) {
				t.Errorf("%.300v, want %s", err, row.want)
			}
			s.engine.CallLimit = time.Minute
			require(t, s.Load(lib("return 'served'")))
			if r, err := s.Do("FCALL", "f", 0); err != nil || r != "served" {
				t.Errorf("the next call: %v, %v", r, err)
			}
		})
	}
	if after := heapInUse(); after > before+64<<20 {
		t.Errorf("the heap has grown from %d to %d MiB", before>>20, after>>20)
	}
}

// callLimit returns the CallLimit of a test that expects an error with the prefix want. The limit
// is short if the test expects the call to exceed it. Otherwise it is long, so that the call ends
// for another reason.
func callLimit(want string) time.Duration {
	if strings.HasPrefix(tooLong, want) && want != "ERR " {
		return 20 * time.Millisecond
	}
	return time.Minute
}

// heapInUse returns the size of the reachable objects in bytes.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestTableInItself checks that the reply for a table that contains itself is as deep as in Redis.
func TestTableInItself(t *testing.T) {
	s := Run(t, WithLibrary(lib("local t = {} t[1] = t return t")))
	r, err := s.Do("FCALL", "f", 0)
	depth := 0
	for ; err == nil; depth++ {
		list, ok := r.([]any)
		if !ok {
			break
		}
		r = list[0]
	}
	if want := Error("ERR reached lua stack limit"); depth != 7995 || r != want {
		t.Errorf("%d tables within one another around %v, want 7995 around %v; error %v", depth, r, want, err)
	}
}

func TestTextsThatAreNoLibrary(t *testing.T) {
	s := Run(t)
	const register = "\nredis.register_function('f', function() return 1 end)"
	for _, row := range []struct{ name, text, want string }{
		{"no shebang", "return 1", "ERR Missing library metadata"},
		{"half a shebang", "#!", "ERR Invalid library metadata"},
		{"a shebang alone", "#!lua name=t", "ERR Invalid library metadata"},
		{"a NUL byte in the shebang", "#!lua name=t\x00\n" + register, "ERR Invalid library metadata"},
		{"no name", "#!lua" + register, "ERR Library name was not given"},
		{"an open quote", "#!lua name='t" + register, "ERR Invalid library metadata"},
		{"another engine", "#!js name=t" + register, "ERR Engine 'js' not found"},
		{"two functions of one name", "#!lua name=t" + register + register, "ERR Error registering functions: ERR Function already exists in the library"},
		{"not UTF-8", "#!lua name=t\n\xff\xfe" + register, "ERR Error compiling function: user_function:2: Invalid token near"},
		{"NUL bytes", "#!lua name=t\n\x00\x00" + register, "ERR Error compiling function: user_function:2: Invalid token near"},
		{"bytecode", "#!lua name=t\n\x1bLua" + register, "ERR Error compiling function: user_function:2: Invalid token near"},
		{"an open string", "#!lua name=t\nlocal s = 'x" + register, "ERR Error compiling function: user_function:3: unterminated string"},
		{"10 MB", "#!lua name=t\n" + strings.Repeat("local a = 1\n", 10<<20/12) + register, "ERR Error compiling function: user_function:1: the text has 10485"},
		{"3 MB of brackets", "#!lua name=t\nreturn " + strings.Repeat("(", 3_000_000), "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"3 MB of tables in tables", "#!lua name=t\nreturn " + strings.Repeat("{", 1_500_000) + strings.Repeat("}", 1_500_000), "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"a long sum", "#!lua name=t\nreturn 1" + strings.Repeat("+1", 1<<14), "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"a long concatenation", "#!lua name=t\nreturn 1 " + strings.Repeat(".. 1 ", 1<<14), "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"many nots", "#!lua name=t\nreturn " + strings.Repeat("not ", 1<<14) + "1", "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"many elseifs", "#!lua name=t\nif a then" + strings.Repeat(" elseif a then", 1000) + " end", "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"blocks in blocks", "#!lua name=t\n" + strings.Repeat("do ", 1<<18) + strings.Repeat("end ", 1<<18), "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"functions in functions", "#!lua name=t\n" + strings.Repeat("return function() ", 1000) + strings.Repeat("end ", 1000), "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"functions", "#!lua name=t\nreturn " + strings.Repeat("function()end,", 200_000) + "1", "ERR Error compiling function: user_function:1: the text has 200000 functions, and the embedded server takes at most 8192"},
		{"calls", "#!lua name=t\n" + strings.Repeat("f''", 1_000_000), "ERR Error compiling function: user_function:1: the text has 2000000 tokens, and the embedded server takes at most 1048576"},
		{"3 MB of powers", "#!lua name=t\nreturn " + strings.Repeat("a^", 1_500_000) + "a", "ERR Error compiling function: user_function:2: more than 200 levels"},
		{"coroutines", lib("for i = 1, 1e6 do coroutine.create(f) end"), "ERR Error compiling function: user_function:2: the embedded server does not have coroutine"},
		{"endless at load", "#!lua name=t\nwhile true do end" + register, "ERR Error registering functions: ERR FUNCTION LOAD timeout"},
		{"doubled string at load", "#!lua name=t\nlocal s = 'x' while true do s = s .. s end" + register, "ERR Error registering functions: ERR user_function:2: the embedded server makes no string"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if s.engine.LoadLimit = 2 * time.Minute; strings.HasSuffix(row.want, "timeout") { // long enough even for a busy machine
				s.engine.LoadLimit = 500 * time.Millisecond
			}
			if err := s.Load(row.text); err == nil || !strings.HasPrefix(err.Error(), row.want) {
				t.Errorf("%.300v, want %s", err, row.want)
			}
			if r, err := s.Do("FUNCTION", "LIST"); err != nil || len(r.([]any)) != 0 {
				t.Errorf("left behind: %.300v, %v", r, err)
			}
		})
	}
}

// TestBytesInStrings checks that strings in a library may contain bytes that are not valid UTF-8,
// as in Redis.
func TestBytesInStrings(t *testing.T) {
	text := "#!lua name=t\nredis.register_function('f', function() return '\xff\xfe\x00' end)"
	s := Run(t, WithLibrary(text))
	if r, err := s.Do("FCALL", "f", 0); err != nil || r != "\xff\xfe\x00" {
		t.Errorf("%q, %v", r, err)
	}
	r, err := s.Do("FUNCTION", "LIST", "WITHCODE")
	if err != nil || !strings.Contains(fmt.Sprint(r), text) {
		t.Errorf("%q, %v", r, err)
	}
}
