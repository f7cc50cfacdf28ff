// Package lualib holds the Lua libraries that Redis adds to Lua 5.1: bit,
// cjson, cmsgpack and struct.
package lualib

import (
	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51"
	lua "github.com/yuin/gopher-lua"
)

// Open adds the libraries to the globals of a runtime.
func Open(rt *lua51.Runtime) {
	g := rt.Globals()
	g.RawSetString("bit", openBit(rt))
	g.RawSetString("cjson", openJSON(rt))
	g.RawSetString("cmsgpack", openMsgpack(rt))
	g.RawSetString("struct", openStruct(rt))
}

// eachPair visits a table in the order of pairs.
func eachPair(t *lua.LTable, f func(k, v lua.LValue)) {
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		f(k, v)
	}
}
