// Package functions holds the Redis Functions library: its Lua source, the text built from it, and the vectors that
// say what it returns.
//
// The text that Redis loads is made in one place, New. Source is that text without policies, the same bytes as
// functions/ratelimit.lua, which loads with redis-cli alone:
//
//	redis-cli -x FUNCTION LOAD REPLACE < functions/ratelimit.lua
//
// WithPolicies bakes names for limits into it, and ReadPolicies reads them out of a text that a server holds.
package functions

//go:generate go run ./internal/generate
